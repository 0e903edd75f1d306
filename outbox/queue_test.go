package outbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
)

func TestQueue(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	mustExec(t, pool, "CREATE TABLE orders (id text)")
	send := func(ids ...string) error {
		var batch pgx.Batch
		batch.Queue("INSERT INTO orders VALUES ($1)", ids[0])
		for _, id := range ids {
			if err := shop.Queue(&batch, named(id)); err != nil {
				return err
			}
		}
		batch.Queue("INSERT INTO orders VALUES ('after')")
		return pool.SendBatch(t.Context(), &batch).Close()
	}
	count := func() (orders int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&orders); err != nil {
			t.Fatal(err)
		}
		return orders
	}
	if err := send("one", "two"); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 2 || rowCount(t, pool) != 2 {
		t.Errorf("%d orders, want those before the event and those after it", n)
	}

	t.Run("ErrEventConflict/nothing of the batch stays", func(t *testing.T) {
		mustExec(t, pool, "UPDATE postroom.outbox SET digest = decode(repeat('00', 16), 'hex') WHERE event_id = 'two'")
		err := send("three", "two")
		var of *postroom.EventError
		if !errors.Is(err, postroom.ErrEventConflict) || !errors.As(err, &of) || of.ID != "two" || of.Type != "order.placed" {
			t.Errorf("Close = %v, want ErrEventConflict of event two", err)
		}
		if n := count(); n != 2 || rowCount(t, pool) != 2 {
			t.Errorf("%d orders and %d events, want 2 of each, as before", n, rowCount(t, pool))
		}
	})
	t.Run("ErrEventConflict/of two in one batch", func(t *testing.T) {
		var batch pgx.Batch
		err := errors.Join(shop.Queue(&batch, named("twice")), shop.Queue(&batch, postroom.Event{ID: "twice", Type: "other"}))
		if err != nil {
			t.Fatal(err)
		}
		if err := pool.SendBatch(t.Context(), &batch).Close(); !errors.Is(err, postroom.ErrEventConflict) {
			t.Errorf("Close = %v, want ErrEventConflict", err)
		}
	})
	t.Run("an error of another statement stays what it is", func(t *testing.T) {
		var batch pgx.Batch
		batch.Queue("SELECT 1/0")
		if err := shop.Queue(&batch, named("four")); err != nil {
			t.Fatal(err)
		}
		err := pool.SendBatch(t.Context(), &batch).Close()
		if err == nil || errors.Is(err, postroom.ErrEventConflict) || !strings.Contains(err.Error(), "22012") {
			t.Errorf("Close = %v, want the division by zero", err)
		}
	})
	t.Run("ErrInvalidEvent/nothing is queued", func(t *testing.T) {
		var batch pgx.Batch
		err := shop.Queue(&batch, named("five"), postroom.Event{ID: "six", Type: "a..b"})
		var of *postroom.EventError
		if !errors.Is(err, postroom.ErrInvalidEvent) || !errors.As(err, &of) || of.ID != "six" {
			t.Errorf("Queue = %v, want ErrInvalidEvent of event six", err)
		}
		if batch.Len() != 0 {
			t.Errorf("%d statements queued", batch.Len())
		}
	})
	t.Run("no events are no statement", func(t *testing.T) {
		var batch pgx.Batch
		if err := shop.Queue(&batch); err != nil || batch.Len() != 0 {
			t.Errorf("Queue = %v, %d statements queued", err, batch.Len())
		}
	})
}

// The error names each event that conflicts, and no other event.
func TestConflictNamesItsEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "taken-1", "taken-2", "same")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return shop.Write(t.Context(), tx, named("new"), postroom.Event{ID: "taken-2", Type: "a"}, named("same"),
			postroom.Event{ID: "taken-1", Type: "b"}, named("taken"))
	})
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Fatalf("Write = %v, want two conflicts", err)
	}
	for _, want := range []string{"write a taken-2: ", "write b taken-1: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Write = %v, want %q in it", err, want)
		}
	}
}
