package inbox_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// An event has failed, and another process has begun to decide it. The other events that are to be
// held do not wait for that process.
func TestAnEventThatAnotherProcessDecidesDelaysNoOther(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		external bool
	}{{"failed events", false}, {"events for calls", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			waits := func() bool {
				var n int
				err := b.pool.QueryRow(context.WithoutCancel(t.Context()), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
				return err != nil || n > 0
			}
			process, err := b.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer process.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // the transaction may have ended
			decides := make(chan error, 1)
			var once sync.Once
			b.in.Handle(b.subscription("twice"), postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
				once.Do(func() {
					go func() {
						_, err := process.Exec(context.WithoutCancel(t.Context()), `INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('twice', '/shop bad')`)
						decides <- err
					}()
					for !waits() && ctx.Err() == nil { // until this transaction ends
						continue
					}
				})
				return errFails
			}))
			var runs atomic.Int32
			sub := b.subscription("other")
			sub.Types = []string{b.stream + ".other"}
			if tt.external {
				b.in.HandleExternal(sub, func(_ context.Context, attempt *inbox.Attempt) error {
					attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("other").Handle(ctx, tx, attempt.Event) })
					return nil
				})
			} else {
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if runs.Add(1) == 1 {
						return errFails
					}
					return effect("other").Handle(ctx, tx, ev)
				}))
			}
			b.publish("bad")
			b.run()
			if err := <-decides; err != nil {
				t.Fatal(err)
			}
			b.eventually("the inbox to wait for the other process", waits)
			b.publishEvent(postroom.Event{ID: "1", Source: "/shop", Type: b.stream + ".other", Data: []byte("1")})
			b.eventually("the other event to be handled", func() bool { return b.effects("other")["1"] == 1 })
			if err := process.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
