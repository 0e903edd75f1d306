package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// ordered is a subscription that keeps keys in order.
func (b *bench) ordered(name string, order inbox.Order) inbox.Subscription {
	sub := b.subscription(name)
	sub.Order, sub.Workers = order, 4
	return sub
}

// publishKeyed publishes n events of each of some keys, in turn: their ids are
// <key>-<number>.
func (b *bench) publishKeyed(keys, n int) {
	b.Helper()
	for i := range n {
		for k := range keys {
			b.publishKey(fmt.Sprintf("k%d", k), i)
		}
	}
}

func (b *bench) publishKey(key string, i int) {
	b.Helper()
	id := fmt.Sprintf("%s-%05d", key, i)
	b.publishEvent(postroom.Event{
		ID: id, Source: "/shop", Type: b.stream + ".placed", Key: key, ContentType: "application/json", Data: []byte(`"` + id + `"`),
	})
}

// outOfOrder returns how many effects of a handler came before that of an earlier
// event of their key.
func (b *bench) outOfOrder(name string) (n int) {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), `
		SELECT count(*) FROM (
			SELECT event, lag(event) OVER (PARTITION BY split_part(event, '-', 1) ORDER BY n) AS before
			FROM effect WHERE handler = $1) e
		WHERE before >= event`, name).Scan(&n)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func TestOrderedHandlerKeepsKeysInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publishKeyed(10, 50)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.eventually("500 effects", func() bool { return len(b.effects("o")) == 500 })
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
	if held := b.held("o"); len(held) > 0 {
		t.Errorf("held: %v", held)
	}
}

func TestOrderedHandlerKeepsTheOrderIfEventsFail(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	failed := make(chan string, 1000)
	once := map[string]bool{}
	lock := make(chan struct{}, 1)
	random := devtest.Random(t, 0)
	b.in.Handle(b.ordered("o", inbox.HoldKey), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		lock <- struct{}{}
		first := !once[ev.ID]
		once[ev.ID] = true
		<-lock
		if first && random.IntN(5) == 0 {
			failed <- ev.ID
			return errors.New("not now")
		}
		return effect("o").Handle(ctx, tx, ev)
	}))
	b.run()
	b.publishKeyed(10, 60)
	b.eventually("600 effects", func() bool { return len(b.effects("o")) == 600 })
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
	if len(failed) == 0 {
		t.Error("nothing failed")
	}
	b.eventually("held to be empty", func() bool { return len(b.held("o")) == 0 })
}

// A held event of a key is settled only after other transactions have released the key.
func TestSettlingLocksTheKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	again, locked := make(chan struct{}), make(chan struct{})
	attempts := 0
	b.in.Handle(b.ordered("o", inbox.HoldKey), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if attempts++; attempts == 1 {
			return errors.New("not now")
		}
		again <- struct{}{}
		<-locked
		return effect("o").Handle(ctx, tx, ev)
	}))
	b.run()
	b.publishEvent(postroom.Event{ID: "e", Source: "/shop", Type: b.stream + ".placed", Key: "k", Data: []byte("{}")})
	devtest.Receive(t, 20*time.Second, "the second attempt", again)
	other, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }() // an error if the test got as far as Commit
	if _, err := other.Exec(t.Context(), "SELECT pg_advisory_xact_lock(postroom.key_lock('o', 'k'))"); err != nil {
		t.Fatal(err)
	}
	close(locked)
	b.eventually("the inbox to wait for the key", func() bool {
		if len(b.effects("o")) > 0 {
			t.Fatal("the event was settled while another transaction had its key locked")
		}
		var waits bool
		err := b.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks
			WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits)
		return err == nil && waits
	})
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("held to be empty", func() bool { return len(b.held("o")) == 0 })
	b.wantOnce("o", "e")
}
