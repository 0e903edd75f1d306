package inbox_test

import (
	"context"
	"errors"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// The context of a step has ended, so its call is not made. The same attempt may run the step again.
func TestAnAttemptRunsAStepAgainAfterACallThatWasNotMade(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	got := externally(b, nil, func(ctx context.Context, attempt *inbox.Attempt) error {
		short, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := inbox.Step(short, attempt, "charge", v.charge); !errors.Is(err, context.Canceled) {
			t.Errorf("a step whose context has ended: %v", err)
		}
		return charging(v)(ctx, attempt)
	})
	if got != (heldEntry{}) || v.total() != 1 {
		t.Errorf("held: %+v after %d calls, want it done after one: %s", got, v.total(), b.failure("/shop e"))
	}
}

// The database does not record that a call was not made. When it records again, the same attempt
// may run the step again.
func TestAnAttemptRunsAStepAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	do := func(sql string) {
		if _, err := b.pool.Exec(t.Context(), sql); err != nil {
			t.Error(err)
		}
	}
	got := externally(b, nil, func(ctx context.Context, attempt *inbox.Attempt) error {
		short, cancel := context.WithCancel(ctx)
		_, err := inbox.Step(short, attempt, "charge", func(context.Context, string) (string, error) {
			do("ALTER TABLE postroom.receipt RENAME TO gone")
			cancel()
			return "", postroom.NotApplied(errors.New("no such card"))
		})
		if err == nil {
			t.Error("a call that was not made is done")
		}
		do("ALTER TABLE postroom.gone RENAME TO receipt")
		return charging(v)(ctx, attempt)
	})
	if got != (heldEntry{}) || v.total() != 1 {
		t.Errorf("held: %+v after %d calls, want it done after one: %s", got, v.total(), b.failure("/shop e"))
	}
}

// A handler goes on without a step whose call was not made, and then its event cannot be settled.
func TestACallThatWasNotMadeIsTakenBackAfterASuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t)
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1, Schedule: postroom.Backoff{time.Millisecond}, Attempts: 8}, func(ctx context.Context, attempt *inbox.Attempt) error {
		if attempt.Number > 1 {
			return charging(v)(ctx, attempt)
		}
		short, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := inbox.Step(short, attempt, "charge", v.charge); !errors.Is(err, context.Canceled) {
			t.Errorf("a step whose context has ended: %v", err)
		}
		attempt.OnSuccess(func(context.Context, pgx.Tx) error { return errors.New("not now") })
		return nil
	})
	b.accept("h", "e")
	b.run()
	b.eventually("an end", func() bool { return len(b.held("h")) == 0 || b.dead("h") == 1 })
	if got := b.held("h")["/shop e"]; got != (heldEntry{}) || v.total() != 1 {
		t.Errorf("held: %+v after %d calls, want it done after one: %s", got, v.total(), b.failure("/shop e"))
	}
}

// A step fails, and its error becomes the cause for which the context of another step ends. The
// other step's client returns this cause, which says nothing about the other step's call.
func TestTheCauseOfAContextSaysNothingAboutACall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t, hanging)
	h := func(ctx context.Context, attempt *inbox.Attempt) error {
		both, cancel := context.WithCancelCause(ctx) // as an errgroup does
		defer cancel(nil)
		called := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			_, err := inbox.Step(both, attempt, "reserve", func(context.Context, string) (string, error) {
				<-called
				return "", postroom.NotApplied(errors.New("there is no room"))
			})
			cancel(err)
		})
		_, err := inbox.Step(both, attempt, "charge", func(ctx context.Context, key string) (string, error) {
			sent := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(called) }}
			return v.charge(httptrace.WithClientTrace(ctx, sent), key)
		})
		all.Wait()
		return err
	}
	got := externally(b, nil, h)
	if rows := b.receipts("h"); len(rows) != 1 || rows[0].Step != "charge" || rows[0].Unanswered != 1 {
		t.Errorf("receipts: %+v, want the call whose outcome is not known; held: %+v, %s", rows, got, b.failure("/shop e"))
	}
}

// A step has no function. Nothing is called, and no person has to ask a vendor.
func TestAStepWithoutAFunction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	got := externally(b, nil, func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step[string](ctx, attempt, "charge", nil)
		return err
	})
	if rows := b.receipts("h"); got.Class != "panic" || len(rows) != 0 || !strings.Contains(b.failure("/shop e"), "step charge has no function") {
		t.Errorf("held: %+v, %s; receipts: %+v", got, b.failure("/shop e"), rows)
	}
}
