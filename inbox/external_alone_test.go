package inbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
)

// If a process dies during several calls, these calls are repeated at the same time. The same holds
// for accepted events, many of which no worker had begun. Only an event that was claimed at two
// deaths runs alone. Attempts that failed are no deaths.
func TestEventsOfADeadProcess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		external bool
		attempts int
		deaths   int // before the last one
		together bool
	}{
		{"calls, one death", true, 1, 0, true},
		{"calls, two deaths", true, 2, 1, false},
		{"calls, failures and one death", true, 5, 0, true},
		{"accepted events, one death", false, 1, 0, true},
		{"accepted events, two deaths", false, 2, 1, false},
		{"accepted events, failures and one death", false, 5, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var inside, most atomic.Int32
			met := make(chan struct{})
			run := func(ctx context.Context) error {
				n := inside.Add(1)
				defer inside.Add(-1)
				most.Store(max(most.Load(), n))
				if !tt.together {
					return nil
				}
				if n == 2 {
					close(met)
				}
				select {
				case <-met:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if sub := (inbox.Subscription{Name: "h", Workers: 2}); tt.external {
				b.in.HandleExternal(sub, func(ctx context.Context, _ *inbox.Attempt) error { return run(ctx) })
			} else {
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error { return run(ctx) }))
			}
			b.accept("h", "a", "b")
			b.exec("UPDATE postroom.held SET attempts = $1::int, deaths = $2::int, epoch = 7, claimed_by = 'gone', next_at = now() - interval '1 s'", tt.attempts, tt.deaths)
			b.run()
			b.waitUntilNoneHeld("h")
			if got := most.Load(); (got == 2) != tt.together {
				t.Errorf("%d ran at a time, together: %v", got, tt.together)
			}
		})
	}
}

// A process dies during an event's call, and the next call fails. The failure ends the row of deaths:
// after one more death, the event does not run alone.
func TestAFailureIsNoDeath(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1, Schedule: postroom.Backoff{time.Hour}, Attempts: 8}, func(context.Context, *inbox.Attempt) error {
		return errors.New("it fails")
	})
	b.accept("h", "a")
	die := func() {
		b.exec("UPDATE postroom.held SET claimed_by = 'gone', next_at = now() - interval '1 s'")
	}
	die()
	b.run()
	for n := 1; n <= 3; n++ {
		b.eventually("a failure", func() bool {
			var failed bool
			if err := b.pool.QueryRow(t.Context(), "SELECT coalesce(jsonb_array_length(failures) = $1, false) AND claimed_by IS NULL FROM postroom.held", n).Scan(&failed); err != nil {
				t.Fatal(err)
			}
			return failed
		})
		var alone bool
		if err := b.pool.QueryRow(t.Context(), "SELECT solitary FROM postroom.held").Scan(&alone); err != nil {
			t.Fatal(err)
		}
		if alone {
			t.Fatalf("after %d failures, each after a death, the event runs alone", n)
		}
		die()
	}
}

// A process claims more accepted events than it can run, and dies. The events that no worker had begun
// are not dead, although they may have only one attempt and failed earlier.
func TestAnEventThatNoWorkerBeganIsNotDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.DrainTimeout = time.Millisecond })
	sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: 1}
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	b.accept("h", "a", "b", "c", "d")
	stop := b.run()
	b.eventually("the claims", func() bool {
		claimed := 0
		for _, o := range b.held("h") {
			if o.State == "claimed" {
				claimed++
			}
		}
		return claimed == 4
	})
	b.exec(`UPDATE postroom.held SET epoch = epoch + 1, claimed_by = 'gone', next_at = now() - interval '1 s',
		class = 'error', failures = '[{"class": "error", "text": "it failed earlier"}]'`)
	stop()
	b.anew(nil)
	b.in.Handle(sub, effect("h"))
	b.run()
	b.eventually("the end of all", func() bool { return len(b.held("h")) == b.dead("h") })
	b.wantOnce("h", "a", "b", "c", "d")
}

