package pglog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// Lag reports for how long the oldest transaction has been open that wrote to the log,
// prepared or not. Readers, and writers of other tables, do not count.
func TestBacklogTellsOfOpenWriters(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	open := func(what string, want bool) eventlog.Lag {
		t.Helper()
		b, err := log.Lag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if (b.OldestWriterAge > 0) != want || b.HiddenWriters != 0 {
			t.Errorf("%s: the oldest writer is open for %s, and %d are not reported; want one: %t", what, b.OldestWriterAge, b.HiddenWriters, want)
		}
		return b
	}
	begin := func(sql string) pgx.Tx {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // no effect after its end
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	age := func(tx pgx.Tx) (d time.Duration) {
		t.Helper()
		if err := tx.QueryRow(t.Context(), "SELECT clock_timestamp() - now()").Scan(&d); err != nil {
			t.Fatal(err)
		}
		return d
	}

	mustExec(t, pool, "CREATE TABLE other (n int)")
	begin("SELECT count(*) FROM postroom.outbox")
	begin("INSERT INTO other VALUES (1)")
	open("a reader, and a writer of something else", false)

	first := openWith(t, pool, "first")
	second := openWith(t, pool, "second")
	least := age(first)
	if b := open("two writers", true); b.OldestWriterAge < least || b.OldestWriterAge > age(first) {
		t.Errorf("the oldest writer is open for %s, want %s to %s", b.OldestWriterAge, least, age(first))
	}
	commit(t, second)
	if _, err := first.Exec(t.Context(), "PREPARE TRANSACTION 'open writer'"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "ROLLBACK PREPARED 'open writer'"); err != nil {
			t.Error(err)
		}
	})
	open("one that is prepared", true)
}

// If the relay's role may not see when a writer's transaction began, Lag reports that there is
// such a writer.
func TestBacklogCountsWritersThatItCannotSee(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	relays, _ := ofRelay(t, pool)
	log := pglog.New(relays)

	tx := openWith(t, pool, "a")
	for _, want := range []int64{1, 0} {
		b, err := log.Lag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b.OldestWriterAge != 0 || b.HiddenWriters != want {
			t.Errorf("the oldest writer is open for %s, and %d are not reported; want none and %d", b.OldestWriterAge, b.HiddenWriters, want)
		}
		if want == 1 {
			commit(t, tx)
		}
	}
}

// If row-level security hides events from the relay, they would count as published as soon as
// later ones are. The relay does not lead then. If it leads already, its reads fail.
func TestEventsThatRowSecurityHides(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	relays, role := ofRelay(t, pool)
	log := pglog.New(relays)
	write(t, pool, "a", "hidden", "c")
	term := lead(t, log)
	mustExec(t, pool, "CREATE POLICY part ON postroom.outbox TO "+role+" USING (event_id <> 'hidden')")
	mustExec(t, pool, "ALTER TABLE postroom.outbox ENABLE ROW LEVEL SECURITY")
	if page, err := term.Read(t.Context(), 10, nil); err == nil {
		t.Errorf("read %d events of 3", len(page.Events))
	}
	_, err := log.Lead(t.Context(), "test", time.Minute)
	for what, err := range map[string]error{"Lead": err, "Check": log.Check(t.Context())} {
		if !errors.Is(err, pglog.ErrRowSecurity) || !errors.Is(err, postroom.ErrUnrecoverable) {
			t.Errorf("%s = %v, want %v", what, err, pglog.ErrRowSecurity)
		}
	}
	mustExec(t, pool, "ALTER TABLE postroom.outbox DISABLE ROW LEVEL SECURITY")
	ids, _, _ := read(t, lead(t, log), 10)
	wantIDs(t, ids, "a", "hidden", "c")
}

// ofRelay returns a pool of a role that may do what a relay does, and the role.
func ofRelay(t *testing.T, pool *pgxpool.Pool) (relays *pgxpool.Pool, role string) {
	t.Helper()
	var name string
	if err := pool.QueryRow(t.Context(), "SELECT current_database() || '_relay'").Scan(&name); err != nil {
		t.Fatal(err)
	}
	role = pgx.Identifier{name}.Sanitize()
	mustExec(t, pool, "CREATE ROLE "+role)
	mustExec(t, pool, "SELECT postroom.grant_relay('"+role+"')")
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	cfg := pool.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		return err
	}
	relays, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(relays.Close)
	return relays, role
}
