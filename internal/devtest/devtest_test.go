package devtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// TestServers starts the shared servers, so that devtest prints which servers these are. make
// servers runs it.
func TestServers(t *testing.T) {
	devtest.Postgres(t)
	devtest.SharedNATS(t)
}

func TestPoolIsMigrated(t *testing.T) {
	t.Parallel()
	if err := schema.Require(t.Context(), devtest.Pool(t), ""); err != nil {
		t.Error(err)
	}
}

func TestEmptyPoolIsNotMigrated(t *testing.T) {
	t.Parallel()
	if err := schema.Require(t.Context(), devtest.EmptyPool(t), ""); err == nil {
		t.Error("schema is there")
	}
}

func TestTestsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			if _, err := pool.Exec(t.Context(), "CREATE TABLE mine AS SELECT 1"); err != nil {
				t.Error(err)
			}
			if got := pool.Config().MaxConns; got != 20 {
				t.Errorf("MaxConns is %d, want 20", got)
			}
		})
	}
}

func TestClonesOfOneTemplateDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	devtest.Pool(t) // now the template exists
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { devtest.DatabaseURL(t) })
	}
	all.Wait()
}

func TestDatabaseIsDroppedWithItsSessions(t *testing.T) {
	t.Parallel()
	server := devtest.Postgres(t)
	var name string
	var left *pgx.Conn
	t.Run("test", func(t *testing.T) {
		var err error
		left, err = pgx.Connect(context.Background(), devtest.DatabaseURL(t))
		if err != nil {
			t.Fatal(err)
		}
		name = left.Config().Database
	})
	defer func() { _ = left.Close(context.Background()) }() // the server ended it

	admin, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	devtest.Eventually(t, 10*time.Second, "the database to be dropped", func() bool {
		var n int
		if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

func TestOwnPostgresCanBeKilled(t *testing.T) {
	t.Parallel()
	p := devtest.OwnPostgres(t, devstack.Config{})
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNATSIsSharedAndOwnNATSIsNot(t *testing.T) {
	t.Parallel()
	shared, own := devtest.NATS(t), devtest.OwnNATS(t)
	if shared.ConnectedUrl() != devtest.NATSURL(t) || own.URL() == devtest.NATSURL(t) {
		t.Errorf("shared is %s and %s, own is %s", shared.ConnectedUrl(), devtest.NATSURL(t), own.URL())
	}
	own.Stop()
	if err := shared.FlushTimeout(5 * time.Second); err != nil {
		t.Errorf("shared server: %v", err)
	}
}

func TestEventuallyWaitsForItsCondition(t *testing.T) {
	t.Parallel()
	calls := 0
	devtest.Eventually(t, 10*time.Second, "called three times", func() bool { calls++; return calls == 3 })

	failing := &recorder{TB: t, deadline: time.Now().Add(time.Second)}
	func() {
		defer func() { _ = recover() }() // Fatalf of the recorder
		devtest.Eventually(failing, 20*time.Millisecond, "pigs fly", func() bool { return false })
	}()
	if !strings.Contains(failing.said, "pigs fly") {
		t.Errorf("it said %q", failing.said)
	}
}

// Patience allows for a busy machine, but ends before the deadline of go test.
func TestPatience(t *testing.T) {
	for _, tt := range []struct {
		within, deadline time.Duration
		times            string
		want             time.Duration
	}{
		{within: time.Second, deadline: time.Hour, want: time.Minute},
		{within: 10 * time.Second, deadline: time.Hour, want: 100 * time.Second},
		{within: time.Minute, deadline: time.Hour, want: 5 * time.Minute},
		{within: 10 * time.Minute, deadline: time.Hour, want: 10 * time.Minute},
		{within: 10 * time.Second, deadline: time.Minute, want: 40 * time.Second},
		{within: 10 * time.Second, deadline: 5 * time.Second, want: 10 * time.Second},
		{within: 10 * time.Second, deadline: time.Hour, times: "0.5", want: 5 * time.Second},
	} {
		t.Setenv("POSTROOM_TEST_PATIENCE", tt.times)
		got := devtest.Patience(&recorder{TB: t, deadline: time.Now().Add(tt.deadline)}, tt.within)
		if got > tt.want || got < tt.want-time.Second {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// recorder is a test that notes how it fails.
type recorder struct {
	testing.TB
	said     string
	deadline time.Time
}

// Deadline returns the deadline of go test. A wait must end before it.
func (r *recorder) Deadline() (time.Time, bool) { return r.deadline, true }

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	panic(r)
}

// TestWithoutPostgres runs TestProbe in another process.
func TestProbe(t *testing.T) {
	if os.Getenv("DEVTEST_PROBE") == "" {
		t.Skip("run by TestWithoutPostgres")
	}
	devtest.Pool(t)
}

func TestWithoutPostgres(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, require, want string }{
		{"tests are skipped, loudly", "", "--- SKIP: TestProbe"},
		{"tests fail where servers are required", "1", "--- FAIL: TestProbe"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestProbe$", "-test.v")
			cmd.Env = append(os.Environ(), "DEVTEST_PROBE=1", "POSTROOM_TEST_REQUIRE="+tt.require,
				"POSTROOM_TEST_SERVERS=", "POSTROOM_TEST_DATABASE_URL=postgres://postgres@127.0.0.1:1/postgres?connect_timeout=2")
			out, err := cmd.CombinedOutput()
			if (err != nil) != (tt.require == "1") {
				t.Errorf("exit: %v", err)
			}
			for _, want := range []string{tt.want, "NO POSTGRESQL", "POSTROOM_TEST_DATABASE_URL"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("output does not say %q:\n%s", want, out)
				}
			}
		})
	}
}

// If a user asks for containers and there are none, tests fail. They do not use other servers, and
// are not skipped.
func TestWithoutTheServersThatWereAskedFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, servers, want string }{
		{"images that cannot be had", "containers", "make test-containers finds or makes images"},
		{"a word that says nothing", "boxes", `POSTROOM_TEST_SERVERS is "boxes", want local, containers or nothing`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const nobody = "127.0.0.1:1/nobody/serves:this"
			cmd := exec.Command(os.Args[0], "-test.run=^TestPoolIsMigrated$", "-test.v")
			cmd.Env = append(os.Environ(), "POSTROOM_TEST_SERVERS="+tt.servers, "POSTROOM_TEST_REQUIRE=",
				"POSTROOM_POSTGRES_IMAGE="+nobody, "POSTROOM_NATS_IMAGE="+nobody)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), tt.want) || strings.Contains(string(out), "=== RUN") {
				t.Errorf("%v; want a failure before any test that says %q:\n%s", err, tt.want, out)
			}
		})
	}
}

func BenchmarkPool(b *testing.B) {
	devtest.Pool(b)
	for b.Loop() {
		if err := devtest.Pool(b).Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
