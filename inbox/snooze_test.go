package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// snoozes counts the runs of each event, and snoozes an event until its nth run.
type snoozes struct {
	mu   sync.Mutex
	runs map[string]int
	n    int
}

func (s *snoozes) run(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string]int{}
	}
	s.runs[id]++
	if s.runs[id] < s.n {
		return postroom.Snooze(time.Millisecond, errors.New("the vendor is away"))
	}
	return nil
}

func (s *snoozes) of(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id]
}

// An event that is snoozed more often than it has attempts is still handled, by every kind of
// handler.
func TestSnoozesAreNoAttempts(t *testing.T) {
	t.Parallel()
	const n = 12 // attempts are 5
	kinds := map[string]func(b *bench, s *snoozes){
		"transactional": func(b *bench, s *snoozes) { b.in.Handle(b.subscription("h"), snoozing(s)) },
		"in batches": func(b *bench, s *snoozes) {
			sub := b.subscription("h")
			sub.Batch = 10
			b.in.Handle(sub, snoozing(s))
		},
		"ordered": func(b *bench, s *snoozes) {
			sub := b.subscription("h")
			sub.Order = inbox.HoldKey
			b.in.Handle(sub, snoozing(s))
		},
		"external": func(b *bench, s *snoozes) {
			b.in.HandleExternal(b.subscription("h"), func(_ context.Context, attempt *inbox.Attempt) error {
				if attempt.Number != 1 {
					b.Errorf("attempt %d of an event that was only snoozed", attempt.Number)
				}
				attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("h").Handle(ctx, tx, attempt.Event) })
				return s.run(attempt.Event.ID)
			})
		},
	}
	for name, handle := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := newBench(t), &snoozes{n: n}
			handle(b, s)
			b.run()
			var ids []string
			for i := range 5 {
				ids = append(ids, fmt.Sprint("e", i))
				b.publishEvent(postroom.Event{ID: ids[i], Source: "/shop", Type: b.stream + ".placed", Key: "k", ContentType: "text/plain", Data: []byte("x")})
			}
			b.eventually("all effects", func() bool { return len(b.effects("h")) == len(ids) })
			b.wantOnce("h", ids...)
			if got := s.of("e0"); got < n {
				t.Errorf("the first event ran %d times, want %d", got, n)
			}
			if got := b.counted("h", "dead"); got != 0 {
				t.Errorf("%d events are dead", got)
			}
		})
	}
}

func snoozing(s *snoozes) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		return errors.Join(effect("h").Handle(ctx, tx, ev), s.run(ev.ID))
	})
}

// A snooze is recorded as no attempt, and as one failure however often it repeats. If another
// failure comes, it counts, and ends the time during which the event was only snoozed.
func TestSnoozesAreRecordedAsOneFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	next := make(chan error)
	sub := b.subscription("h")
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
		select {
		case err := <-next:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	b.run()
	b.publish("e")
	snooze := postroom.Snooze(time.Millisecond, errors.New("away"))
	for i, step := range []struct {
		err      error
		attempts int
		failures int
		snoozed  bool
	}{
		{errors.New("no"), 1, 1, false},
		{snooze, 1, 2, true},
		{snooze, 1, 2, true},
		{snooze, 1, 2, true},
		{postroom.RetryAfter(time.Millisecond, errors.New("no")), 2, 3, false},
		{snooze, 2, 4, true},
	} {
		select {
		case next <- step.err:
		case <-time.After(devtest.Patience(t, 20*time.Second)):
			t.Fatalf("step %d: the event was not run", i)
		}
		var attempts, failures int
		var snoozed bool
		b.eventually(fmt.Sprintf("step %d to be recorded", i), func() bool {
			err := b.pool.QueryRow(t.Context(), `SELECT attempts - (claimed_by IS NOT NULL)::int, jsonb_array_length(failures), snoozed_at IS NOT NULL
				FROM postroom.held WHERE handler = 'h' AND class IS NOT NULL`).Scan(&attempts, &failures, &snoozed)
			return err == nil && attempts == step.attempts && failures == step.failures && snoozed == step.snoozed
		})
	}
	next <- nil
	b.eventually("its end", func() bool { return len(b.held("h")) == 0 })
}

