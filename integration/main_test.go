package integration

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	_ "github.com/postroom/postroom/postroomtest/containers" // for POSTROOM_TEST_SERVERS=containers
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// The tests also start the test binary as relay and inbox processes, and kill these.
const (
	roleVar = "POSTROOM_TEST_ROLE"
	dbVar   = "POSTROOM_TEST_DATABASE"
	natsVar = "POSTROOM_TEST_NATS"

	atomicVar = "POSTROOM_TEST_ATOMIC" // if not empty, the relay publishes in atomic batches
	checkVar  = "POSTROOM_TEST_CHECK"  // if not empty, how often the relay compares the streams
)

// lease is short, so that a take-over after a kill does not take long.
const lease = time.Second

// shortWindow accepts short duplicate windows. Tests give streams such a window on purpose, so
// that a repetition is stored again.
var shortWindow = []broker.Risk{natsjs.ShortDuplicateWindow}

func TestMain(m *testing.M) {
	roles := map[string]func() error{"relay": runRelay, "inbox": runInbox, "external": runExternalJob, "operator": runOperator}
	role := os.Getenv(roleVar)
	run, ok := roles[role]
	if !ok {
		// Many tests wait for a lease or for a server, so more of them run together than the machine
		// has processors. -parallel still has the last word.
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
		devtest.Main(m)
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, role, "process:", err)
		os.Exit(1)
	}
}

// runRelay is the relay process.
func runRelay() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv(dbVar))
	if err != nil {
		return err
	}
	defer pool.Close()
	options := append(natsjs.ConnectOptions(), nats.RetryOnFailedConnect(true)) // the test may stop the server at any time
	nc, err := nats.Connect(os.Getenv(natsVar), options...)
	if err != nil {
		return err
	}
	defer nc.Close()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	cfg := relay.Config{Lease: lease, Logger: log, AcceptRisks: shortWindow, Atomic: os.Getenv(atomicVar) != ""}
	if text := os.Getenv(checkVar); text != "" {
		if cfg.CheckEvery, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	return relay.New(pool, natsjs.NewPublisher(nc), cfg).Run(ctx)
}

// lastLines keeps the end of a log.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

// showLog returns a log whose end a test shows if it fails.
func showLog(t *testing.T, whose string) *lastLines {
	l := &lastLines{}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.Failed() && len(l.text) > 0 {
			t.Logf("the log of %s ends with:\n%s", whose, l.text)
		}
	})
	return l
}

func (l *lastLines) Write(p []byte) (int, error) {
	const enough = 16 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if more := len(l.text) - enough; more > enough {
		l.text = append(l.text[:0], l.text[more:]...)
	}
	return len(p), nil
}

// process is a relay in a process of its own.
type process struct {
	cmd  *exec.Cmd
	name string
	log  *lastLines

	mu    sync.Mutex
	terms int // how often it has begun to lead
}

// startRelay starts a relay process, which is killed at the test's end.
func startRelay(t *testing.T, name, databaseURL, natsURL string, more ...string) *process {
	t.Helper()
	if slices.Contains(more, atomicVar+"=yes") {
		devtest.NeedsNATS(t, devtest.NATS(t), 12)
	}
	p := &process{cmd: exec.Command(os.Args[0]), name: name, log: showLog(t, name)}
	p.cmd.Env = append(os.Environ(), roleVar+"=relay", dbVar+"="+databaseURL, natsVar+"="+natsURL)
	p.cmd.Env = append(p.cmd.Env, more...)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.follow(out)
	t.Cleanup(p.kill)
	return p
}

// follow reads the process's log for the beginning of its terms.
func (p *process) follow(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		_, _ = fmt.Fprintln(p.log, lines.Text()) // it cannot fail
		if strings.Contains(lines.Text(), "relay leads") {
			p.mu.Lock()
			p.terms++
			p.mu.Unlock()
		}
	}
}

func (p *process) led() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.terms
}

// kill kills the process, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a stopped process would not be reaped
	_ = p.cmd.Process.Kill()                  // fails if it is gone already
	_ = p.cmd.Wait()
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
