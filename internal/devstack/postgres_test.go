package devstack_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devstack"
)

func start(t *testing.T, cfg devstack.Config) *devstack.Postgres {
	t.Helper()
	local(t)
	cfg.Local = true
	p, err := devstack.StartPostgres(t.Context(), cfg)
	check(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestCommittedRowsSurviveKillAndRestart(t *testing.T) {
	t.Parallel()
	p := start(t, devstack.Config{})
	conn, err := pgx.Connect(t.Context(), p.URL())
	check(t, err)
	_, err = conn.Exec(t.Context(), "SET synchronous_commit = on; CREATE TABLE t AS SELECT 1 AS n")
	check(t, err)
	before := p.URL()

	for range 2 {
		check(t, p.Kill())
		check(t, p.Restart(t.Context()))
	}

	if p.URL() != before {
		t.Errorf("URL is %s after the restart, was %s", p.URL(), before)
	}
	var n int
	query(t, p.URL(), "SELECT n FROM t", &n)
	if n != 1 {
		t.Errorf("n is %d, want 1", n)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection survived the kill")
	}
}

func TestRestartStopsARunningServer(t *testing.T) {
	t.Parallel()
	p := start(t, devstack.Config{})
	first, err := devstack.PostmasterPID(p.Dir())
	check(t, err)
	check(t, p.Restart(t.Context()))
	second, err := devstack.PostmasterPID(p.Dir())
	check(t, err)
	if first == second || running(first) {
		t.Errorf("postmaster %d still runs, new one is %d", first, second)
	}
}

func TestCloseCleansUpAfterKill(t *testing.T) {
	t.Parallel()
	p := start(t, devstack.Config{})
	dir := p.Dir()
	check(t, p.Kill())
	if err := p.Kill(); err == nil {
		t.Error("a second Kill found a server")
	}
	check(t, p.Close())
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
}

// A session that runs a statement ends when the server is killed.
func TestKillEndsSessions(t *testing.T) {
	t.Parallel()
	p := start(t, devstack.Config{})
	for range 20 {
		conn, err := pgx.Connect(t.Context(), p.URL())
		check(t, err)
		_, err = conn.Exec(t.Context(), "SELECT")
		check(t, err)
		check(t, p.Kill())
		if _, err := conn.Exec(t.Context(), "SELECT"); err == nil {
			t.Error("a session answered after its server was killed")
		}
		check(t, p.Restart(t.Context()))
	}
}

// The sessions that make databases end with the server, and new ones take their place.
func TestDatabasesAreMadeAfterARestart(t *testing.T) {
	t.Parallel()
	p := start(t, devstack.Config{})
	for _, name := range []string{"first", "second"} {
		_, err := p.CreateDatabase(t.Context(), name, "")
		check(t, err)
		check(t, p.Restart(t.Context()))
	}
	check(t, p.DropDatabase(t.Context(), "first"))
}

func TestDatabasesAreClonedAndDropped(t *testing.T) {
	t.Parallel()
	p := start(t, devstack.Config{})
	template, err := p.CreateDatabase(t.Context(), "the template", "")
	check(t, err)
	conn, err := pgx.Connect(t.Context(), template)
	check(t, err)
	_, err = conn.Exec(t.Context(), "CREATE TABLE t AS SELECT 7 AS n")
	check(t, err)
	check(t, conn.Close(t.Context()))

	clone, err := p.CreateDatabase(t.Context(), `odd "name'`, "the template")
	check(t, err)
	var n int
	query(t, clone, "SELECT n FROM t", &n)
	if n != 7 {
		t.Errorf("n is %d, want 7", n)
	}

	conn, err = pgx.Connect(t.Context(), clone) // this session must not prevent the drop
	check(t, err)
	defer func() { _ = conn.Close(context.Background()) }() // the server ended it
	check(t, p.DropDatabase(t.Context(), `odd "name'`))
	check(t, p.DropDatabase(t.Context(), `odd "name'`))
}

func TestTheGivenServerComesFirstAndKeepsRunning(t *testing.T) {
	p := start(t, devstack.Config{})
	t.Setenv("POSTROOM_TEST_DATABASE_URL", p.URL())
	given, err := devstack.StartPostgres(t.Context(), devstack.Config{})
	check(t, err)
	if given.URL() != p.URL() || given.Source() != "POSTROOM_TEST_DATABASE_URL" {
		t.Errorf("got %s from %s", given.URL(), given.Source())
	}
	if err := given.Kill(); !errors.Is(err, devstack.ErrNotLocal) {
		t.Errorf("Kill of the user's server: %v, want ErrNotLocal", err)
	}
	if err := given.Restart(t.Context()); !errors.Is(err, devstack.ErrNotLocal) {
		t.Errorf("Restart of the user's server: %v, want ErrNotLocal", err)
	}
	_, err = p.CreateDatabase(t.Context(), "theirs", "")
	check(t, err)
	if err := given.DropDatabase(t.Context(), "theirs"); err == nil {
		t.Error("dropped a database it did not create")
	}
	_, err = given.CreateDatabase(t.Context(), "ours", "")
	check(t, err)

	check(t, given.Close())
	check(t, given.Close())
	var names []string
	query(t, p.URL(), "SELECT array_agg(datname::text) FROM pg_database WHERE datname IN ('ours', 'theirs')", &names)
	if len(names) != 1 || names[0] != "theirs" {
		t.Errorf("databases after Close are %v, want theirs only", names)
	}
}

func TestAGivenServerThatFailsIsNotReplaced(t *testing.T) {
	t.Setenv("POSTROOM_TEST_DATABASE_URL", "postgres://postgres@127.0.0.1:1/postgres?connect_timeout=2")
	_, err := devstack.StartPostgres(t.Context(), devstack.Config{})
	if err == nil || !strings.Contains(err.Error(), "POSTROOM_TEST_DATABASE_URL") {
		t.Errorf("error is %v, want one that names POSTROOM_TEST_DATABASE_URL", err)
	}
}

func TestNoServerAtAllSaysWhatToInstall(t *testing.T) {
	t.Setenv("POSTROOM_TEST_DATABASE_URL", "")
	_, err := devstack.StartPostgres(t.Context(), devstack.Config{Dir: "/does/not/exist"})
	for _, want := range []string{
		"sudo apt-get install postgresql", "make setup", "brew install postgresql@17", "postroomtest/containers",
		"POSTROOM_TEST_DATABASE_URL", "What was tried:\n\n",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
}

func TestDatabaseURLChangesOnlyTheDatabase(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, server, want string }{
		{"URL", "postgres://u:p@h:1/a?sslmode=disable", "postgres://u:p@h:1/n?sslmode=disable"},
		{"URL without a database", "postgresql://h", "postgresql://h/n"},
		{"database as a parameter", "postgres://h/?dbname=a&user=u", "postgres://h/n?user=u"},
		{"key=value", "host=h dbname=a", "host=h dbname=a dbname='n'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := devstack.DatabaseURL(tt.server, "n")
			check(t, err)
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			parsed, err := pgx.ParseConfig(got)
			check(t, err)
			if parsed.Database != "n" {
				t.Errorf("database is %q", parsed.Database)
			}
		})
	}
}

func TestABadURLDoesNotShowItsPassword(t *testing.T) {
	t.Parallel()
	_, err := devstack.DatabaseURL("postgres://u:secret@h:port/", "n")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error is %v", err)
	}
}
