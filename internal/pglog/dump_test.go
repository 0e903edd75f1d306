package pglog_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// tool runs a program from the directory of the server's programs. If it is not there, the test is
// skipped.
func tool(t *testing.T, server *devstack.Postgres, name string, args ...string) {
	t.Helper()
	path := filepath.Join(server.Source(), name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("POSTROOM_TEST_REQUIRE") == "1" {
			t.Fatalf("POSTROOM_TEST_REQUIRE=1: %v", err)
		}
		t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "PG") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// burn uses up transaction ids.
func burn(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	mustExec(t, pool, fmt.Sprintf("DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$", n))
}

// nextXID returns the id of the next transaction, and the highest in the log.
func nextXID(t *testing.T, pool *pgxpool.Pool) (next, logged int64) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (SELECT max(xid::text::bigint) FROM postroom.outbox)").Scan(&next, &logged)
	if err != nil {
		t.Fatal(err)
	}
	return next, logged
}

// unpublishedInDump are the unpublished events of dumpSource's log, in the order in which they must
// be published.
var unpublishedInDump = []string{"late", "gap0", "gap1", "never-read0", "never-read1", "never-read2"}

// dumpSource writes a log with events of every kind: published, read and not
// acknowledged, visible late, never read, rolled back, and open while it is
// dumped. It returns the function that ends the open ones.
func dumpSource(t *testing.T, pool *pgxpool.Pool) (end func()) {
	t.Helper()
	late, open, back := openWith(t, pool, "late"), openWith(t, pool, "open0"), openWith(t, pool, "rolled-back")
	write(t, pool, "published0", "published1")
	j := newJournal()
	term := lead(t, pglog.New(pool))
	wantIDs(t, j.drain(t, term, 10), "published0", "published1")
	if err := back.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, pool, "gap0", "published2", "gap1", "published3")
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs[1], seqs[3])
	commit(t, late) // after the last pass, so no pass has found it
	write(t, pool, "never-read0", "never-read1")
	openToo := openWith(t, pool, "open1")
	write(t, pool, "never-read2")
	return func() { commit(t, open); commit(t, openToo) }
}

func TestLogThatWasDumpedAndRestored(t *testing.T) {
	t.Parallel()
	const age = 20_000 // transaction ids that the source has used before it writes
	from := devtest.OwnPostgres(t, devstack.Config{})
	source := ownDatabase(t, from, "")
	burn(t, source, age)
	end := dumpSource(t, source)
	dir := t.TempDir()
	plain, custom := filepath.Join(dir, "log.sql"), filepath.Join(dir, "log.dump")
	tool(t, from, "pg_dump", "--file", plain, source.Config().ConnString())
	tool(t, from, "pg_dump", "--format=custom", "--file", custom, source.Config().ConnString())
	end()

	tests := []struct {
		name    string
		burn    int // transaction ids that the target has used before
		custom  bool
		isAhead bool // the target's transaction ids are ahead of the log's
	}{
		{name: "into a new cluster", custom: true},
		{name: "into a cluster that is far ahead", burn: 3 * age, isAhead: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			to := devtest.OwnPostgres(t, devstack.Config{})
			url, err := to.CreateDatabase(t.Context(), "restored", "")
			if err != nil {
				t.Fatal(err)
			}
			pool := poolAt(t, url)
			burn(t, pool, tt.burn)
			if tt.custom {
				tool(t, to, "pg_restore", "--exit-on-error", "--dbname", url, custom)
			} else {
				tool(t, to, "psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", plain, url)
			}
			if next, logged := nextXID(t, pool); next > logged != tt.isAhead {
				t.Fatalf("inconclusive: the next transaction is %d, the last of the log was %d", next, logged)
			}
			restoredLog(t, pool, age)
		})
	}
	t.Run("into another database of the same cluster", func(t *testing.T) {
		t.Parallel()
		url, err := from.CreateDatabase(t.Context(), "beside", "")
		if err != nil {
			t.Fatal(err)
		}
		tool(t, from, "pg_restore", "--exit-on-error", "--dbname", url, custom)
		restoredLog(t, poolAt(t, url), age)
	})
}

// restoredLog publishes the unpublished events of the restored log. It also publishes new events,
// until their transaction ids have passed those of the old rows.
func restoredLog(t *testing.T, pool *pgxpool.Pool, age int) {
	t.Helper()
	log := pglog.New(pool)
	if err := log.Check(t.Context()); err != nil {
		t.Error(err)
	}
	j := newJournal()
	lead(t, log) // adopts the log, and ends without recording anything
	term := lead(t, log)
	wantIDs(t, j.drain(t, term, 2), unpublishedInDump...)

	slow := openWith(t, pool, "slow0")
	write(t, pool, "fast0")
	wantIDs(t, j.drain(t, term, 2), "fast0")
	commit(t, slow)
	wantIDs(t, j.drain(t, term, 2), "slow0")

	slow = openWith(t, pool, "slow1")
	burn(t, pool, age/2)
	wantIDs(t, j.drain(t, term, 2))
	burn(t, pool, age) // new transactions get the ids of the old rows
	write(t, pool, "fast1")
	wantIDs(t, j.drain(t, term, 2), "fast1")
	commit(t, slow)
	term = lead(t, log)
	wantIDs(t, j.drain(t, term, 2), "slow1")
	wantIDs(t, j.drain(t, lead(t, log), 2))
	j.doubled(t)
	if next, logged := nextXID(t, pool); next <= logged {
		t.Errorf("inconclusive: the next transaction is %d, the last of the log was %d", next, logged)
	}
}
