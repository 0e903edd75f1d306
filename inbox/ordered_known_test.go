package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/wire"
)

// Another process held an event after this one began to read. This process finds that it is
// decided, and holds the next event of the key behind it.
func TestReaderFindsAnEventThatAnotherProcessHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.publishKey("k1", 0)
	b.eventually("the reader", func() bool { return len(b.order("o")) == 1 })
	b.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('o', '/shop k0-00000')")
	b.exec(`INSERT INTO postroom.held (handler, dedupe_key, chain, pos, next_at, logged_at, source, event_id, type, subject, key, content_type, data)
		VALUES ('o', '/shop k0-00000', 'k0', 2, now() + interval '1 h', now(), '/shop', 'k0-00000', $1, $1, 'k0', 'text/plain', '')`, b.stream+".placed")
	b.publishKey("k0", 0)
	b.publishKey("k0", 1)
	b.publishKey("k1", 1)
	b.eventually("the later event to wait", func() bool { return b.held("o")["/shop k0-00001"].State == "waiting" })
	b.exec("UPDATE postroom.held SET next_at = now() WHERE dedupe_key = '/shop k0-00000'")
	b.eventually("both", func() bool { return len(b.orderOf("o", "k0")) == 2 })
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
}

// The head of a key settles, and the next event is dead. Later events of the key go on
// waiting.
func TestEventsBehindTheNextDeadEventGoOnWaiting(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newScript("o")
	s.set("k0-00000", errBad)
	b.in.Handle(b.ordered("o", inbox.HoldKey), s)
	b.run()
	b.publishKey("k0", 0)
	b.publishKey("k0", 1)
	b.eventually("one dead and one that waits", func() bool { return b.dead("o") == 1 && len(b.held("o")) == 2 })
	b.exec("UPDATE postroom.held SET dead_at = now(), class = 'error' WHERE dedupe_key = '/shop k0-00001'")
	s.set("k0-00000", nil)
	b.overrideDeadNextAtAndAttempts("o", "/shop k0-00000")
	b.eventually("the first", func() bool { return len(b.order("o")) == 1 && len(b.held("o")) == 1 })
	b.publishKey("k0", 2)
	b.publishKey("k1", 0)
	b.eventually("the last to wait, and another key", func() bool {
		return b.held("o")["/shop k0-00002"].State == "waiting" && len(b.orderOf("o", "k1")) == 1
	})
	if got := b.orderOf("o", "k0"); len(got) != 1 {
		t.Errorf("effects: %v, want one", got)
	}
}

// If a claim ran out, any event that ran along with it may be the cause. So each of them runs
// alone.
func TestEachEventOfAClaimThatRanOutRunsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newScript("o")
	s.set("k0-00000", errBad)
	b.in.Handle(b.ordered("o", inbox.HoldKey), s)
	stop := b.run()
	b.publishKey("k0", 0)
	b.eventually("its death", func() bool { return b.dead("o") == 1 })
	b.publishKey("k0", 1)
	b.publishKey("k0", 2)
	b.eventually("two that wait", func() bool { return len(b.held("o")) == 3 })
	stop()
	s.set("k0-00000", nil)
	b.exec("UPDATE postroom.held SET dead_at = NULL, attempts = 1, epoch = 1, claimed_by = 'gone', next_at = now() - interval '1 s' WHERE dead_at IS NOT NULL")
	var beside []bool // for each run, whether all held events have to run alone
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(b.ordered("o", inbox.HoldKey), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		var solitary bool
		if err := tx.QueryRow(ctx, "SELECT bool_and(solitary) FROM postroom.held").Scan(&solitary); err != nil {
			return err
		}
		beside = append(beside, solitary) // one at a time: they have one key
		return s.Handle(ctx, tx, ev)
	}))
	stop = b.run()
	b.eventually("all", func() bool { return len(b.orderOf("o", "k0")) == 3 })
	stop()
	if len(beside) != 3 || !beside[0] || !beside[1] || !beside[2] {
		t.Errorf("the runs were solitary: %v, want three solitary runs", beside)
	}
}

// An event is removed while it runs along with the head of its key. The head settles at once,
// and does not wait until its claim runs out.
func TestHeadSettlesIfAFollowerIsRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newScript("o")
	s.set("k0-00000", errBad)
	b.in.Handle(b.ordered("o", inbox.HoldKey), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "k0-00001" { // as if an operator did this while the event runs
			_, err := b.pool.Exec(ctx, "UPDATE postroom.held SET dead_at = now(), class = 'error' WHERE dedupe_key = '/shop k0-00001'")
			if err != nil {
				return err
			}
		}
		return s.Handle(ctx, tx, ev)
	}))
	b.run()
	b.publishKey("k0", 0)
	b.publishKey("k0", 1)
	b.eventually("one dead and one that waits", func() bool { return b.dead("o") == 1 && len(b.held("o")) == 2 })
	s.set("k0-00000", nil)
	b.overrideDeadNextAtAndAttempts("o", "/shop k0-00000")
	b.eventually("the head's effect", func() bool { return len(b.order("o")) == 1 })
	if held := b.held("o"); len(held) != 1 || held["/shop k0-00001"].State != "dead" {
		t.Errorf("held: %v, want only k0-00001, dead", held)
	}
	b.wantOnce("o", "k0-00000")
}

// Events that were in the stream before an ordered handler existed are handled at any age, in
// their order.
func TestNewOrderedHandlerTakesOldEventsInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 5 {
		old := postroom.Event{
			ID: fmt.Sprintf("k0-%05d", i), Source: "/shop", Type: b.stream + ".placed", Key: "k0", ContentType: "text/plain",
			Data: []byte("1"), LoggedAt: time.Now().Add(-100 * 24 * time.Hour), Time: time.Now(),
		}
		header := nats.Header(wire.Encode(old))
		header.Del(wire.MsgID)
		b.publishRaw(&nats.Msg{Subject: old.Type, Header: header, Data: old.Data})
	}
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	only := b.ordered("late", inbox.HoldKey)
	only.From = inbox.DeliverNew
	b.in.Handle(only, effect("late"))
	b.run()
	b.eventually("all", func() bool { return len(b.order("o")) == 5 })
	b.eventually("both subscriptions", func() bool {
		var n int
		err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.subscription WHERE reader IS NOT NULL").Scan(&n)
		return err == nil && n == 2
	})
	b.publishKey("k0", 5)
	b.eventually("the new one at both", func() bool { return len(b.order("o")) == 6 && len(b.order("late")) == 1 })
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
}
