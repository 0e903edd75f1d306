package pglog_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/schema"
)

// soak asks for the long versions: more rows, more crashes.
var soak = os.Getenv("POSTROOM_SOAK") == "1"

// ownDatabase returns a pool on a migrated database of the given server. options is a query
// string of the URL, and may be empty.
func ownDatabase(t *testing.T, server *devstack.Postgres, options string) *pgxpool.Pool {
	t.Helper()
	url, err := server.CreateDatabase(t.Context(), "crashing", "")
	if err != nil {
		t.Fatal(err)
	}
	pool := poolAt(t, url+options)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := schema.Migrate(t.Context(), conn.Conn(), ""); err != nil {
		t.Fatal(err)
	}
	return pool
}

func poolAt(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 24
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// crash kills the server and starts it again on the same data.
func crash(t *testing.T, server *devstack.Postgres, pool *pgxpool.Pool) {
	t.Helper()
	crashWith(t, server, pool, func() {})
}

// crashWith is crash with something to do while the server is down.
func crashWith(t *testing.T, server *devstack.Postgres, pool *pgxpool.Pool, down func()) {
	t.Helper()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	down()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool.Reset() // its connections are dead
}

// tryRecord is record for a term that may be over.
func tryRecord(ctx context.Context, term *pglog.Term, seqs ...int64) error {
	return term.Record(ctx, eventlog.Progress{Published: seqs})
}

// wantOver fails the test if a connection of the term can still be used.
func wantOver(t *testing.T, term *pglog.Term) {
	t.Helper()
	if page, err := term.Read(t.Context(), 10, nil); err == nil {
		t.Errorf("a term that began before the crash still reads: %d events", len(page.Events))
	}
	if err := tryRecord(t.Context(), term, 1); err == nil {
		t.Error("a term that began before the crash still records")
	}
}

// changeOnce commits one change of an account.
func changeOnce(ctx context.Context, pool *pgxpool.Pool, account int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, _, err := changeAccount(ctx, tx, shop, account)
		return err
	})
}

// prepare changes an account twice, in a transaction that it prepares and does not end.
func prepare(t *testing.T, pool *pgxpool.Pool, account int) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := changeAccount(t.Context(), tx, shop, account); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.Exec(t.Context(), "PREPARE TRANSACTION 'account "+strconv.Itoa(account)+"'"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil { // there is nothing to roll back: it returns the connection to the pool
		t.Fatal(err)
	}
}

func TestPreparedTransactionsOutliveACrash(t *testing.T) {
	t.Parallel()
	server := devtest.OwnPostgres(t, devstack.Config{Durable: true})
	pool := ownDatabase(t, server, "")
	log := pglog.New(pool)
	mustExec(t, pool, "CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL DEFAULT 0)")
	mustExec(t, pool, "INSERT INTO account (id) SELECT generate_series(0, 3)")
	changed := func(account int) {
		t.Helper()
		if err := changeOnce(t.Context(), pool, account); err != nil {
			t.Fatal(err)
		}
	}

	j := newJournal()
	for account := range 3 {
		changed(account)
		prepare(t, pool, account)
		changed(3)
	}
	before := lead(t, log)
	if got := j.drain(t, before, 2); len(got) != 6 {
		t.Fatalf("published %d before the crash, want the 6 that were committed", len(got))
	}
	var open int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.relay, pg_snapshot_xip(snap)").Scan(&open); err != nil || open != 3 {
		t.Fatalf("the recorded snapshot has %d transactions in progress, %v; want the 3 prepared ones", open, err)
	}

	mustExec(t, pool, "UPDATE account SET n = n WHERE id = 3") // this commit waits for the disk; a recording does not
	crash(t, server, pool)
	wantOver(t, before)
	var waiting sync.WaitGroup // for the locks of the prepared transactions
	for account := range 3 {
		waiting.Go(func() {
			if err := changeOnce(t.Context(), pool, account); err != nil {
				t.Error(err)
			}
		})
	}
	changed(3)
	mustExec(t, pool, "COMMIT PREPARED 'account 0'")
	after := lead(t, log)
	j.drain(t, after, 2)
	changed(3)
	j.drain(t, after, 2)
	mustExec(t, pool, "COMMIT PREPARED 'account 1'")
	mustExec(t, pool, "ROLLBACK PREPARED 'account 2'")
	waiting.Wait()
	j.drain(t, after, 2)

	ids := logged(t, pool)
	if want := 4 + 4 + 2 + 5; len(ids) != want {
		t.Errorf("%d events in the log, want %d", len(ids), want)
	}
	j.lost(t, ids)
	j.ghosts(t, ids)
	j.doubled(t)
	j.outOfOrder(t)
	if got := j.drain(t, lead(t, log), 2); len(got) > 0 {
		t.Errorf("another term published %v again", got)
	}
}
