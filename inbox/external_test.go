package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

func TestExternalHandlerCallsAndSettles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // so that no event is delivered again
	b.in.HandleExternal(b.subscription("h"), charging(v))
	b.run()
	for i := range 50 {
		b.publish(fmt.Sprintf("e%d", i))
	}
	b.publish("e0") // again
	b.eventually("50 effects", func() bool { return len(b.effects("h")) == 50 })
	b.drained()
	if got := v.seen(); len(got) != 50 {
		t.Errorf("%d keys were seen, want 50", len(got))
	}
	for key, n := range v.seen() {
		if n != 1 || len(key) != 32 {
			t.Errorf("key %s was called %d times", key, n)
		}
	}
	b.waitUntilNoneHeld("h")
	b.eventually("all to be counted", func() bool { return b.counted("h", "done")+b.counted("h", "duplicate") >= 51 })
	if done, duplicates := b.counted("h", "done"), b.counted("h", "duplicate"); done != 50 || duplicates != 1 {
		t.Errorf("%d done and %d duplicates, want 50 and one", done, duplicates)
	}
}

// The event is held, and its message is acknowledged, while the call still runs.
func TestAMessageIsAcknowledgedBeforeTheCallEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	entered, resume := make(chan string, 10), make(chan struct{})
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // so that the message would stay unacknowledged
	b.in.HandleExternal(b.subscription("h"), blocking(v, entered, resume))
	b.run()
	b.publish("e")
	devtest.Receive(t, time.Minute, "the call", entered)
	b.drained()
	if got, want := b.held("h")["/shop e"], (heldEntry{Key: "/shop e", State: "claimed", Attempts: 1}); got != want {
		t.Errorf("held: %+v, want %+v", got, want)
	}
	close(resume)
	b.waitUntilNoneHeld("h")
	b.wantOnce("h", "e")
}

// externally accepts one event and runs an external handler for it, until it is settled or
// waits an hour for its next attempt.
func externally(b *bench, change func(*inbox.Subscription), h inbox.ExternalHandler) heldEntry {
	b.Helper()
	sub := inbox.Subscription{Name: "h", Workers: 2, Schedule: postroom.Backoff{time.Hour}, Attempts: 8}
	if change != nil {
		change(&sub)
	}
	b.in.HandleExternal(sub, h)
	b.accept("h", "e")
	b.run()
	b.eventually("an end", func() bool { held := b.held("h"); return len(held) == 0 || held["/shop e"].Class != "" })
	return b.held("h")["/shop e"]
}

func TestStepsOfOneHandler(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	var late *inbox.Attempt
	o := externally(b, nil, func(ctx context.Context, attempt *inbox.Attempt) error {
		late = attempt
		first, err := inbox.Step(ctx, attempt, "charge", v.charge)
		again, err2 := inbox.Step(ctx, attempt, "charge", v.charge)
		other, err3 := inbox.Step(ctx, attempt, "mail", v.charge)
		if first != again || first == other {
			t.Errorf("results: %s, again %s, other %s", first, again, other)
		}
		errs := []error{err, err2, err3}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, err := inbox.Step(ctx, attempt, fmt.Sprint("of many ", i), v.charge)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		all.Wait()
		empty, err := inbox.Step(ctx, attempt, "nothing", func(context.Context, string) ([]byte, error) { return []byte{}, nil })
		if len(empty) > 0 {
			t.Errorf("no result: %q", empty)
		}
		return errors.Join(append(errs, err)...)
	})
	if o != (heldEntry{}) {
		t.Errorf("held: %+v, %s", o, b.failure("/shop e"))
	}
	if got := v.seen(); len(got) != 22 || v.total() != 22 {
		t.Errorf("the vendor saw %v, want each of 22 keys once", got)
	}
	if _, err := inbox.Step(t.Context(), late, "late", v.charge); err == nil || !strings.Contains(err.Error(), "the attempt is over") || v.total() != 22 {
		t.Errorf("a step after the attempt: %v", err)
	}
	late.OnSuccess(func(context.Context, pgx.Tx) error { t.Error("called after the attempt"); return nil })
}

// While a step runs, the same step cannot begin a second time.
func TestAStepIsBusy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	o := externally(b, nil, func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step(ctx, attempt, "charge", func(ctx context.Context, key string) (string, error) {
			if _, err := inbox.Step(ctx, attempt, "charge", v.charge); err == nil || !strings.Contains(err.Error(), "under way") {
				t.Errorf("the step within itself: %v", err)
			}
			return v.charge(ctx, key)
		})
		return err
	})
	if o != (heldEntry{}) || v.total() != 1 {
		t.Errorf("held: %+v; %d calls", o, v.total())
	}
}

