package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// jobVar tells an inbox process its job.
const jobVar = "POSTROOM_TEST_JOB"

// quiet discards the logs of inboxes: the tests provoke the failures in them.
var quiet = slog.New(slog.DiscardHandler)

// toParent is the log of an inbox process. The test shows its end if it fails.
var toParent = slog.New(slog.NewTextHandler(os.Stdout, nil))

// job says what an inbox process is to do.
type job struct {
	Stream   string
	Handlers []string
	Workers  int
	Batch    int
	Attempts int
	Order    inbox.Order
	External bool // the handler is external: it has a transaction only to finish an event
	AckWait  time.Duration
	Timeout  time.Duration

	Point string // where the process ends itself; see killer
	Only  string // only for events whose ids begin with this, if a handler is the point
	Spare int    // how often it passes the point before it ends
}

// connect gives a process its job, and connects it to the servers. The process ends with
// SIGTERM, and with the test process.
func connect(job any, tune func(*pgxpool.Config, *nats.Conn)) (ctx context.Context, pool *pgxpool.Pool, nc *nats.Conn, err error) {
	ctx, _ = signal.NotifyContext(context.Background(), syscall.SIGTERM) // for as long as the process lives
	go func() {                                                          // it ends when its parent is gone
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(1)
	}()
	if err := json.Unmarshal([]byte(os.Getenv(jobVar)), job); err != nil {
		return nil, nil, nil, err
	}
	cfg, err := pgxpool.ParseConfig(os.Getenv(dbVar))
	if err != nil {
		return nil, nil, nil, err
	}
	if nc, err = nats.Connect(os.Getenv(natsVar), natsjs.ConnectOptions()...); err != nil {
		return nil, nil, nil, err
	}
	tune(cfg, nc)
	pool, err = pgxpool.NewWithConfig(ctx, cfg)
	return ctx, pool, nc, err
}

// runInbox is the inbox process.
func runInbox() error {
	var j job
	k := &killer{runs: map[*pgx.Conn]string{}}
	ctx, pool, nc, err := connect(&j, func(cfg *pgxpool.Config, nc *nats.Conn) {
		k.job, k.nc = j, nc
		k.left.Store(int64(j.Spare))
		cfg.MaxConns, cfg.ConnConfig.Tracer = int32(len(j.Handlers)*(j.Workers+1)+4), k //nolint:gosec // few
	})
	if err != nil {
		return err
	}
	defer nc.Close()
	defer pool.Close()
	cfg := inbox.Config{AckWait: j.AckWait, IdlePoll: 50 * time.Millisecond, Logger: toParent}
	if j.Point == "on dead" {
		cfg.OnDead = func(context.Context, pgx.Tx, inbox.Letter) error { k.end(); return nil }
	}
	in := inbox.New(pool, nc, cfg)
	for _, name := range j.Handlers {
		sub := inbox.Subscription{
			Name: name, Stream: j.Stream, Types: []string{j.Stream + ".placed"},
			Workers: j.Workers, Batch: j.Batch, Attempts: j.Attempts, Order: j.Order, Timeout: j.Timeout,
			Schedule: postroom.Backoff{20 * time.Millisecond},
		}
		if j.Point == "dedupe key" {
			sub.DedupeKey = k.dedupeKey
		}
		if j.External {
			in.HandleExternal(sub, k.external(name))
		} else {
			in.Handle(sub, k.handler(name, pool))
		}
	}
	return in.Run(ctx)
}

// killer kills its process at one point of a delivery. It recognises the points by the
// statements that pass. It is the tracer of the pool.
type killer struct {
	job

	nc     *nats.Conn
	left   atomic.Int64
	inside atomic.Int64 // running handlers
	failed sync.Map     // the events that failed once

	mu   sync.Mutex
	runs map[*pgx.Conn]string // the first statement of the transaction on a connection
}

