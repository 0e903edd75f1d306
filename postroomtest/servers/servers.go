// Package servers gives tests real servers: a PostgreSQL database with Postroom's tables, and a
// NATS server with JetStream. Each test has its own database and NATS server. The package removes
// them when the test ends.
//
//	pool, nc := servers.Postgres(t), servers.NATS(t)
//
// PostgreSQL is the server that POSTROOM_TEST_DATABASE_URL names. The role in this URL must have the
// right to create databases. If the variable is not set, the package makes a throwaway cluster with
// the programs on this machine. NATS is the program that
// POSTROOM_TEST_BROKER names. If that variable is not set, the program is nats-server on the PATH,
// or else a program that the package builds once with go install, in the user's cache. Package
// [github.com/postroom/postroom/postroomtest/containers] has the same functions, and runs both
// servers in containers.
//
// The first test of a process starts PostgreSQL, which takes about a second. Each database is a
// copy of a database that was migrated once. The servers end when the test process ends, even if
// that process is killed.
//
// If there is no server for a test, the test fails and says what to install, because a skipped test
// looks like a test that passed. With POSTROOM_TEST_REQUIRE=0 the package skips such tests.
//
// The package is in the library's module, because it adds no dependency to this module: it starts
// the servers as separate programs. If the package were a module of its own that contains the NATS
// server, each release of the library would also need a release of that module. And users would
// compile the NATS server into each test.
package servers

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// Postgres returns a pool for a new, migrated database of the test. It closes the pool and drops
// the database when the test ends.
func Postgres(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return devtest.Pool(devtest.Strict(t))
}

// PostgresURL returns the URL of a new, migrated database, for a test that opens its own
// connections or starts programs. When the test ends, PostgresURL ends the sessions that are left
// and drops the database.
func PostgresURL(t testing.TB) string {
	t.Helper()
	return devtest.DatabaseURL(devtest.Strict(t))
}

// NATS returns a connection to a new server for the test. The connection has the options of
// [natsjs.ConnectOptions], and its ConnectedUrl is the server's URL. NATS closes the connection and
// stops the server when the test ends.
func NATS(t testing.TB) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(devtest.OwnNATS(devtest.Strict(t)).URL(), append(natsjs.ConnectOptions(), nats.Name(t.Name()))...)
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