func TestHowExternalHandlersFail(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	uncalled := func(context.Context, string) ([]byte, error) { t.Error("called"); return nil, nil }
	step := func(name string, f func(ctx context.Context, key string) ([]byte, error)) inbox.ExternalHandler {
		return func(ctx context.Context, attempt *inbox.Attempt) error {
			_, err := inbox.Step(ctx, attempt, name, f)
			return err
		}
	}
	fail := func(err error) inbox.ExternalHandler {
		return func(context.Context, *inbox.Attempt) error { return err }
	}
	settle := func(f func(ctx context.Context, tx pgx.Tx) error) inbox.ExternalHandler {
		return func(_ context.Context, attempt *inbox.Attempt) error {
			attempt.OnSuccess(noting("h", "undone"))
			attempt.OnSuccess(f)
			return nil
		}
	}
	short := func(s *inbox.Subscription) { s.Timeout = 50 * time.Millisecond }
	tests := []struct {
		name   string
		sub    func(*inbox.Subscription)
		h      inbox.ExternalHandler
		want   heldEntry
		reason string // in the failure
	}{
		{"an error", nil, fail(wrong), heldEntry{State: "due", Attempts: 1, Class: "error"}, "wrong"},
		{"the last attempt", func(s *inbox.Subscription) { s.Attempts = 1 }, fail(wrong), heldEntry{State: "dead", Attempts: 1, Class: "error"}, "wrong"},
		{"permanent", nil, fail(postroom.Permanent(wrong)), heldEntry{State: "dead", Attempts: 1, Class: "permanent"}, "wrong"},
		{"a panic", nil, func(context.Context, *inbox.Attempt) error { panic("no") }, heldEntry{State: "due", Attempts: 1, Class: "panic"}, "no"},
		{"an end of the goroutine", nil, func(context.Context, *inbox.Attempt) error { runtime.Goexit(); return nil }, heldEntry{State: "due", Attempts: 1, Class: "panic"}, "Goexit"},
		{
			"a handler that ignores its context", short, func(context.Context, *inbox.Attempt) error { devtest.Forever(); return nil },
			heldEntry{State: "due", Attempts: 1, Class: "timeout"},
			"abandoned",
		},
		{
			"a handler that waits for its context", short, func(ctx context.Context, _ *inbox.Attempt) error { <-ctx.Done(); return ctx.Err() },
			heldEntry{State: "due", Attempts: 1, Class: "timeout"},
			"in time",
		},
		{
			"a panic in a step", nil, step("charge", func(context.Context, string) ([]byte, error) { panic("no") }),
			heldEntry{State: "due", Attempts: 1, Class: "panic"},
			"no",
		},
		{
			"permanent, and not done", nil,
			step("charge", func(context.Context, string) ([]byte, error) {
				return nil, postroom.Permanent(postroom.NotApplied(wrong))
			}),
			heldEntry{State: "dead", Attempts: 1, Class: "permanent"},
			"wrong",
		},
		{"a step without a name", nil, step("", uncalled), heldEntry{State: "due", Attempts: 1, Class: "error"}, "name"},
		{"a step with a long name", nil, step(strings.Repeat("x", 129), uncalled), heldEntry{State: "due", Attempts: 1, Class: "error"}, "name"},
		{"a step with no text as its name", nil, step("a\xff", uncalled), heldEntry{State: "due", Attempts: 1, Class: "error"}, "name"},
		{"an error when it settles", nil, settle(func(context.Context, pgx.Tx) error { return wrong }), heldEntry{State: "due", Attempts: 1, Class: "error"}, "wrong"},
		{"a panic when it settles", nil, settle(func(context.Context, pgx.Tx) error { panic("no") }), heldEntry{State: "due", Attempts: 1, Class: "panic"}, "no"},
		{
			"permanent when it settles", nil, settle(func(context.Context, pgx.Tx) error { return postroom.Permanent(wrong) }),
			heldEntry{State: "dead", Attempts: 1, Class: "permanent"},
			"wrong",
		},
		{
			"a statement when it settles", nil, settle(func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "SELECT 1/0"); return nil }),
			heldEntry{State: "due", Attempts: 1, Class: "error"},
			"did not return its error",
		},
		{
			"a constraint when it settles", nil, settle(func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO postroom.sweep DEFAULT VALUES")
				return err
			}), heldEntry{State: "due", Attempts: 1, Class: "23505"}, "23505",
		},
		{
			"settling takes too long", short, settle(func(context.Context, pgx.Tx) error { devtest.Forever(); return nil }),
			heldEntry{State: "due", Attempts: 1, Class: "timeout"},
			"abandoned",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			tt.want.Key, tt.want.Failures = "/shop e", 1
			if got := externally(b, tt.sub, tt.h); got != tt.want {
				t.Errorf("held: %+v, want %+v", got, tt.want)
			}
			if got := b.failure("/shop e"); !strings.Contains(got, tt.reason) {
				t.Errorf("failure: %q, want %q in it", got, tt.reason)
			}
			b.wantOnce("h")
		})
	}
}

