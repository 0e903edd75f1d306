package schema_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// session returns a connection of the given application_name.
func session(t *testing.T, pool *pgxpool.Pool, name string) *pgx.Conn {
	t.Helper()
	cfg := pool.Config().ConnConfig
	cfg.RuntimeParams["application_name"] = name
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

const lockOutbox = "BEGIN; LOCK TABLE postroom.outbox IN ACCESS SHARE MODE"

// looker begins the transaction that looks for blockers.
func looker(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := session(t, pool, "looker").Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// applications returns the names of the blockers in their order.
func applications(t *testing.T) func(blockers []schema.Blocker, err error) string {
	return func(blockers []schema.Blocker, err error) string {
		t.Helper()
		var names []string
		for _, b := range blockers {
			names = append(names, b.Application)
		}
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
}

func holders(t *testing.T, tx pgx.Tx) []string {
	t.Helper()
	found, err := schema.Holders(t.Context(), tx, "postroom.outbox")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The locks and the sessions are not read at one moment. If a session or its transaction ended
// in between, it is no blocker. Within a transaction the server keeps showing the sessions that it
// showed first. So in this test the locks name one session and one transaction that are not among
// the shown sessions.
func TestSessionThatJustEndedIsNoBlocker(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	migrate(t, pool, "")
	open, idle := session(t, pool, "open"), session(t, pool, "idle")
	exec(t, open, lockOutbox)
	tx := looker(t, pool)
	exec(t, tx, "SELECT FROM pg_stat_activity")
	gone := session(t, pool, "gone")
	exec(t, idle, lockOutbox)
	exec(t, gone, lockOutbox)

	all := holders(t, tx)
	if len(all) != 3 {
		t.Fatalf("inconclusive: the holders are %q, want 3", all)
	}
	names := applications(t)
	if got := names(schema.ReadBlockers(t.Context(), tx, all)); got != "open" {
		t.Errorf("in the way are %q, want the one that is open", got)
	}
	if got := names(schema.ReadBlockers(t.Context(), tx, nil)); got != "" && got != "open" {
		t.Errorf("in the way are %q where the holders are not known, want the one that is open at the most", got)
	}
	// A new look shows all three, in a caller's transaction, too.
	if got := names(schema.Blockers(t.Context(), tx, all)); got != "gone idle open" {
		t.Fatalf("in the way are %q, want all three", got)
	}
	devtest.Eventually(t, time.Minute, "all three to be there for long", func() bool {
		return names(schema.Blockers(t.Context(), tx, nil)) == "gone idle open"
	})
}

// If a session has a lock now and had none before the migration waited, it waited behind the
// migration, at any age of its transaction.
func TestSessionBehindTheMigrationIsNoBlocker(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	migrate(t, pool, "")
	before, behind := session(t, pool, "before"), session(t, pool, "behind")
	exec(t, behind, "BEGIN; SELECT")
	exec(t, before, lockOutbox)
	tx := looker(t, pool)
	exec(t, tx, "LOCK TABLE postroom.outbox IN ACCESS SHARE MODE") // this session is not a blocker of itself
	held := holders(t, tx)
	exec(t, behind, "LOCK TABLE postroom.outbox IN ACCESS SHARE MODE")
	names := applications(t)
	if got := names(schema.Blockers(t.Context(), tx, held)); got != "before" {
		t.Errorf("in the way are %q, want the one that was there before", got)
	}
	exec(t, before, "COMMIT; "+lockOutbox)
	if got := names(schema.Blockers(t.Context(), tx, held)); got != "" {
		t.Errorf("blockers are %q, want none: the next transaction of a session is another one", got)
	}
	exec(t, before, "COMMIT")
	exec(t, behind, "COMMIT")
	if held = holders(t, tx); held == nil || len(held) > 0 {
		t.Errorf("the holders are %#v, want none, which is not the same as unknown", held)
	}
}

// A role without pg_read_all_stats sees of other roles' sessions only that they exist. The same
// holds for sessions that do not track their activity. Such sessions are named as blockers.
func TestHiddenSessionsAreNamedAsBlockers(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	migrate(t, pool, "")
	role := pgx.Identifier{one[string](t, pool, "SELECT current_database() || '_looker'")}.Sanitize()
	exec(t, pool, "CREATE ROLE "+role)
	defer exec(t, pool, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	silent, other := session(t, pool, "silent"), session(t, pool, "other")
	exec(t, silent, "SET track_activities = off")
	exec(t, silent, lockOutbox)
	exec(t, other, lockOutbox)
	tx := looker(t, pool)
	names := applications(t)
	held := holders(t, tx)
	if got := names(schema.Blockers(t.Context(), tx, held)); got != "other silent" {
		t.Errorf("in the way are %q, want both", got)
	}
	exec(t, tx, "SET LOCAL ROLE "+role)
	for _, known := range [][]string{held, nil} {
		blockers, err := schema.Blockers(t.Context(), tx, known)
		if got := names(blockers, err); got != "other silent" {
			t.Errorf("for another role in the way are %q, want both", got)
		}
		for _, b := range blockers {
			if b.State != "" || b.Age != 0 || !slices.Contains(b.Tables, "outbox") {
				t.Errorf("for another role: %+v, want its table, and no details of its work", b)
			}
		}
	}
	exec(t, tx, "ROLLBACK")
}
