package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	event "github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/health"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	port "github.com/postroom/postroom/relay/broker"
)

func TestRelayUsage(t *testing.T) {
	env := environment{"POSTROOM_DATABASE_URL": "postgres://127.0.0.1:1/shop"}
	tests := []struct {
		name string
		env  environment
		args []string
		says string
	}{
		{"no database", nil, nil, "POSTROOM_DATABASE_URL"},
		{"no broker", env, nil, "POSTROOM_NATS_URL"},
		{"an argument", env, []string{"now"}, `unknown command "now"`},
		{"schema", env, []string{"--schema", "pg_x"}, "invalid schema name"},
		{"window", env, []string{"--window", "0"}, "want 1 to 100000"},
		{"unpublished", env, []string{"--max-unpublished", "10"}, "at least 2000"},
		{"lease", env, []string{"--lease", "10ms"}, "at least 1s"},
		{"poll", env, []string{"--idle-poll", "0"}, "at least 1ms"},
		{"drain", env, []string{"--drain-timeout", "0"}, "positive"},
		{"checks", env, []string{"--check-every", "1ms"}, "at least 1s"},
		{"a stream with a wildcard", env, []string{"--stream", "SHOP,order.>"}, "--stream: want names of streams"},
		{"unknown risk", env, []string{"--accept", "rollup,bad-luck"}, "discard-old"},
		{"risk that cannot be accepted", env, []string{"--accept", "sealed"}, "--accept: want one of"},
		{"log format", env, []string{"--log-format", "xml"}, "want one of text, json"},
		{"from the environment", environment{"POSTROOM_RELAY_LEASE": "10ms"}, nil, "at least 1s"},
		{"unreadable in the environment", environment{"POSTROOM_RELAY_WINDOW": "many"}, nil, "POSTROOM_RELAY_WINDOW has no valid value for --window: want 1 to 100000"},
		{"strategy in the environment", environment{"POSTROOM_RELAY_ATOMIC": "perhaps"}, nil, "POSTROOM_RELAY_ATOMIC has no valid value for --atomic: want true or false"},
		{"the flag wins", environment{"POSTROOM_RELAY_WINDOW": "many"}, []string{"--window", "5"}, "POSTROOM_DATABASE_URL"},
		{"a list in the environment", environment{"POSTROOM_RELAY_ACCEPT": "rollup,bad-luck"}, nil, "POSTROOM_RELAY_ACCEPT has no valid value for --accept: want one of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			postroom(t, tt.env, append([]string{"relay"}, tt.args...)...).want(t, exitUsage).says(t, tt.says)
		})
	}
}

func TestHealthEndpoints(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	state := relay.Health{
		State: relay.Starting, Since: at, Err: errors.New("connection refused"), ErrAt: at, Faults: []error{natsjs.Rollup},
		Losses: []relay.Loss{{Stream: "SHOP", Verdict: port.LostTail, FoundAt: at, Events: 7}},
	}
	tests := []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/livez", 200, `{"ok":true,"parts":{"relay":{"ok":true,"health":{"state":"starting","since":"2026-02-03T04:05:06Z","connected":false,"faults":["rollup"],"err":"connection refused","err_at":"2026-02-03T04:05:06Z","losses":[{"stream":"SHOP","verdict":"lost_tail","found_at":"2026-02-03T04:05:06Z","events":7,"out_of_order":0}]}}}}`},
		{"HEAD", "/livez", 200, ""},
		{"GET", "/readyz", 503, `{"ok":false,"why":"relay: the relay is starting: connection refused","parts":{"relay":{"ok":false,"why":"the relay is starting: connection refused","health":{"state":"starting",`},
		{"POST", "/livez", 405, ""},
		{"GET", "/", 404, ""},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		health.Handler(func() relay.Health { return state }, http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil))
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.says) {
			t.Errorf("%s %s = %d %s, want %d %s", tt.method, tt.path, w.Code, w.Body, tt.status, tt.says)
		}
	}
}

