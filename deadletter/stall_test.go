package deadletter_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

// stalling is the pool of an operator whose program stalls in a transaction, after it has taken its
// locks. The function meanwhile is called then.
type stalling struct {
	*pgxpool.Pool

	meanwhile func()
}

func (s *stalling) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := s.Pool.Begin(ctx)
	return &stallingTx{Tx: tx, of: s}, err
}

type stallingTx struct {
	pgx.Tx

	of    *stalling
	locks bool
}

func (tx *stallingTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	tx.locks = true
	return tx.Tx.SendBatch(ctx, b)
}

func (tx *stallingTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if tx.locks {
		tx.locks = false
		tx.of.meanwhile()
	}
	return tx.Tx.Query(ctx, sql, args...)
}

// An operator's program stalls while it discards an outgoing event. The relay does not wait for it
// for long, and nothing is discarded.
func TestAnOperatorWhoseProgramStallsStopsNoRelay(t *testing.T) {
	t.Parallel()
	o := newOutgoingRig(newRig(t))
	stop := o.relay()
	o.write("k", 1, 1, 1)
	dead := map[string]string{name("k", 1): "dead"}
	o.eventuallyHeld(dead)
	stop()
	stalls := 0
	store := deadletter.New(&stalling{o.pool, func() {
		stalls++
		err := pgx.BeginFunc(t.Context(), o.pool, func(tx pgx.Tx) error { // what a relay does when it records its progress
			_, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '40s'")
			if err == nil {
				_, err = tx.Exec(t.Context(), "UPDATE postroom.relay SET epoch = epoch")
			}
			return err
		})
		if err != nil {
			t.Errorf("the relay waits for an operator whose program stalls: %v", err)
		}
	}}, deadletter.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, patience))
	defer cancel()
	n, err := store.Discard(ctx, only(name("k", 1)), deadletter.ChangeOptions{}, o.by)
	if err == nil || n != 0 || stalls != 1 {
		t.Errorf("Discard = %d, %v after %d stalls; want an error after one", n, err, stalls)
	}
	o.eventuallyHeld(dead)
}