// If an event was only snoozed for a whole day, its further snoozes count as attempts.
func TestSnoozesCountAfterADay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
		return postroom.Snooze(time.Millisecond, errors.New("away"))
	}))
	b.run()
	b.publish("e")
	b.eventually("it to be snoozed", func() bool { return b.held("h")["/shop e"].Class == "snoozed" })
	b.exec("UPDATE postroom.held SET snoozed_at = now() - interval '23 hours 50 minutes'")
	before := b.counted("h", "held")
	b.eventually("it to be snoozed again", func() bool { return b.counted("h", "held") > before+20 })
	if o := b.held("h")["/shop e"]; o.State == "dead" || o.Attempts > 1 { // 1 while it runs
		t.Fatalf("after less than a day it is %+v", o)
	}
	b.exec("UPDATE postroom.held SET snoozed_at = now() - interval '24 hours 1 second'")
	b.eventually("its death", func() bool { return b.dead("h") == 1 })
	if o := b.held("h")["/shop e"]; o.Attempts != 5 || o.Class != "snoozed" {
		t.Errorf("it is %+v, want 5 attempts", o)
	}
}

// discarded is a row of the archive with its audit.
type discarded struct {
	Key, Class, Actor, Action, Reason, Event, Handler string
	Data                                              string
	Events                                            int
}

func (b *bench) discarded(name string) []discarded {
	b.Helper()
	rows, _ := b.pool.Query(b.Context(), `
		SELECT r.dedupe_key, r.class, a.actor, a.action, a.reason, a.event_id, a.handler, convert_from(r.data, 'UTF8'), a.events
		FROM postroom.archive r JOIN postroom.audit a ON a.id = r.audit WHERE r.handler = $1 ORDER BY r.id`, name)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[discarded])
	if err != nil {
		b.Fatal(err)
	}
	return all
}

// A handler discards an event: at its first attempt or a later one, in a batch or beside
// others. The event is in the archive, with a row of audit. Its effect is undone, and a second
// delivery does nothing.
func TestHandlersDiscardEvents(t *testing.T) {
	t.Parallel()
	decide := func(number int) error {
		if number == 1 {
			return errors.New("not yet")
		}
		return postroom.Discard("the order was cancelled")
	}
	kinds := map[string]func(b *bench){
		"at once": func(b *bench) { b.in.Handle(b.subscription("h"), discarding(func(string) error { return decide(2) })) },
		"later": func(b *bench) {
			var mu sync.Mutex
			runs := map[string]int{}
			b.in.Handle(b.subscription("h"), discarding(func(id string) error {
				mu.Lock()
				defer mu.Unlock()
				runs[id]++
				return decide(runs[id])
			}))
		},
		"in batches": func(b *bench) {
			sub := b.subscription("h")
			sub.Batch = 10
			b.in.Handle(sub, discarding(func(string) error { return decide(2) }))
		},
		"external": func(b *bench) {
			b.in.HandleExternal(b.subscription("h"), func(_ context.Context, attempt *inbox.Attempt) error {
				attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("h").Handle(ctx, tx, attempt.Event) })
				if attempt.Event.ID == "good" {
					return nil
				}
				return decide(attempt.Number)
			})
		},
	}
	for name, handle := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			handle(b)
			b.run()
			b.publish("bad", "good", "bad")
			b.eventually("an effect, and a row of the archive", func() bool { return len(b.effects("h")) == 1 && len(b.discarded("h")) == 1 })
			b.publish("bad") // decided
			b.drained()
			b.eventually("nothing to be held", func() bool { return len(b.held("h")) == 0 })
			b.wantOnce("h", "good")
			want := discarded{
				Key: "/shop bad", Class: "discarded", Actor: "handler", Action: "discard", Reason: "the order was cancelled",
				Event: "bad", Handler: "h", Data: `"bad"`, Events: 1,
			}
			if got := b.discarded("h"); len(got) != 1 || got[0] != want {
				t.Errorf("discarded: %+v, want %+v", got, want)
			}
			b.eventually("one to be counted, which happens after the commit", func() bool { return b.counted("h", "discarded") == 1 })
		})
	}
}

func discarding(decide func(id string) error) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		err := effect("h").Handle(ctx, tx, ev)
		if ev.ID == "good" {
			return err
		}
		return errors.Join(err, decide(ev.ID))
	})
}

