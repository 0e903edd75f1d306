package inbox_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// An event is held in order, and then the handler is no longer ordered. While a process begins to
// run the event, a process that still runs the ordered handler holds another event behind it. That
// event runs too, at each isolation level of the handler and of the database.
func TestNoEventWaitsForAHandlerThatIsNoLongerOrdered(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state string // of the event for which another waits
		level pgx.TxIsoLevel
	}{{"due", ""}, {"due", pgx.ReadCommitted}, {"due", pgx.RepeatableRead}, {"due", pgx.Serializable}, {"dead", ""}} {
		state, level := tt.state, tt.level
		t.Run(state+" level "+string(level), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.ordered("o", inbox.HoldKey)
			sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
			if state == "dead" {
				sub.Attempts = 1
			}
			b.in.Handle(sub, failing("o", errFails))
			stop := b.run()
			b.publishKey("bad", 0)
			b.eventuallyStates("o", map[string]string{"bad-00000": state})
			stop()
			b.exec("UPDATE postroom.held SET next_at = now() WHERE dead_at IS NULL")

			old, err := b.pool.Begin(t.Context()) // the transaction of the other process
			if err != nil {
				t.Fatal(err)
			}
			if _, err := old.Exec(t.Context(), "SELECT pg_advisory_xact_lock(postroom.key_lock('o', 'bad'))"); err != nil {
				t.Fatal(err)
			}
			if level == "" {
				b.in = inbox.New(b.repeatable(t), b.nc, b.config())
			} else {
				b.in = inbox.New(b.pool, b.nc, b.config())
			}
			sub.Order, sub.Isolation = inbox.Unordered, level
			b.in.Handle(sub, effect("o"))
			b.run()
			b.eventually("the process to wait for the key", func() bool { return b.waiting() != 0 })
			for _, sql := range []string{
				"INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('o', '/shop bad-00001')",
				`INSERT INTO postroom.held (handler, dedupe_key, chain, pos, logged_at, source, event_id, type, subject, key, content_type, data)
					SELECT handler, '/shop bad-00001', chain, pos + 1, now(), source, 'bad-00001', type, subject, key, content_type, data
					FROM postroom.held
					WHERE postroom.enter_key('o', 'bad', pos + 1, (SELECT epoch FROM postroom.subscription)) = 'behind'`,
			} {
				if tag, err := old.Exec(t.Context(), sql); err != nil || tag.RowsAffected() != 1 {
					t.Fatal(tag, err)
				}
			}
			if err := old.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.eventually("the effects", func() bool { return b.heldCount("o") == b.dead("o") })
			if state == "dead" {
				b.wantOnce("o", "bad-00001")
			} else {
				b.wantOnce("o", "bad-00000", "bad-00001")
			}
		})
	}
}

// repeatable returns a pool for the bench's database whose transactions are repeatable read.
func (b *bench) repeatable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	cfg := b.pool.Config()
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A handler was ordered for longer than its DedupeWindow, and is not ordered any more. The consumer
// from before has not moved meanwhile. Events that were decided long ago are not dead now.
func TestAHandlerThatIsUnorderedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	deploy := func(order inbox.Order) (stop func()) {
		b.in = inbox.New(b.pool, b.nc, b.config())
		inbox.LookOften(b.in, 50*time.Millisecond)
		sub := b.subscription("h")
		sub.Order, sub.DedupeWindow = order, 2*time.Second
		b.in.Handle(sub, effect("h"))
		return b.run()
	}
	stop := deploy(inbox.Unordered)
	b.publish("first")
	b.eventually("first", func() bool { return len(b.effects("h")) == 1 })
	stop()
	stop = deploy(inbox.HoldKey)
	all := ids("later", 5)
	b.publish(all...)
	b.eventually("later", func() bool { return len(b.effects("h")) == 6 })
	b.eventually("their rows to expire", func() bool { return b.ledger("h") == 0 })
	stop()
	deploy(inbox.Unordered)
	b.publish("last")
	b.eventually("last", func() bool { return b.effects("h")["last"] == 1 })
	b.drained()
	if n := b.dead("h"); n > 0 {
		t.Errorf("%d events are dead that took effect long ago: %v", n, b.held("h"))
	}
}
