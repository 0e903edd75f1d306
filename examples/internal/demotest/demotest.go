// Package demotest has the code that the tests of the examples share.
package demotest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/postroomtest/servers"
)

// UseSharedServer makes an example run on the tests' PostgreSQL, as if that server were the user's
// own.
func UseSharedServer(t *testing.T) {
	t.Helper()
	t.Setenv("POSTROOM_TEST_DATABASE_URL", servers.PostgresURL(t))
}

// Execute runs a command line and returns what it printed, line by line.
func Execute(t *testing.T, ctx context.Context, cmd *cobra.Command, args ...string) ([]string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(ctx)
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), err
}

// RefusesFlags fails the test if a command accepts one of the command lines.
func RefusesFlags(t *testing.T, command func() *cobra.Command, lines ...[]string) {
	t.Helper()
	for _, args := range lines {
		if _, err := Execute(t, t.Context(), command(), args...); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

// Servers returns the tests' PostgreSQL, and a broker for this test alone. It closes the stack when
// the test ends.
func Servers(t *testing.T) *devstack.Stack {
	t.Helper()
	UseSharedServer(t)
	return started(t, devstack.Start)
}

// Postgres returns the tests' PostgreSQL, as an example opens it.
func Postgres(t *testing.T) *devstack.Postgres {
	t.Helper()
	UseSharedServer(t)
	return started(t, devstack.StartPostgres)
}

func started[S io.Closer](t *testing.T, start func(context.Context, devstack.Config) (S, error)) S {
	t.Helper()
	server, err := start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Databases lists the databases on the tests' PostgreSQL. It returns the names that begin with the
// given prefix.
func Databases(t *testing.T, prefix string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), servers.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()                                                                  // the connection is not needed any more
	rows, _ := conn.Query(t.Context(), "SELECT datname::text FROM pg_database WHERE starts_with(datname::text, $1)", prefix) // CollectRows reports the error
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Planted executes sql, which changes rows. Then it runs a proof, and undoes the change.
func Planted(t *testing.T, db interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}, sql string, prove func(ctx context.Context, db demo.Querier) ([]demo.Check, error),
) []demo.Check {
	t.Helper()
	checks, err := planted(t.Context(), db.Begin, sql, prove)
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

func planted(ctx context.Context, begin func(context.Context) (pgx.Tx, error), sql string,
	prove func(ctx context.Context, db demo.Querier) ([]demo.Check, error),
) (checks []demo.Check, err error) {
	tx, err := begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
	tag, err := tx.Exec(ctx, sql)
	if err != nil {
		return nil, err
	}
	if tag.RowsAffected() == 0 {
		return nil, fmt.Errorf("nothing was planted: %s", sql)
	}
	return prove(ctx, tx)
}
