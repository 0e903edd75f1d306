package saga_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/saga"
)

// A Local function panics, and its goroutine is in a statement in the transaction of Begin's caller.
// The goroutine loses the transaction after the statement, and the caller does not. What the function
// wrote is rolled back.
func TestALocalFunctionThatPanicsGivesTheTransactionBack(t *testing.T) {
	t.Parallel()
	var left sync.WaitGroup
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[0].Do = saga.Local(func(ctx context.Context, tx pgx.Tx, _ *trip) error {
			if _, err := tx.Exec(ctx, "INSERT INTO effect VALUES (DEFAULT, 't1', 'half')"); err != nil {
				return err
			}
			begun := make(chan struct{})
			left.Go(func() {
				_, err := tx.CopyFrom(context.Background(), pgx.Identifier{"effect"}, []string{"key"}, pgx.CopyFromFunc(func() ([]any, error) {
					close(begun)
					time.Sleep(200 * time.Millisecond) // a slow source
					return nil, nil
				}))
				if err != nil {
					t.Errorf("the goroutine got %v", err)
				}
				if _, err := tx.Exec(context.Background(), "SELECT 1"); !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("after the end, the goroutine got %v", err)
				}
			})
			<-begun
			panic("no seats")
		})
	})
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // fails after the commit
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Begin did not panic")
			}
		}()
		_ = w.saga.Begin(t.Context(), tx, "t1", trip{})
	}()
	left.Wait()
	if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("the caller lost the transaction: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if got := w.effects("t1"); got != "" {
		t.Errorf("the effects are %q, want none", got)
	}
}

// A Local function sets an encoding and formats of its own. The saga still stores its state, and
// finds it.
func TestTheEncodingOfALocalFunctionIsItsOwn(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[0].Do = saga.Local(func(ctx context.Context, tx pgx.Tx, s *trip) error {
			s.Reason = "schön"
			_, err := tx.Exec(ctx, "SET LOCAL client_encoding = 'LATIN1'; SET LOCAL DateStyle = 'German'; SET LOCAL bytea_output = 'escape'")
			return err
		})
	})
	w.begin("Zoë")
	w.is("Zoë", "running", "seat")
	seat := w.wants("seat.book", "travel.deadline")[0]
	if seat.Key != "Zoë" {
		t.Errorf("the key of the command is %q", seat.Key)
	}
	w.give(w.reply(seat, "seat.booked", nil))
	w.is("Zoë", "running", "payment")
}
