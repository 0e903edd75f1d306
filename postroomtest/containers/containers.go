// Package containers gives tests real servers in containers: a PostgreSQL database with Postroom's
// tables, and a NATS server with JetStream. It has the functions of package
// [github.com/postroom/postroom/postroomtest/servers], so a test chooses between the two packages
// with one import. This package needs Docker, or what answers like it, and no program of PostgreSQL
// or NATS on this machine. It uses testcontainers-go.
//
//	pool, nc := containers.Postgres(t), containers.NATS(t)
//
// The tests of a process share one container of each server. Each test has its own database, and its
// own account of NATS, with its own streams. The package removes them when the test ends. It removes
// the containers when the test process ends, even if that process is killed. It does not need the
// reaper of testcontainers: it disables the reaper, unless TESTCONTAINERS_RYUK_DISABLED is set or
// the process has used testcontainers before.
//
// POSTROOM_POSTGRES_IMAGE and POSTROOM_NATS_IMAGE name the images. The defaults are
// postgres:17-alpine and nats:2. Docker pulls an image only if it does not have the image.
//
// If Docker does not answer, the test fails and says why, because a skipped test looks like a test
// that passed. With POSTROOM_TEST_REQUIRE=0 the package skips such tests.
//
// The package is a module of its own, so that only its users get the modules of testcontainers-go.
// Use the same version of this module as of the library, because it uses the library's internal
// packages.
package containers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/postroomtest/servers"
)

// Postgres returns a pool for a new, migrated database of the test. It closes the pool and drops
// the database when the test ends.
func Postgres(t testing.TB) *pgxpool.Pool {
	t.Helper()
	devtest.UseContainers()
	return servers.Postgres(t)
}

// PostgresURL returns the URL of a new, migrated database, for a test that opens its own
// connections or starts programs. When the test ends, PostgresURL ends the sessions that are left
// and drops the database.
func PostgresURL(t testing.TB) string {
	t.Helper()
	devtest.UseContainers()
	return servers.PostgresURL(t)
}

// NATS returns a connection to a new account for the test. The connection has the options of
// [natsjs.ConnectOptions], and its ConnectedUrl is the account's URL, with user and password. NATS
// closes the connection and removes the account's streams when the test ends.
func NATS(t testing.TB) *nats.Conn {
	t.Helper()
	broker, err := sharedNATS()
	if err != nil {
		devtest.Missing(devtest.Strict(t), err)
	}
	var url string
	select {
	case url = <-broker.accounts:
	default:
		t.Fatalf("containers: more than %d tests use NATS at the same time", accounts)
	}
	t.Cleanup(func() {
		if err := removeStreams(url); err != nil {
			t.Errorf("containers: remove the test's streams: %v", err)
			return
		}
		broker.accounts <- url
	})
	nc, err := nats.Connect(url, append(natsjs.ConnectOptions(), nats.Name(t.Name()))...)
	if err != nil {
		t.Fatalf("containers: connect to the test's account: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Stream makes a stream for the given subjects, with the settings that [natsjs.EnsureStream]
// chooses.
func Stream(t testing.TB, nc *nats.Conn, name string, subjects ...string) {
	t.Helper()
	servers.Stream(t, nc, name, subjects...)
}

// removeStreams removes the streams of an account, so that another test can use the account.
func removeStreams(url string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		err = errors.Join(err, js.DeleteStream(ctx, name))
	}
	if err = errors.Join(err, names.Err()); err != nil {
		return fmt.Errorf("remove streams: %w", err)
	}
	return nil
}