// The statements, each with a text that no other has.
var marks = []struct{ kind, text string }{
	{"hold", "INSERT INTO postroom.held"},
	{"decide", "INSERT INTO postroom.inbox"},
	{"claim", "claimed_by = $1"},
	{"settle", "DELETE FROM postroom.held"},
	{"fail", "first_failed_at = coalesce"},
	{"rerun", "set_config('idle_in_transaction_session_timeout', $1"},
}

// kindOf returns the purpose of a statement, or its text.
func kindOf(sql string) string {
	for _, m := range marks {
		if strings.Contains(sql, m.text) {
			return m.kind
		}
	}
	return sql
}

// at kills the process if this is the point.
func (k *killer) at(point string) {
	if point == k.Point && k.left.Add(-1) < 0 {
		k.end()
	}
}

// end kills the process: no deferred function runs. Messages that were sent to the broker
// before do reach it, so that an acknowledgement that was sent too early shows.
func (k *killer) end() {
	_ = k.nc.FlushTimeout(time.Second)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// enter notes the purpose of a transaction on a connection.
func (k *killer) enter(conn *pgx.Conn, kind string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch kind {
	case "decide", "rerun":
		k.runs[conn] = kind
	case "begin": // another transaction begins on the connection
		delete(k.runs, conn)
	}
}

func (k *killer) run(conn *pgx.Conn) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs[conn]
}

type kindKey struct{}

type connKey struct{}

// runOf returns the run to which a handler's transaction belongs. It does not call tx.Conn. After
// such a call the inbox cannot see how the connection is used, and does not begin the next
// transaction on it.
func (k *killer) runOf(ctx context.Context, tx pgx.Tx) (string, error) {
	var conn *pgx.Conn
	_, err := tx.Exec(context.WithValue(ctx, connKey{}, &conn), "SELECT $1::int", 1)
	return k.run(conn), err
}

// reportConn tells runOf on which connection its statement is sent.
func reportConn(ctx context.Context, conn *pgx.Conn) {
	if into, asked := ctx.Value(connKey{}).(**pgx.Conn); asked {
		*into = conn
	}
}

// ends returns which transaction a COMMIT ends. It returns "chain" if the BEGIN of the next
// delivery follows in the batch.
func (k *killer) ends(conn *pgx.Conn, batch []*pgx.QueuedQuery) string {
	for _, q := range slices.Backward(batch) { // a statement that resets the session may follow the COMMIT
		switch {
		case strings.HasPrefix(q.SQL, "COMMIT"):
			return k.run(conn) + " commit"
		case strings.HasPrefix(q.SQL, "BEGIN"):
			return "chain"
		}
	}
	return "chain"
}