// A process ends while an accepted event waits for a worker. Its handler also reads a stream. The
// event never ran, so it is not dead.
func TestAcceptedEventThatNeverRanIsNotDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Attempts, sub.Workers, sub.Timeout = 1, 1, time.Minute
	running, finish := make(chan struct{}, 10), make(chan struct{})
	h := postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "slow" {
			running <- struct{}{}
			<-finish
		}
		return effect("h").Handle(ctx, tx, ev)
	})
	b.in.Handle(sub, h)
	stop := b.run()
	b.publish("slow")
	<-running
	if _, err := b.in.Accept(t.Context(), "h", postroom.Event{ID: "a", Source: "/shop", Type: b.stream + ".placed", Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the event to be claimed", func() bool { return b.held("h")["/shop a"].State == "claimed" })
	b.exec("UPDATE postroom.held SET epoch = epoch + 1, next_at = now() + interval '3 seconds'") // the process can do nothing for the event any more, as if it had ended
	close(finish)
	stop()
	if n := len(b.effects("h")); n != 1 {
		t.Fatalf("%d effects, want that of the slow event only", n)
	}

	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(sub, h)
	b.run()
	b.eventually("the event to be dead or settled", func() bool { return b.held("h")["/shop a"].State != "claimed" })
	b.wantOnce("h", "slow", "a")
	if got := b.held("h"); len(got) > 0 {
		t.Errorf("held: %v, and no worker ever began the event", got)
	}
}

// A process that claimed the last attempt of an accepted event has ended. The guarantees say that the
// event gets one more attempt if its handler reads no stream. That includes an external handler.
func TestOneMoreAttemptOfAnExternalHandlerWithoutAStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.HandleExternal(inbox.Subscription{Name: "h", Attempts: 1, Workers: 1}, func(_ context.Context, a *inbox.Attempt) error {
		a.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("h").Handle(ctx, tx, a.Event) })
		return nil
	})
	if _, err := b.in.Accept(t.Context(), "h", postroom.Event{ID: "a", Source: "/shop", Type: "t", Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE postroom.held SET attempts = 1, epoch = 1, claimed_by = 'gone', next_at = now()")
	b.run()
	b.eventually("the event to end", func() bool { return b.dead("h") == 1 || len(b.held("h")) == 0 })
	b.wantOnce("h", "a")
}

// A process ended that had claimed an accepted event, and an operator reschedules the event. It still
// gets the further attempt that the guarantees promise, because perhaps no worker had begun it.
func TestRescheduledEventThatNeverRanIsNotDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "h", Attempts: 1, Workers: 1}, effect("h"))
	if _, err := b.in.Accept(t.Context(), "h", postroom.Event{ID: "a", Source: "/shop", Type: "t", Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE postroom.held SET attempts = 1, epoch = 1, claimed_by = 'gone', next_at = now()")
	s := held.NewStore(b.pool, "postroom")
	set, err := s.Select(t.Context(), held.Filter{Handler: "h"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := s.Reschedule(t.Context(), set, time.Now(), postroom.Audit{Actor: "ann", Reason: "later"}, nil); err != nil || done.Events != 1 {
		t.Fatal(done, err)
	}
	b.run()
	b.eventually("the event to end", func() bool { return b.dead("h") == 1 || len(b.held("h")) == 0 })
	b.wantOnce("h", "a")
}

// An event must run alone while a long call is under way. The other events do not wait for the call.
func TestOthersDoNotWaitForAnEventThatRunsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calling, end := make(chan struct{}), make(chan struct{})
	b.in.HandleExternal(inbox.Subscription{Name: "external", Workers: 2}, func(ctx context.Context, _ *inbox.Attempt) error {
		close(calling)
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	b.in.Handle(inbox.Subscription{Name: "h", Workers: 1}, effect("h"))
	b.in.Handle(inbox.Subscription{Name: "alone", Workers: 1}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		select {
		case <-end:
		default:
			t.Error("the event runs beside a call that began less than a minute ago")
		}
		return effect("alone").Handle(ctx, tx, ev)
	}))
	b.accept("external", "a")
	b.accept("alone", "poison")
	b.exec("UPDATE postroom.held SET solitary = true, next_at = now() + interval '1 hour' WHERE handler = 'alone'")
	b.run()
	<-calling
	b.exec("UPDATE postroom.held SET next_at = now() WHERE handler = 'alone'") // the next Accept wakes the inbox
	for _, id := range ids("h", 5) {
		b.accept("h", id)
		b.eventually("its effect", func() bool { return b.effects("h")[id] == 1 })
	}
	close(end)
	b.eventually("the effect of the event that runs alone", func() bool { return b.effects("alone")["poison"] == 1 })
}

// An event that may end the process waits until it can run alone. Meanwhile a slow run of another
// handler stops no third handler.
func TestAnEventThatMustRunAloneBehindASlowOneStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"a delivery is slow", "a held event is slow"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			running, finish := make(chan struct{}, 1), make(chan struct{})
			defer close(finish)
			slow := inbox.Subscription{Name: "slow", Workers: 1, Timeout: 30 * time.Minute}
			if way == "a delivery is slow" {
				slow.Stream, slow.Types = b.stream, []string{b.stream + ".slow"}
			}
			b.in.Handle(slow, postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
				running <- struct{}{}
				select {
				case <-finish:
				case <-ctx.Done():
				}
				return nil
			}))
			b.in.Handle(inbox.Subscription{Name: "poison", Workers: 1}, effect("poison"))
			b.in.Handle(b.subscription("other"), effect("other"))
			b.run()
			if way == "a delivery is slow" {
				b.publishEvent(postroom.Event{ID: "s", Source: "/shop", Type: b.stream + ".slow", Data: []byte("1")})
			} else if _, err := b.in.Accept(t.Context(), "slow", postroom.Event{ID: "s", Source: "/shop", Type: "t", Data: []byte("1")}); err != nil {
				t.Fatal(err)
			}
			<-running
			b.publish("before")
			b.eventually("an event before", func() bool { return b.effects("other")["before"] == 1 })

			tx, err := b.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.in.AcceptTx(t.Context(), tx, inbox.Acceptance{Handler: "poison", Event: postroom.Event{ID: "p", Source: "/shop", Type: "t", Data: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "UPDATE postroom.held SET solitary = true WHERE handler = 'poison'"); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // the runner has seen the event: that cannot be observed
			b.publish("after")
			if _, err := b.in.Accept(t.Context(), "other", postroom.Event{ID: "held", Source: "/shop", Type: b.stream + ".placed", Data: []byte("1")}); err != nil {
				t.Fatal(err)
			}
			devtest.Eventually(t, 2*time.Second, "the events of the third handler", func() bool { return len(b.effects("other")) == 3 })
		})
	}
}
