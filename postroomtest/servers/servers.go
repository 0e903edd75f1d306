// Package servers gives tests real servers: a PostgreSQL database with Postroom's tables, and a
// NATS server with JetStream. Each test has its own, and they are removed when the test ends.
//
//	pool, nc := servers.Postgres(t), servers.NATS(t)
//
// PostgreSQL is the server that POSTROOM_DATABASE_URL names, whose role must be able to create
// databases. If that is not set, it is a throwaway cluster that is made with the programs on this
// machine, or else a container. NATS is the program that POSTROOM_TEST_BROKER names. If that is not
// set, it is nats-server on the PATH, or else a program that is built once with go install, in the
// user's cache. With POSTROOM_TEST_SERVERS=containers both run in containers.
//
// The first test of a process starts PostgreSQL, which takes about a second. Each database is a
// copy of a database that was migrated once. Servers end with the test process, even if that is
// killed.
//
// A test that cannot have its server fails, and says what to install, because a test that is
// skipped looks like a test that passed. POSTROOM_TEST_REQUIRE=0 skips such tests.
//
// The package is in the library's module, because it adds no dependency to it: servers are
// programs, which it starts. If it were a module with the NATS server in it, that module would have
// to be kept in step, and its users would compile the server with each test.
package servers

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// Postgres returns a pool on a new, migrated database for the test. The pool is closed and the
// database dropped when the test ends.
func Postgres(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return devtest.Pool(needs(t))
}

// PostgresURL returns the URL of such a database, for a test that opens its own connections or
// starts programs. When the test ends, the database is dropped and sessions that are left are
// ended.
func PostgresURL(t testing.TB) string {
	t.Helper()
	return devtest.DatabaseURL(needs(t))
}

// NATS returns a connection to a new server for the test, made with [natsjs.ConnectOptions]. The
// connection is closed and the server stopped when the test ends. Its ConnectedUrl is the server's
// URL.
func NATS(t testing.TB) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(devtest.OwnNATS(needs(t)).URL(), append(natsjs.ConnectOptions(), nats.Name(t.Name()))...)
	if err != nil {
		t.Fatalf("servers: connect to the test's NATS server: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Stream makes a stream for the given subjects, with the settings that [natsjs.EnsureStream]
// chooses.
func Stream(t testing.TB, nc *nats.Conn, name string, subjects ...string) {
	t.Helper()
	err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: name, Subjects: subjects})
	if err != nil {
		t.Fatalf("servers: %v", err)
	}
}

// requireVariable says whether a test that cannot have its server fails.
const requireVariable = "POSTROOM_TEST_REQUIRE"

// needs returns a test that fails if there are no servers for it.
func needs(t testing.TB) testing.TB {
	if os.Getenv(requireVariable) == "0" {
		return t
	}
	return strictTest{t}
}

// strictTest is a test that must not be skipped.
type strictTest struct{ testing.TB }

// Skipf fails the test.
func (r strictTest) Skipf(format string, args ...any) {
	r.Helper()
	r.Fatalf(format+"\n(set "+requireVariable+"=0 to skip such tests)", args...)
}
