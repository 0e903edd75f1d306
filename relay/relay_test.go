package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// running is a relay at work inside a bubble of synctest.
type running struct {
	stop func()
	done chan error
}

func start(r *relay.Relay) *running {
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{stop: cancel, done: make(chan error, 1)}
	go func() { run.done <- r.Run(ctx) }()
	return run
}

// wait waits for Run to return, and fails the test if it returns an error.
func (r *running) wait(t *testing.T) {
	t.Helper()
	if err := <-r.done; err != nil {
		t.Errorf("Run = %v, want nil after its context ended", err)
	}
}

// after lets time pass in the bubble, and waits until all goroutines are idle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRunPublishesAndRecordsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(200)...)
		pub := &fakePublisher{answer: func(broker.Event, int) (time.Duration, error) { return time.Millisecond, nil }}
		run := start(relay.Over(src, pub, relay.Config{Window: 10}))
		after(5 * time.Second)
		if got := len(src.PublishedSeqs()); got != 200 {
			t.Errorf("%d events are recorded as published, want 200", got)
		}
		if pub.most != 10 {
			t.Errorf("%d were in flight at once, want the window of 10", pub.most)
		}
		run.stop()
		run.wait(t)
	})
}

func TestRunDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(3)...)
		pub := &fakePublisher{answer: func(ev broker.Event, _ int) (time.Duration, error) {
			return time.Duration(ev.Seq) * 4 * time.Second, nil // the third comes after the drain timeout
		}}
		run := start(relay.Over(src, pub, relay.Config{DrainTimeout: 10 * time.Second}))
		after(time.Second)
		run.stop()
		began := time.Now()
		if err := <-run.done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("Run drained for %s, want the drain timeout of 10s", took)
		}
		if got := src.PublishedSeqs(); len(got) != 2 {
			t.Errorf("published %v, want the two that were acknowledged in time", got)
		}
		if !src.terms[0].released {
			t.Error("the lease was not given back")
		}
	})
}

func TestRunKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{Lease: 3 * time.Second}))
		after(time.Minute)
		run.stop()
		run.wait(t)
		if len(src.terms) != 1 {
			t.Errorf("%d terms in a quiet minute, want 1", len(src.terms))
		}
		last := src.terms[0].records[0]
		for _, at := range src.terms[0].records[1:] {
			if gap := at.Sub(last); gap > 1500*time.Millisecond {
				t.Errorf("the lease of 3s was not renewed for %s", gap)
			}
			last = at
		}
	})
}

// However fast acknowledgements come, recordings are at least 20 ms apart, and take at most a
// twentieth of the time.
func TestRecordingsAreApart(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: 20 * time.Millisecond, 5 * time.Millisecond: 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			src := newFakeSource(events(900)...)
			var began []time.Time // only the recorder uses it until Run has returned
			src.recorded = func(*fakeTerm, context.Context) error {
				began = append(began, time.Now())
				time.Sleep(took)
				return nil
			}
			pub := &fakePublisher{answer: func(ev broker.Event, _ int) (time.Duration, error) {
				return time.Duration(ev.Seq) * time.Millisecond, nil
			}}
			run := start(relay.Over(src, pub, relay.Config{}))
			after(time.Second)
			run.stop()
			run.wait(t)
			if len(began) < 8 {
				t.Fatalf("%d recordings, want more than a few", len(began))
			}
			for i := 1; i < len(began)-1; i++ { // the last is that of the end
				if gap := began[i].Sub(began[i-1]); gap < want {
					t.Errorf("recordings of %s are %s apart, want %s", took, gap, want)
				}
			}
		})
	}
}

// Slow commits do not end the term, as long as the lease is renewed.
func TestSlowRecordingsKeepTheLease(t *testing.T) {
	for _, d := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			src := newFakeSource()
			src.recorded = func(*fakeTerm, context.Context) error { time.Sleep(d); return nil }
			run := start(relay.Over(src, &fakePublisher{}, relay.Config{Lease: 5 * time.Second}))
			for n := range 60 {
				src.Set(func() {
					if len(src.terms) > 0 {
						src.terms[0].Unread = []broker.Event{{Seq: int64(n + 1), Event: postroom.Event{Type: "a.b"}}}
					}
				})
				after(time.Second)
			}
			if len(src.terms) != 1 {
				t.Errorf("recordings of %s: %d terms in a minute, want 1", d, len(src.terms))
			}
			run.stop()
			run.wait(t)
		})
	}
}

