package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// A handler sets a role. Its deferred triggers run as this role, in every kind of run.
func TestDeferredTriggersRunAsTheRoleOfTheHandler(t *testing.T) {
	t.Parallel()
	held := func(s *inbox.Subscription) { s.Stream, s.Types = "", nil }
	for _, tt := range []struct {
		name     string
		change   func(*inbox.Subscription)
		external bool
		result   string
		fails    bool // the first run
	}{
		{name: "a delivery", change: func(*inbox.Subscription) {}},
		{name: "a delivery with a result", change: func(*inbox.Subscription) {}, result: "done"},
		{name: "a batch", change: func(s *inbox.Subscription) { s.Batch = 5 }},
		{name: "a held event", change: held},
		{name: "a held event with a result", change: held, result: "done"},
		{name: "held events together", change: func(s *inbox.Subscription) { held(s); s.Batch = 5 }},
		{name: "an ordered handler", change: func(s *inbox.Subscription) { s.Order = inbox.HoldKey }, fails: true},
		{name: "calls", change: held, external: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec(`CREATE TABLE written (event text)`)
			b.exec(`CREATE TABLE seen (event text, by text)`)
			b.exec(`CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO seen VALUES (NEW.event, current_user); RETURN NULL; END'`)
			b.exec(`CREATE CONSTRAINT TRIGGER see AFTER INSERT ON written DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()`)
			b.exec(`GRANT INSERT ON written, seen TO pg_monitor`)
			write := func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if _, err := tx.Exec(ctx, "SET LOCAL ROLE pg_monitor"); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, "INSERT INTO written VALUES ($1)", ev.ID); err != nil {
					return err
				}
				if tt.result != "" {
					postroom.SetResult(ctx, tt.result)
				}
				return nil
			}
			sub := b.subscription("h")
			sub.Workers, sub.Schedule, sub.Attempts = 1, postroom.Backoff{time.Millisecond}, 8
			tt.change(&sub)
			if tt.external {
				b.in.HandleExternal(sub, func(_ context.Context, attempt *inbox.Attempt) error {
					attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return write(ctx, tx, attempt.Event) })
					return nil
				})
			} else {
				failed := false
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if tt.fails && !failed {
						failed = true
						return errFails
					}
					return write(ctx, tx, ev)
				}))
			}
			if sub.Stream == "" {
				b.accept("h", "k-00001", "k-00002")
			} else {
				b.publishKey("k", 1)
				b.publishKey("k", 2)
			}
			b.run()
			var by string
			b.eventually("the triggers to run", func() bool {
				var n int
				err := b.pool.QueryRow(t.Context(), "SELECT count(*), coalesce(string_agg(DISTINCT by, ' '), '') FROM seen").Scan(&n, &by)
				return err == nil && n == 2
			})
			if by != "pg_monitor" {
				t.Errorf("the triggers ran as %s, want the role of the handler", by)
			}
			b.waitUntilNoneHeld("h")
		})
	}
}
