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

// While the rows of a query are open, the connection can send nothing, not even the statement that makes
// the transaction unable to commit.
func TestATransactionWithoutItsEventCannotCommitAfterOpenRows(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE shop (id int)"); err != nil {
		t.Fatal(err)
	}
	const change, question = "INSERT INTO shop VALUES (1)", "SELECT generate_series(1, 100000)"
	for name, begin := range map[string]func(tx pgx.Tx) (pgx.Tx, error){
		"pgx":         func(tx pgx.Tx) (pgx.Tx, error) { return tx, nil },
		"a savepoint": func(tx pgx.Tx) (pgx.Tx, error) { return tx.Begin(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			outer, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tx, err := begin(outer)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			rows, err := tx.Query(t.Context(), question)
			if err != nil || !rows.Next() {
				t.Fatal("no rows", err)
			}
			if err := shop.Write(t.Context(), tx, postroom.NewEvent("order.placed", nil)); err == nil {
				t.Error("Write = nil")
			}
			rows.Close()
			if tx != outer {
				_ = tx.Commit(t.Context()) // the outer transaction counts
			}
			if err := outer.Commit(t.Context()); err == nil {
				t.Error("the transaction has committed without its event")
			}
		})
	}
	t.Run("database/sql", func(t *testing.T) {
		db := stdlib.OpenDB(*pool.Config().ConnConfig)
		defer func() { _ = db.Close() }() // an error would only say that the server is gone
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		rows, err := tx.QueryContext(t.Context(), question)
		if err != nil || !rows.Next() {
			t.Fatal("no rows", err)
		}
		if err := shop.WriteSQL(t.Context(), tx, postroom.NewEvent("order.placed", nil)); err == nil {
			t.Error("WriteSQL = nil")
		}
		_ = rows.Close() // the transaction counts
		if err := tx.Commit(); err == nil {
			t.Error("the transaction has committed without its event")
		}
		if err := rows.Err(); err != nil {
			t.Log("the rows ended with", err)
		}
	})
	var left int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM shop").Scan(&left); err != nil || left > 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}
