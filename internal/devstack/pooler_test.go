package devstack_test

import (
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devstack"
)

func pooler(t *testing.T, p *devstack.Postgres, cfg devstack.PoolerConfig) *devstack.Pooler {
	t.Helper()
	between, err := devstack.StartPooler(t.Context(), p.URL(), cfg)
	if errors.Is(err, devstack.ErrNoPooler) && os.Getenv("POSTROOM_TEST_REQUIRE") != "1" {
		t.Skip("SKIPPED, NOTHING WAS TESTED: ", err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, between.Close()) })
	return between
}

// Depending on the mode, two idle clients share one connection to the database, or have one each.
// After Close the pooler does not answer.
func TestPooler(t *testing.T) {
	t.Parallel()
	p := start(t, devstack.Config{})
	for _, session := range []bool{false, true} {
		between := pooler(t, p, devstack.PoolerConfig{Session: session})
		pids := serversOfTwo(t, between)
		if one := pids[0] == pids[1]; one == session {
			t.Errorf("session %t: server processes %v", session, pids)
		}
		check(t, between.Close())
		if conn, err := pgx.Connect(t.Context(), between.URL()); err == nil {
			t.Error("the pooler answers after Close")
			check(t, conn.Close(t.Context()))
		}
	}
}

// serversOfTwo returns the server processes of two clients that are connected at the same time. It
// keeps a reference to both connections. Otherwise the garbage collector could close the first one,
// and the pooler could give its server process to the second client.
func serversOfTwo(t *testing.T, between *devstack.Pooler) [2]int {
	t.Helper()
	var pids [2]int
	for i := range pids {
		conn, err := pgx.Connect(t.Context(), between.URL()+"&default_query_exec_mode=exec")
		check(t, err)
		defer func() { check(t, conn.Close(t.Context())) }()
		check(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pids[i]))
	}
	return pids
}

func TestPoolerSaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := devstack.StartPooler(t.Context(), "postgres://u:se cret@[", devstack.PoolerConfig{})
	if err == nil || err.Error() != "devstack: pooler: parse URL" {
		t.Errorf("StartPooler = %v", err)
	}
}
