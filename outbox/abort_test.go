package outbox_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
)

// A program that ignores the error of Write cannot commit its change without the event, also if the
// context of Write had ended and nothing was sent.
func TestATransactionWithoutItsEventCannotCommit(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE shop (id int)"); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	usual := postroom.NewEvent("order.placed", nil)
	named := postroom.Event{ID: "e-1", Type: "order.placed"}
	for name, events := range map[string][]postroom.Event{"usual": {usual}, "with an id": {named}, "two": {usual, named}} {
		t.Run("pgx, "+name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "INSERT INTO shop VALUES (1)"); err != nil {
				t.Fatal(err)
			}
			if err := shop.Write(ended, tx, events...); err == nil {
				t.Error("Write = nil")
			}
			if err := tx.Commit(t.Context()); err == nil {
				t.Error("the transaction has committed without its event")
			}
		})
		t.Run("a savepoint, "+name, func(t *testing.T) { // the transaction may go on after a rollback to it
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				sub, err := tx.Begin(t.Context())
				if err != nil {
					return err
				}
				if err := shop.Write(ended, sub, events...); err == nil {
					t.Error("Write = nil")
				}
				return sub.Rollback(t.Context())
			})
			if err != nil {
				t.Error(err)
			}
		})
		for driver, wrap := range map[string]func(tx *sql.Tx) outbox.SQLTx{
			"database/sql":          func(tx *sql.Tx) outbox.SQLTx { return tx },
			"prepared by a library": func(tx *sql.Tx) outbox.SQLTx { return &preparedTx{inner: tx} },
		} {
			t.Run(driver+", "+name, func(t *testing.T) {
				db := stdlib.OpenDB(*pool.Config().ConnConfig)
				defer func() { _ = db.Close() }() // an error would only say that the server is gone
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.ExecContext(t.Context(), "INSERT INTO shop VALUES (1)"); err != nil {
					t.Fatal(err)
				}
				if err := shop.WriteSQL(ended, wrap(tx), events...); err == nil {
					t.Error("WriteSQL = nil")
				}
				if err := tx.Commit(); err == nil {
					t.Error("the transaction has committed without its event")
				}
			})
		}
	}
	var left int
	if err := pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM shop) + (SELECT count(*) FROM postroom.outbox)").Scan(&left); err != nil || left > 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}
