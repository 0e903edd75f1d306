package pglog_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// The relay's connections get the same hooks as the pool's, for instance one that sets a role.
// They are outside the pool, because the pool may be full.
func TestTheRelaysConnectionsAreMadeAsThePoolsAre(t *testing.T) {
	t.Parallel()
	const lock = 4711
	cfg := devtest.Pool(t).Config()
	cfg.MaxConns = 1
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SELECT pg_advisory_lock_shared($1)", lock)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	lead(t, pglog.New(pool))

	var connections int
	err = pool.QueryRow(t.Context(), `SELECT count(DISTINCT pid) FROM pg_locks
		WHERE locktype = 'advisory' AND objid = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
		lock).Scan(&connections)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3; connections != want || pool.Stat().TotalConns() != 1 {
		t.Errorf("%d connections are as the pool makes them, want %d: its %d and the relay's two", connections, want, pool.Stat().TotalConns())
	}
}