// If a handler discards an event, the later events of the key go on. That is so even if the
// discarded event failed before, so that the others already wait behind it.
func TestAKeyGoesOnAfterADiscardedEvent(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("at its first attempt: %v", first), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var failed sync.Once
			sub := b.ordered("h", inbox.HoldKey)
			sub.Schedule, sub.Attempts = postroom.Backoff{300 * time.Millisecond}, 8
			b.in.Handle(sub, discarding(func(string) (err error) {
				err = postroom.Discard("cancelled")
				failed.Do(func() {
					if !first {
						err = errors.New("not yet")
					}
				})
				return err
			}))
			b.run()
			for i, id := range []string{"bad", "good", "good"} {
				b.publishEvent(postroom.Event{ID: id, Source: fmt.Sprint("/shop", i), Type: b.stream + ".placed", Key: "k", ContentType: "text/plain", Data: []byte("x")})
			}
			b.eventually("the effects behind it", func() bool { return b.effects("h")["good"] == 2 })
			b.eventually("nothing to be held", func() bool { return len(b.held("h")) == 0 && len(b.discarded("h")) == 1 })
			if n := b.counted("h", "held"); first && n > 0 {
				t.Errorf("%d events were held behind it", n)
			}
		})
	}
}

// Classify decides what errors mean, for every kind of handler.
func TestClassify(t *testing.T) {
	t.Parallel()
	errGone, errBad, errOld := errors.New("gone"), errors.New("bad"), errors.New("old")
	classify := func(err error) error {
		switch {
		case errors.Is(err, errGone):
			return postroom.Snooze(time.Millisecond, err)
		case errors.Is(err, errBad):
			return postroom.Permanent(err)
		case errors.Is(err, errOld):
			return postroom.Discard("too old")
		}
		return nil
	}
	for _, external := range []bool{false, true} {
		t.Run(fmt.Sprintf("external: %v", external), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var mu sync.Mutex
			runs := map[string]int{}
			decide := func(id string) error {
				mu.Lock()
				defer mu.Unlock()
				runs[id]++
				switch {
				case id == "gone" && runs[id] < 10:
					return fmt.Errorf("call: %w", errGone)
				case id == "bad":
					return fmt.Errorf("call: %w", errBad)
				case id == "old":
					return errOld
				case id == "other":
					return errors.New("other")
				case id == "panics":
					panic("no")
				}
				return nil
			}
			sub := b.subscription("h")
			sub.Classify = classify
			if external {
				b.in.HandleExternal(sub, func(_ context.Context, attempt *inbox.Attempt) error { return decide(attempt.Event.ID) })
			} else {
				b.in.Handle(sub, postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error { return decide(ev.ID) }))
			}
			b.run()
			b.publish("gone", "bad", "old", "other", "panics")
			b.eventually("all to end", func() bool { return b.counted("h", "done") == 1 && b.dead("h") == 3 && len(b.discarded("h")) == 1 })
			held := b.held("h")
			for id, want := range map[string]heldEntry{"bad": {Class: "permanent", Attempts: 1}, "other": {Class: "error", Attempts: 5}, "panics": {Class: "panic", Attempts: 5}} {
				if got := held["/shop "+id]; got.Class != want.Class || got.Attempts != want.Attempts {
					t.Errorf("%s: %+v, want %+v", id, got, want)
				}
			}
		})
	}
}

// Classify is called only for failed attempts, and cannot turn a failure into success.
func TestClassifyIsCalledOnlyForFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var mu sync.Mutex
	runs, asked := 0, []string{}
	sub := b.subscription("h")
	sub.Classify = func(err error) error {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, err.Error())
		return postroom.Permanent(errors.New("said by Classify"))
	}
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		mu.Lock()
		runs++
		n := runs
		mu.Unlock()
		if n <= 3 {
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE SQLSTATE '"+[]string{"40001", "40P01", "53300"}[n-1]+"'; END $$")
			return err
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.run()
	b.publish("e")
	b.eventually("its effect", func() bool { return len(b.effects("h")) == 1 })
	mu.Lock()
	defer mu.Unlock()
	if len(asked) > 0 {
		t.Errorf("Classify was asked about %q", asked)
	}
}