// If the window is full, the dispatcher waits for several acknowledgements at a time. If only
// one comes, it is recorded nevertheless. If one makes room, the dispatcher does not wait for
// more.
func TestFullWindowRecordsASingleAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(300)...)
		pub := &fakePublisher{answer: func(ev broker.Event, _ int) (time.Duration, error) {
			if ev.Seq <= 6 { // one, and then more than are waited for
				return max(1, time.Duration(ev.Seq)-3) * time.Second / 4, nil
			}
			return 10 * time.Second, nil
		}}
		run := start(relay.Over(src, pub, relay.Config{Window: 256}))
		after(240 * time.Millisecond)
		for n, want := range []int{0, 4, 5, 6} {
			if got := src.PublishedSeqs(); len(got) != want {
				t.Errorf("after %d quarters of a second %v are recorded, want %d", n, got, want)
			}
			after(250 * time.Millisecond)
		}
		after(10 * time.Second)
		if got := src.PublishedSeqs(); len(got) < 256 {
			t.Errorf("%d are recorded after all of the first were acknowledged", len(got))
		}
		after(10 * time.Second)
		run.stop()
		run.wait(t)
		if got := src.PublishedSeqs(); len(got) != 300 || pub.most > 256 {
			t.Errorf("%d of 300 are recorded, with up to %d in flight, want 256", len(got), pub.most)
		}
	})
}

// If the threshold falls to the number of results that are there, the dispatcher is woken.
func TestAwaitWakesAtALowerThreshold(t *testing.T) {
	settle, await, told := relay.Outcomes()
	await(3)
	settle()
	settle()
	if told() {
		t.Error("the dispatcher is woken after two outcomes, want three")
	}
	await(1)
	if !told() {
		t.Error("the dispatcher is not woken for two outcomes, although one is enough")
	}
	await(3)
	settle()
	if !told() {
		t.Error("the dispatcher is not woken for three outcomes")
	}
}

// Slow recordings are far apart while there is other work. When all events are acknowledged,
// the rest of a backlog is recorded at once if it is a page or more: after a crash it would be
// published again.
func TestTheEndOfABacklogIsRecordedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog = 1500
		src := newFakeSource(events(backlog)...)
		const took = 50 * time.Millisecond
		src.recorded = func(*fakeTerm, context.Context) error { time.Sleep(took); return nil }
		run := start(relay.Over(src, promptPublisher{}, relay.Config{}))
		after(took + 10*time.Millisecond)
		first := len(src.PublishedSeqs())
		after(took)
		got := len(src.PublishedSeqs())
		if few := backlog-first < 1000; got != backlog && !few { // few may wait, because the first recording took more than usual
			t.Errorf("%d events are recorded, after %d at first, want all %d", got, first, backlog)
		}
		run.stop()
		run.wait(t)
	})
}

// A relay whose recording hangs stops sending before its lease runs out.
func TestATermEndsBeforeItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(1)...)
		pub := &fakePublisher{answer: func(broker.Event, int) (time.Duration, error) { return 0, errors.New("not now") }}
		src.recorded = func(_ *fakeTerm, ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		run := start(relay.Over(src, pub, relay.Config{Lease: 4 * time.Second}))
		after(3100 * time.Millisecond)
		tries := pub.tried(1)
		src.Set(func() { src.leadErr = eventlog.ErrLeaseHeld })
		after(10 * time.Second)
		if tries == 0 || pub.tried(1) != tries {
			t.Errorf("tried %d times while it led, and %d times after three quarters of the lease", tries, pub.tried(1)-tries)
		}
		run.stop()
		run.wait(t)
	})
}

func TestAFailedTermIsFollowedByANewOne(t *testing.T) {
	tests := []struct {
		name string
		fail func(*fakeSource)
	}{
		{"reading fails", func(s *fakeSource) { s.terms[0].readErr = errors.New("connection reset") }},
		{"the lease is lost", func(s *fakeSource) {
			s.recorded = func(term *fakeTerm, _ context.Context) error {
				if term == s.terms[0] {
					return eventlog.ErrLeaseLost
				}
				return nil
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource()
				run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
				after(time.Second)
				src.Set(func() { tt.fail(src); src.Events = events(10) })
				after(10 * time.Second)
				if len(src.terms) < 2 || !src.terms[0].released {
					t.Errorf("%d terms, want the failed one released and a new one", len(src.terms))
				}
				if got := len(src.PublishedSeqs()); got != 10 {
					t.Errorf("%d events published, want 10", got)
				}
				run.stop()
				run.wait(t)
			})
		})
	}
}

func TestFailingEventIsRepeatedAndHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(100)...)
		pub := &fakePublisher{answer: func(ev broker.Event, try int) (time.Duration, error) {
			if ev.Seq == 1 && try < 8 {
				return 0, errors.New("no answer")
			}
			return 0, nil
		}}
		run := start(relay.Over(src, pub, relay.Config{}))
		after(100 * time.Millisecond)
		if got := len(src.PublishedSeqs()); got != 99 {
			t.Errorf("%d of the others are published, want 99", got)
		}
		after(time.Minute)
		if got := pub.tried(1); got != 8 {
			t.Errorf("tried %d times, want 8: seven failures and the one that succeeded", got)
		}
		if got := len(src.PublishedSeqs()); got != 100 {
			t.Errorf("%d events are published, want 100", got)
		}
		run.stop()
		run.wait(t)
	})
}

// If a pass finds an event that is scheduled for later, that is recorded at once, because the
// event may be due long before the lease has to be renewed.
func TestScheduledEventIsRecordedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{Lease: time.Hour}))
		after(time.Second)
		before := len(src.terms[0].records)
		src.Set(func() { src.terms[0].later = 1 })
		after(time.Second)
		if got := len(src.terms[0].records) - before; got != 1 {
			t.Errorf("%d recordings, want 1", got)
		}
		run.stop()
		run.wait(t)
	})
}

func TestWakeEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		r := relay.Over(src, &fakePublisher{}, relay.Config{IdlePoll: time.Hour, Lease: 10 * time.Hour})
		run := start(r)
		after(3 * time.Hour)
		src.Set(func() { src.terms[0].Unread = events(1) })
		r.Wake()
		after(time.Second)
		if got := len(src.PublishedSeqs()); got != 1 {
			t.Errorf("%d events are published a second after Wake, want 1", got)
		}
		run.stop()
		run.wait(t)
	})
}

func TestRunReturnsRefusalsAndWaitsOutOutages(t *testing.T) {
	refused := postroom.Unrecoverable(errors.New("set-up"))
	t.Run("by Check", func(t *testing.T) {
		src := newFakeSource()
		src.checkErr = refused
		if err := relay.Over(src, &fakePublisher{}, relay.Config{}).Run(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) {
			t.Errorf("Run = %v, want the refusal", err)
		}
	})
	t.Run("by Lead", func(t *testing.T) {
		src := newFakeSource()
		src.leadErr = refused
		if err := relay.Over(src, &fakePublisher{}, relay.Config{}).Run(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) {
			t.Errorf("Run = %v, want the refusal", err)
		}
	})
	t.Run("by the publisher", func(t *testing.T) {
		src := newFakeSource()
		err := relay.Over(src, &fakePublisher{runErr: refused}, relay.Config{}).Run(t.Context())
		if !errors.Is(err, postroom.ErrUnrecoverable) || !src.terms[0].released {
			t.Errorf("Run = %v, want the refusal, and the lease given back", err)
		}
	})
	t.Run("an outage", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			src := newFakeSource(events(1)...)
			src.checkErr = errors.New("connection refused")
			run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
			after(time.Minute)
			src.Set(func() { src.checkErr = nil })
			after(2 * time.Second)
			if got := len(src.PublishedSeqs()); got != 1 {
				t.Errorf("%d events are published after the outage, want 1", got)
			}
			run.stop()
			run.wait(t)
		})
	})
}

func TestConfigFaultsAreReportedTogether(t *testing.T) {
	r := relay.Over(newFakeSource(), &fakePublisher{}, relay.Config{Window: -1, MaxUnpublished: 1, Lease: 1, IdlePoll: 1, DrainTimeout: -1})
	for name, err := range map[string]error{"Check": r.Check(t.Context()), "Run": r.Run(t.Context())} {
		for _, field := range []string{"Window", "MaxUnpublished", "Lease", "IdlePoll", "DrainTimeout"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%s = %v, want %s in it", name, err, field)
			}
		}
	}
}

func TestSecondRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := relay.Over(newFakeSource(), &fakePublisher{}, relay.Config{})
		run := start(r)
		after(time.Second)
		if err := r.Run(t.Context()); !errors.Is(err, relay.ErrRunning) {
			t.Errorf("a second Run = %v, want ErrRunning", err)
		}
		run.stop()
		run.wait(t)
	})
}