// TraceQueryStart implements pgx.QueryTracer.
func (k *killer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	reportConn(ctx, conn)
	kind := kindOf(data.SQL)
	k.enter(conn, kind)
	if kind == "commit" {
		kind = k.run(conn) + " commit"
	}
	k.at(kind + " start")
	return context.WithValue(ctx, kindKey{}, kind)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (k *killer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if kind, _ := ctx.Value(kindKey{}).(string); data.Err == nil && (kind != "claim" || data.CommandTag.RowsAffected() > 0) {
		k.at(kind + " end")
	}
}

// batchEnd is what a batch has done.
type batchEnd struct {
	commit string // the transaction that its COMMIT ends
	kinds  []string
}

// TraceBatchStart implements pgx.BatchTracer.
func (k *killer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	reportConn(ctx, conn)
	ended := new(batchEnd)
	for _, q := range data.Batch.QueuedQueries {
		kind := kindOf(q.SQL)
		if kind == "COMMIT" {
			kind = k.ends(conn, data.Batch.QueuedQueries)
			ended.commit = kind
		}
		k.enter(conn, kind)
		k.at(kind + " start")
	}
	return context.WithValue(ctx, kindKey{}, ended)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (k *killer) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	ended, _ := ctx.Value(kindKey{}).(*batchEnd)
	if kind := kindOf(data.SQL); ended != nil && data.Err == nil && (kind != "claim" || data.CommandTag.RowsAffected() > 0) {
		if kind == "COMMIT" {
			kind = ended.commit
		}
		ended.kinds = append(ended.kinds, kind)
	}
}

// TraceBatchEnd implements pgx.BatchTracer. If the batch belongs to no transaction, it is
// committed now.
func (k *killer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	ended, _ := ctx.Value(kindKey{}).(*batchEnd)
	if ended == nil || data.Err != nil {
		return
	}
	for _, kind := range ended.kinds {
		k.at(kind + " end")
	}
}

var errFlaky = errors.New("fails on purpose")

// dedupeKey makes the keys of a handler. The event killer ends the process.
func (k *killer) dedupeKey(ev postroom.Event) string {
	if ev.ID == "killer" {
		k.end()
	}
	return "own " + strings.TrimSuffix(ev.ID, "-again")
}

// handler notes each event. A flaky event fails once in a process that is to end, or that
// keeps keys in order. A bad one always fails. A killer ends the process.
func (k *killer) handler(name string, pool *pgxpool.Pool) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		beside := k.inside.Add(1) - 1
		defer k.inside.Add(-1)
		run, err := k.runOf(ctx, tx)
		if err != nil {
			return err
		}
		isPoint := strings.HasPrefix(ev.ID, k.Only)
		if isPoint {
			k.at(run + " handler")
		}
		if strings.HasPrefix(ev.ID, "killer") {
			_, err := pool.Exec(ctx, "INSERT INTO killed VALUES ($1, $2)", run, beside)
			if err != nil {
				return err
			}
			k.end()
		}
		if strings.HasPrefix(ev.ID, "slow") {
			if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.1)"); err != nil {
				return err
			}
		}
		if err := note(ctx, tx, name, ev); err != nil {
			return err
		}
		if isPoint {
			k.at(run + " effect")
		}
		_, again := k.failed.LoadOrStore(name+" "+ev.ID, true)
		if strings.HasPrefix(ev.ID, "bad") || strings.HasPrefix(ev.ID, "flaky") && !again && (k.Point != "" || k.Order != inbox.Unordered) {
			return errFlaky
		}
		return nil
	})
}

// inboxProcess is an inbox in a process of its own.
type inboxProcess struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it is gone
	err  error         // how it ended; read it after done
}

// startInbox starts an inbox process, which is killed at the test's end.
func (d *depot) startInbox(j job) *inboxProcess {
	d.Helper()
	return d.startRole("inbox", j)
}

// startRole starts a process that has an inbox, and its job.
func (d *depot) startRole(role string, job any) *inboxProcess {
	d.Helper()
	doc, err := json.Marshal(job)
	if err != nil {
		d.Fatal(err)
	}
	p := &inboxProcess{cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), roleVar+"="+role, dbVar+"="+d.url, natsVar+"="+devtest.NATSURL(d.T), jobVar+"="+string(doc))
	p.cmd.Stdout, p.cmd.Stderr = showLog(d.T, role+" process"), os.Stderr
	if _, err := p.cmd.StdinPipe(); err != nil { // it ends with the test process
		d.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		d.Fatal(err)
	}
	go func() { // ends with the process
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	d.Cleanup(func() { p.signal(syscall.SIGKILL); <-p.done })
	return p
}

func (p *inboxProcess) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // fails if it is gone already

// waitForEnd waits for the end of the process. It returns nil if the process ended itself at its
// point.
func (p *inboxProcess) waitForEnd(patience time.Duration) error {
	select {
	case <-p.done:
	case <-time.After(patience):
		p.signal(syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("the process did not reach its point within %s", patience)
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("it ended otherwise: %w", errors.Join(p.err, errors.New(p.cmd.ProcessState.String())))
	}
	return nil
}

// stop makes the process drain, and fails the test if it does not end well.
func (p *inboxProcess) stop(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	devtest.Receive(t, depotPatience, "the process to end", p.done)
	if p.err != nil {
		t.Errorf("the process ended with %v after SIGTERM", p.err)
	}
}
