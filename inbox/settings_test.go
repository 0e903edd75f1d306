package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// A handler has a Timeout for which its transactions may be idle for five seconds, as long as they
// may wait for a lock. Its events take effect like those of any other handler.
func TestAnyTimeoutLosesNoEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const events = 5
	for name, sub := range map[string]inbox.Subscription{
		"plain": b.subscription("plain"), "batch": b.subscription("batch"), "ordered": b.ordered("ordered", inbox.HoldKey), "accepts": {Name: "accepts"},
	} {
		sub.Timeout = 3333500 * time.Microsecond
		if name == "batch" {
			sub.Batch = events
		}
		b.in.Handle(sub, effect(name))
	}
	b.run()
	for n := range events {
		id := fmt.Sprint("e", n)
		ev := postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: "k", ContentType: "application/json", Data: []byte(`"` + id + `"`)}
		b.publishEvent(ev)
		if _, err := b.in.Accept(t.Context(), "accepts", ev); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"plain", "batch", "ordered", "accepts"} {
		b.eventually("all events of "+name, func() bool { return len(b.effects(name)) == events })
	}
}

// A process waits for the lock of a key that another transaction has. After five seconds the wait
// ends, even if the handler does not know of a held event of the key.
func TestTheWaitForAKeyEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.publishKey("other", 0)
	b.eventually("an event of another key", func() bool { return len(b.effects("o")) == 1 })
	lock, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := lock.Exec(t.Context(), "SELECT pg_advisory_xact_lock(postroom.key_lock('o', 'k'))"); err != nil {
		t.Fatal(err)
	}
	b.publishKey("k", 0)
	waiting := func() (since time.Time) { // zero if no session waits
		err := b.pool.QueryRow(t.Context(), `SELECT coalesce(min(query_start), '0001-01-01 00:00:00+00') FROM pg_locks JOIN pg_stat_activity USING (pid)
			WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()`).Scan(&since)
		if err != nil {
			t.Fatal(err)
		}
		return since
	}
	var first time.Time
	b.eventually("the process to wait for the key", func() bool { first = waiting(); return !first.IsZero() })
	b.eventually("the wait to end", func() bool { return !waiting().Equal(first) })
}
