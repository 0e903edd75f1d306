package remedy_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/remedy"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// A pool is reset only if its connections take no writes and new connections do.
func TestRenew(t *testing.T) {
	t.Parallel()
	url := devtest.DatabaseURL(t)
	connect := func() *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		if err := pool.Ping(t.Context()); err != nil { // now it has a connection, with the settings of this moment
			t.Fatal(err)
		}
		return pool
	}
	open := connect()
	set := func(value string) {
		const sql = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET default_transaction_read_only = %s', current_database()); END $$"
		if _, err := open.Exec(t.Context(), fmt.Sprintf(sql, value)); err != nil {
			t.Fatal(err)
		}
	}
	takesWrites := func(pool *pgxpool.Pool) bool {
		_, err := pool.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS written ()")
		return err == nil
	}
	want := func(what string, pool *pgxpool.Pool, err error, renewed bool) {
		t.Helper()
		if got := remedy.Renew(t.Context(), pool, err); got != renewed {
			t.Errorf("%s: Renew = %t, want %t", what, got, renewed)
		}
	}
	failed := fmt.Errorf("write: %w", server("25006"))
	set("on")
	fenced := connect()
	if takesWrites(fenced) {
		t.Fatal("a connection takes writes")
	}
	want("no connection takes writes", fenced, failed, false)
	set("off")
	stuck := connect()
	devtest.TakeNoWrites(t, stuck)
	want("another error", stuck, server("40001"), false)
	want("no error of the server", stuck, errors.New("EOF"), false)
	want("no pool", nil, failed, false)
	want("the pool takes writes", open, failed, false)
	if takesWrites(stuck) {
		t.Fatal("the pool takes writes before it was reset")
	}
	want("only new connections take writes", stuck, failed, true)
	if !takesWrites(stuck) {
		t.Error("the pool takes no writes after it was reset")
	}
}