// A relay waits for servers that it cannot reach, and logs that many times.
func TestRelayShowsNoPassword(t *testing.T) {
	t.Parallel()
	database := "postgres://me:" + canary + "@127.0.0.1:1/shop"
	broker := "nats://me:" + canary + "@127.0.0.1:1"
	runs := []struct {
		name string
		env  environment
		args []string
		code int
		says []string
	}{
		{"no server", environment{"POSTROOM_DATABASE_URL": database, "POSTROOM_NATS_URL": broker}, nil, exitOK, []string{"refused"}},
		{"no broker", environment{"POSTROOM_DATABASE_URL": devtest.DatabaseURL(t), "POSTROOM_NATS_URL": broker}, nil, exitOK, []string{"no connection to the broker"}},
		{"by flags", nil, []string{"--database-url", database, "--nats-url", broker}, exitOK, []string{"refused"}},
		{"no URL", environment{"POSTROOM_DATABASE_URL": "postgres://me:" + canary + "/x@h/shop"}, nil, exitUsage, nil},
		{"a bad setting of the pool", environment{"POSTROOM_DATABASE_URL": database + "?pool_max_conns=" + canary}, nil, exitUsage, nil},
		{"not a NATS URL", environment{"POSTROOM_DATABASE_URL": database, "POSTROOM_NATS_URL": "nats://me:" + canary + "/x@h"}, nil, exitUsage, nil},
		{"in a wrong variable", environment{"POSTROOM_RELAY_LEASE": database}, nil, exitUsage, nil},
	}
	for _, tt := range runs {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, 10*time.Second))
			defer cancel()
			var out bytes.Buffer
			errs := &outputWatcher{wanted: tt.says, found: cancel}
			code := run(ctx, append([]string{"relay"}, tt.args...), func(n string) string { return tt.env[n] }, &out, errs)
			if code != tt.code {
				t.Errorf("exit status %d, want %d: %s", code, tt.code, errs)
			}
			for _, part := range tt.says {
				if !strings.Contains(errs.String(), part) {
					t.Errorf("the log does not say %q: %s", part, errs)
				}
			}
			for _, part := range []string{canary, canary[:6], canary[6:]} {
				if strings.Contains(out.String()+errs.String(), part) {
					t.Errorf("%q is shown:\n%s%s", part, out.String(), errs.String())
				}
			}
		})
	}
}

// daemon is a relay in its own process.
type daemon struct {
	*testing.T

	cmd     *exec.Cmd
	address string
	done    chan struct{}

	mu  sync.Mutex
	log strings.Builder
}

var healthAddress = regexp.MustCompile(`msg="health endpoints" address=(\S+)`)

func (d *daemon) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(p)
}

func (d *daemon) logged() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// startDaemon starts a relay, which is killed at the test's end.
func startDaemon(t *testing.T, database, broker string, args ...string) *daemon {
	t.Helper()
	args = append([]string{"relay", "--listen", "127.0.0.1:0", "--lease", "1s"}, args...)
	d := &daemon{T: t, cmd: program(t, args...), done: make(chan struct{})}
	d.cmd.Env = append(d.cmd.Env, "POSTROOM_DATABASE_URL="+database, "POSTROOM_NATS_URL="+broker)
	d.cmd.Stderr = d
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait() // exit reads the status
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // fails if the process has ended
		<-d.done
		if t.Failed() {
			t.Logf("log of %v:\n%s", args, d.logged())
		}
	})
	return d
}

// report is what a relay answers of its health.
type report struct {
	OK  bool
	Why string

	State  relay.State
	Faults []string
	Err    string
}

func (d *daemon) get(path string) (r report, ok bool) {
	d.Helper()
	if d.address == "" {
		found := healthAddress.FindStringSubmatch(d.logged())
		if found == nil {
			return r, false
		}
		d.address = found[1]
	}
	resp, err := http.Get("http://" + d.address + path) //nolint:noctx // the test ends by itself
	if err != nil {
		return r, false
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		OK    bool
		Why   string
		Parts struct{ Relay struct{ Health *report } }
	}
	answer.Parts.Relay.Health = &r
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.OK != (resp.StatusCode == http.StatusOK) {
		d.Errorf("%s: status %d with %+v: %v", path, resp.StatusCode, answer, err)
	}
	r.OK, r.Why = answer.OK, answer.Why
	return r, true
}