// An event is dead when its attempts are used up. If an operator makes it due, the results of
// earlier steps are still known.
func TestExternalAttemptsAreSpent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	var mended atomic.Bool
	sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: 3, Schedule: postroom.Backoff{10 * time.Millisecond}}
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		if err := charging(v)(ctx, attempt); err != nil || mended.Load() {
			return err
		}
		return errors.New("not now")
	})
	b.accept("h", "e")
	b.run()
	b.eventually("its death", func() bool { return b.dead("h") == 1 })
	want := heldEntry{Key: "/shop e", State: "dead", Attempts: 3, Class: "error", Failures: 3}
	if got := b.held("h")["/shop e"]; got != want {
		t.Errorf("held: %+v, want %+v", got, want)
	}
	b.wantOnce("h")
	mended.Store(true)
	b.overrideDeadNextAtAndAttempts("h", "/shop e")
	b.waitUntilNoneHeld("h")
	if len(b.effects("h")) != 1 || v.total() != 1 {
		t.Errorf("effects %v, %d calls, want one of each", b.effects("h"), v.total())
	}
}

func TestExternalHandlerChoosesItsNextAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := externally(b, func(s *inbox.Subscription) { s.Schedule, s.Attempts = postroom.Backoff{time.Minute}, 8 }, func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step(ctx, attempt, "charge", func(context.Context, string) ([]byte, error) {
			return nil, postroom.RetryAfter(24*time.Hour, postroom.NotApplied(errors.New("too many requests")))
		})
		return err
	})
	var wait float64
	if err := b.pool.QueryRow(t.Context(), "SELECT extract(epoch FROM next_at - now())::float8 FROM postroom.held").Scan(&wait); err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(wait * float64(time.Second)); o.State != "due" || got < 23*time.Hour {
		t.Errorf("held: %+v, due in %s, want a day", o, got)
	}
	if got := b.receipts("h"); len(got) > 0 {
		t.Errorf("receipts of calls that did not happen: %+v", got)
	}
}

// If the settlement fails, it leaves no effect, and the calls before it are not repeated.
func TestSettlingFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	var attempts atomic.Int32
	sub := inbox.Subscription{Name: "h", Workers: 1, Schedule: postroom.Backoff{10 * time.Millisecond}, Attempts: 8}
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		for _, name := range []string{"charge", "mail"} {
			if _, err := inbox.Step(ctx, attempt, name, v.charge); err != nil {
				return err
			}
		}
		attempt.OnSuccess(noting("h", attempt.Event.ID+" first"))
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error {
			if err := noting("h", attempt.Event.ID+" second")(ctx, tx); err != nil {
				return err
			}
			if attempts.Add(1) <= 2 {
				return errors.New("not now")
			}
			return nil
		})
		return nil
	})
	b.accept("h", "e")
	b.run()
	b.waitUntilNoneHeld("h")
	b.wantOnce("h", "e first", "e second")
	if got := v.seen(); len(got) != 2 || v.total() != 2 || attempts.Load() != 3 {
		t.Errorf("the vendor saw %v in %d attempts, want two keys once in three", got, attempts.Load())
	}
	rows := b.receipts("h")
	if len(rows) != 2 || slices.ContainsFunc(rows, func(r receipt) bool { return !r.Done || r.Result != "ch_"+r.Key }) {
		t.Errorf("receipts: %+v", rows)
	}
}

func TestCheckRefusesExternal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	nothing := func(context.Context, *inbox.Attempt) error { return nil }
	external := func(change func(*inbox.Subscription)) func(*inbox.Inbox) {
		return func(in *inbox.Inbox) {
			sub := inbox.Subscription{Name: "h"}
			change(&sub)
			in.HandleExternal(sub, nothing)
		}
	}
	many := func(n int) func(*inbox.Inbox) {
		return func(in *inbox.Inbox) {
			for i := range n {
				in.HandleExternal(inbox.Subscription{Name: fmt.Sprint("h", i)}, nothing)
			}
		}
	}
	room := int(b.pool.Config().MaxConns)
	tests := []struct {
		name     string
		register func(*inbox.Inbox)
		want     string // in the error; if empty, it passes
	}{
		{"many workers, which need few connections", external(func(s *inbox.Subscription) { s.Workers = 1000 }), ""},
		{"as many as there is room for", many((room - 2) / 4), ""},
		{"more than there is room for", many((room-2)/4 + 1), "pool_max_conns"},
		{"a batch", external(func(s *inbox.Subscription) { s.Batch = 2 }), "Batch"},
		{"a negative window", external(func(s *inbox.Subscription) { s.VendorWindow = -1 }), "VendorWindow"},
		{"a window without calls", func(in *inbox.Inbox) {
			in.Handle(inbox.Subscription{Name: "h", Workers: 1, VendorWindow: time.Hour}, effect("h"))
		}, "VendorWindow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := inbox.New(b.pool, nil, inbox.Config{})
			tt.register(in)
			err := in.Check(t.Context())
			if tt.want == "" && err != nil {
				t.Errorf("Check = %v", err)
			}
			if tt.want != "" && (!errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Check = %v, want a refusal that names %s", err, tt.want)
			}
		})
	}
	defer func() {
		if recover() == nil {
			t.Error("no handler, and no panic")
		}
	}()
	b.in.HandleExternal(inbox.Subscription{Name: "none"}, nil)
}
