package integration

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/sleep"
)

// noteHeartbeats notes the time in the database every 50 ms, until the test ends. A gap shows that
// the machine stalled: this process or the database could do nothing. The function
// stalled(since, until) of the database adds up the gaps of more than 200 ms between two times.
func noteHeartbeats(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE heartbeat (at timestamptz NOT NULL DEFAULT clock_timestamp());
		INSERT INTO heartbeat DEFAULT VALUES;
		CREATE FUNCTION stalled(since timestamptz, until timestamptz) RETURNS interval LANGUAGE sql AS $$
			SELECT coalesce(sum(least(until, ended) - greatest(since, began)), '0') FROM (
				SELECT at AS ended, lag(at) OVER (ORDER BY at) AS began
				FROM (SELECT at FROM heartbeat UNION ALL SELECT clock_timestamp()) beats
			) gaps WHERE ended - began > '200 ms' AND ended > since AND began < until
		$$`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		for sleep.For(ctx, 50*time.Millisecond) {
			if _, err := pool.Exec(ctx, "INSERT INTO heartbeat DEFAULT VALUES"); err != nil && ctx.Err() == nil {
				t.Errorf("heartbeat: %v", err)
				return
			}
		}
	}()
}

// longestStall returns the longest gap between heartbeats.
func longestStall(t *testing.T, pool *pgxpool.Pool) (gap time.Duration) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "SELECT max(gap) FROM (SELECT at - lag(at) OVER (ORDER BY at) AS gap FROM heartbeat) gaps").Scan(&gap)
	if err != nil {
		t.Fatal(err)
	}
	return gap
}
