package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
)

// The tests also start the test binary as other processes, and kill these.
const (
	roleVar  = "POSTROOM_TEST_ROLE"
	dbVar    = "POSTROOM_TEST_DATABASE"
	natsVar  = "POSTROOM_TEST_NATS"
	seedVar  = "POSTROOM_TEST_SEED"  // of the failures of a relay's publisher
	pointVar = "POSTROOM_TEST_POINT" // the point at which a Router's process ends itself
)

// quiet discards the logs of parts: the tests provoke the failures in them.
var quiet = slog.New(slog.DiscardHandler)

var shop = outbox.New(outbox.Config{Source: "/shop"})

func TestMain(m *testing.M) {
	roles := map[string]func(ctx context.Context, pool *pgxpool.Pool) error{"relay": runRelay, "router": runRouter}
	role := os.Getenv(roleVar)
	run, ok := roles[role]
	if !ok {
		devtest.Main(m)
		return
	}
	go func() { // the process ends when its parent is gone
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(1)
	}()
	if err := runRole(run); err != nil {
		fmt.Fprintln(os.Stderr, role, "process:", err)
		os.Exit(1)
	}
}

func runRole(run func(ctx context.Context, pool *pgxpool.Pool) error) error {
	cfg, err := pgxpool.ParseConfig(os.Getenv(dbVar))
	if err != nil {
		return err
	}
	cfg.MaxConns = 40
	if point := os.Getenv(pointVar); point != "" {
		cfg.ConnConfig.Tracer = &killer{point: point}
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	return run(context.Background(), pool)
}

// start starts a process, and returns a function that kills it and waits for its end. The
// process is killed at the test's end, too.
func start(t *testing.T, role string, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), roleVar+"="+role), env...)
	p.cmd.Stderr = os.Stderr
	_, err := p.cmd.StdinPipe() // stays open while this process lives
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	return p
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of its end
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it is gone already
	<-p.ended
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func execute(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	must(t, err)
}

// count returns the number that a query returns.
func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	must(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// texts returns the texts that a query returns.
func texts(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), sql, args...) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return all
}