// metrics returns the page /metrics.
func (d *daemon) metrics() string {
	d.Helper()
	resp, err := http.Get("http://" + d.address + "/metrics") //nolint:noctx // the test ends by itself
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// until waits until the report of /readyz meets a condition.
func (d *daemon) until(what string, cond func(report) bool) {
	d.Helper()
	devtest.Eventually(d.T, 30*time.Second, what, func() bool {
		report, ok := d.get("/readyz")
		return ok && cond(report)
	})
}

func ready(state relay.State) func(report) bool {
	return func(r report) bool { return r.OK && r.State == state }
}

func unready(why string) func(report) bool {
	return func(r report) bool { return !r.OK && strings.Contains(r.Why+r.Err, why) }
}

func (d *daemon) signal(s syscall.Signal) {
	d.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.Fatal(err)
	}
}

// exit waits for the process's end.
func (d *daemon) exit() syscall.WaitStatus {
	d.Helper()
	devtest.Receive(d, 30*time.Second, "the process to end", d.done)
	return d.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func (d *daemon) wantExit(code int) {
	d.Helper()
	if status := d.exit(); !status.Exited() || status.ExitStatus() != code {
		d.Errorf("exit %v, want status %d", d.cmd.ProcessState, code)
	}
}

func placeOrders(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	out := outbox.New(outbox.Config{Source: "/shop"})
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for i := range n {
			if err := out.Write(t.Context(), tx, event.NewEvent("order.placed", i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func orders(t *testing.T, pool *pgxpool.Pool, broker string) (js jetstream.JetStream, stored func() int) {
	t.Helper()
	nc, err := nats.Connect(broker, natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js = devtest.JetStream(t, nc)
	return js, func() int {
		s, err := js.Stream(t.Context(), "SHOP")
		if err != nil {
			return -1
		}
		return int(s.CachedInfo().State.Msgs)
	}
}

func TestRelayDaemon(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T){
		"outage and take-over":            testTakeOver,
		"it starts before its broker":     testStartBeforeBroker,
		"it refuses, and accepts by name": testRefusal,
		"a second signal ends it at once": testSecondSignal,
		"it publishes in atomic batches":  testAtomic,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func testTakeOver(t *testing.T) {
	server, pool := devtest.OwnNATS(t), devtest.Pool(t)
	_, stored := orders(t, pool, server.URL())
	postroom(t, environment{"NATS_URL": server.URL()}, "stream", "ensure", "SHOP", "--subjects", "order.>").want(t, exitOK)

	published := 0
	publishes := func(n int) {
		t.Helper()
		placeOrders(t, pool, n)
		published += n
		devtest.Eventually(t, 20*time.Second, fmt.Sprint(published, " orders in the stream"), func() bool { return stored() == published })
	}

	first := startDaemon(t, databaseURL(pool), server.URL())
	first.until("the first to lead", ready(relay.Leading))
	publishes(20)
	for _, want := range []string{`postroom_relay_leader{lane="outbox"} 1`, `postroom_relay_events_total{outcome="stored"} 20`} {
		devtest.Eventually(t, 20*time.Second, want, func() bool { return strings.Contains(first.metrics(), want) })
	}
	second := startDaemon(t, databaseURL(pool), server.URL())
	second.until("the second to stand by", ready(relay.Standby))

	server.Stop()
	for _, d := range []*daemon{first, second} {
		d.until("it to miss the broker", unready("no connection to the broker"))
		if report, ok := d.get("/livez"); !ok || !report.OK {
			t.Errorf("/livez without a broker: %+v", report)
		}
	}
	placeOrders(t, pool, 10)
	published += 10
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.until("the first to lead again", ready(relay.Leading))
	second.until("the second to stand by again", ready(relay.Standby))
	publishes(1)

	first.signal(syscall.SIGTERM)
	first.wantExit(exitOK)
	second.until("the second to take over", ready(relay.Leading))
	publishes(20)
	second.signal(syscall.SIGINT)
	second.wantExit(exitOK)
}

func testStartBeforeBroker(t *testing.T) {
	server, pool := devtest.OwnNATS(t), devtest.Pool(t)
	server.Stop()
	placeOrders(t, pool, 1)
	d := startDaemon(t, databaseURL(pool), server.URL(), "--check-every", "1s")
	d.until("it to wait for the broker", unready("disconnected"))
	if report, ok := d.get("/livez"); !ok || !report.OK {
		t.Errorf("/livez without a broker: %+v", report)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.until("it to wait for the stream", unready("no stream takes"))
	postroom(t, environment{"NATS_URL": server.URL()}, "stream", "ensure", "SHOP", "--subjects", "order.>").want(t, exitOK)
	d.until("it to be ready", ready(relay.Leading))
}

func testRefusal(t *testing.T) {
	server, pool := devtest.OwnNATS(t), devtest.Pool(t)
	js, _ := orders(t, pool, server.URL())
	cfg := jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}, MaxMsgs: 100}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	placeOrders(t, pool, 1)
	d := startDaemon(t, databaseURL(pool), server.URL())
	d.wantExit(exitFailed)
	for _, want := range []string{"postroom: relay: stream SHOP: it drops old events", "at 100 messages", "--accept discard-old"} {
		if !strings.Contains(d.logged(), want) {
			t.Errorf("the error does not say %q", want)
		}
	}
	d = startDaemon(t, databaseURL(pool), server.URL(), "--accept", "discard-old", "--check-every", "1s", "--log-format", "text")
	d.until("it to be ready with the risk accepted", ready(relay.Leading))

	cfg.AllowRollup = true // a setting that has drifted
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	d.until("the drift to show", func(r report) bool {
		return r.OK && len(r.Faults) == 1 && strings.Contains(r.Faults[0], "rollup")
	})
}

func testSecondSignal(t *testing.T) {
	pool := devtest.Pool(t)
	d := startDaemon(t, databaseURL(pool), devtest.NATSURL(t), "--lease", "1h")
	d.until("it to lead", ready(relay.Leading))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM postroom.relay FOR UPDATE"); err != nil { // so that the relay cannot release the lease
		t.Fatal(err)
	}
	d.signal(syscall.SIGTERM)
	d.until("it to drain", unready("draining"))
	if report, ok := d.get("/livez"); !ok || !report.OK {
		t.Errorf("/livez while draining: %+v", report)
	}
	d.signal(syscall.SIGTERM)
	if status := d.exit(); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("exit %v, want an end by the signal", d.cmd.ProcessState)
	}
}

func testAtomic(t *testing.T) {
	devtest.NeedsNATS(t, devtest.NATS(t), 12)
	server, pool := devtest.OwnNATS(t), devtest.Pool(t)
	orders(t, pool, server.URL())
	env := environment{"NATS_URL": server.URL()}
	postroom(t, env, "stream", "ensure", "SHOP", "--subjects", "order.>").want(t, exitOK)
	placeOrders(t, pool, 20)
	d := startDaemon(t, databaseURL(pool), server.URL(), "--atomic")
	d.wantExit(exitFailed)
	for _, want := range []string{"stream SHOP: it does not allow atomic batches", "postroom.lease.*.SHOP", "stream ensure --atomic"} {
		if !strings.Contains(d.logged(), want) {
			t.Errorf("the error does not say %q", want)
		}
	}
	postroom(t, env, "stream", "ensure", "SHOP", "--subjects", "order.>", "--atomic").want(t, exitOK)
	d = startDaemon(t, databaseURL(pool), server.URL(), "--atomic")
	d.until("it to lead", ready(relay.Leading))
	want := `postroom_relay_events_total{outcome="stored"} 20`
	devtest.Eventually(t, 20*time.Second, want, func() bool { return strings.Contains(d.metrics(), want) })
	d.signal(syscall.SIGTERM)
	d.wantExit(exitOK)
}
