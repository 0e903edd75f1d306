package inbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// result returns the result that a handler stored with an event.
func (b *bench) result(handler, key string) (text string) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), "SELECT coalesce(result, '') FROM postroom.inbox WHERE handler = $1 AND dedupe_key = $2", handler, key).Scan(&text); err != nil {
		b.Fatal(err)
	}
	return text
}

// says is a handler that fails once for each event whose id begins with "again", and then
// says which event it handled.
func says(name string) postroom.Handler {
	var calls atomic.Int64
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		postroom.SetResult(ctx, "began with "+ev.ID)
		if strings.HasPrefix(ev.ID, "again") && calls.Add(1) == 1 {
			return errFails
		}
		postroom.SetResult(ctx, "handled "+ev.ID)
		return effect(name).Handle(ctx, tx, ev)
	})
}

// A handler's result is stored with the event, for every kind of handler.
func TestResult(t *testing.T) {
	t.Parallel()
	ways := map[string]func(sub *inbox.Subscription){
		"plain":   func(*inbox.Subscription) {},
		"batch":   func(sub *inbox.Subscription) { sub.Batch = 10 },
		"ordered": func(sub *inbox.Subscription) { sub.Order = inbox.HoldKey },
	}
	for way, change := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.subscription("h")
			change(&sub)
			b.in.Handle(sub, says("h"))
			b.publish("first", "again", "last")
			b.run()
			b.eventually("the effects", func() bool { return len(b.effects("h")) == 3 && len(b.held("h")) == 0 })
			for _, id := range []string{"first", "again", "last"} {
				if got := b.result("h", "/shop "+id); got != "handled "+id {
					t.Errorf("result of %s: %q", id, got)
				}
			}
		})
	}
}

// The result is also stored for a handler without a stream, alone or in a batch, and for an
// external handler. If the handler sets no result, or fails, none is stored.
func TestResultOfAcceptedEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "alone", Workers: 1}, says("alone"))
	b.in.Handle(inbox.Subscription{Name: "batch", Workers: 1, Batch: 10}, says("batch"))
	b.in.Handle(inbox.Subscription{Name: "silent", Workers: 1}, effect("silent"))
	b.in.Handle(inbox.Subscription{Name: "fails", Workers: 1, Attempts: 1}, postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
		postroom.SetResult(ctx, "never stored")
		return errFails
	}))
	b.in.HandleExternal(inbox.Subscription{Name: "calls", Workers: 1}, func(ctx context.Context, a *inbox.Attempt) error {
		postroom.SetResult(ctx, strings.Repeat("charge ", 100)+a.Event.ID)
		return nil
	})
	for _, handler := range []string{"alone", "batch", "silent", "fails", "calls"} {
		b.acceptMany(handler, 3)
	}
	b.run()
	b.eventually("all to be decided", func() bool {
		left := 0
		for _, handler := range []string{"alone", "batch", "silent", "calls"} {
			left += len(b.held(handler))
		}
		return left == 0 && b.dead("fails") == 3
	})
	want := map[string]string{"alone": "handled 2", "batch": "handled 2", "silent": "", "fails": ""}
	for handler, text := range want {
		if got := b.result(handler, "/stripe 2"); got != text {
			t.Errorf("result of %s: %q, want %q", handler, got, text)
		}
	}
	if got := b.result("calls", "/stripe 2"); len(got) > 300+len("…") || !strings.HasPrefix(got, "charge charge ") {
		t.Errorf("result of calls: %q, want its first 300 bytes", got)
	}
	postroom.SetResult(t.Context(), "without a handler it does nothing")
}
