package webhook_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/schema"
	"github.com/postroom/postroom/webhook"
)

// quiet is a receiver of Standard Webhooks for the handler "apply".
func quiet(in webhook.Acceptor, of *inbox.Inbox) *webhook.Receiver {
	return webhook.Over(in, of, webhook.ReceiverConfig{Source: "/acme", Handler: "apply", Scheme: webhook.Standard(secret), Logger: slog.New(slog.DiscardHandler)})
}

// deadly kills its process, as kill -9 does, before or after the commit of an event whose id
// says so.
type deadly struct{ *inbox.Inbox }

func (d deadly) AcceptAll(ctx context.Context, all ...inbox.Acceptance) ([]inbox.AcceptResult, error) {
	dieIf(all[0].Event.ID == "before" && os.Getenv("CRASH") != "")
	results, err := d.Inbox.AcceptAll(ctx, all...)
	dieIf(all[0].Event.ID == "after" && os.Getenv("CRASH") != "")
	return results, err
}

func dieIf(now bool) {
	if now {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it is on its way
	}
}

// serve is the receiving process. It runs no handler.
func serve(url string) error {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	in := inbox.New(pool, nil, inbox.Config{})
	in.Declare(inbox.Subscription{Name: "apply"})
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() { // if the test is gone, the process ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(listener, quiet(deadly{in}, in))
}

// process starts a receiving process. It returns its address, and a function that kills it.
func process(t *testing.T, url string, crashes bool) (address string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:noctx // it is killed at the test's end
	cmd.Env = append(os.Environ(), serverVar+"="+url)
	if crashes {
		cmd.Env = append(cmd.Env, "CRASH=1")
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the receiving process did not start: %v", err)
	}
	return "http://" + strings.TrimSpace(line), kill
}

// deliver sends an event and returns the status of the answer; 0 if there is none.
func deliver(t *testing.T, url, id string) int {
	r := signed(t, id, `{"type":"paid"}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, r.Body)
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header = r.Header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// applied runs the handler until it has applied n events, and fails the test unless each of
// them had one effect.
func applied(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	in := inbox.New(pool, nil, inbox.Config{Logger: slog.New(slog.DiscardHandler)})
	in.Handle(inbox.Subscription{Name: "apply", Workers: 1}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", ev.ID)
		return err
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	devtest.Eventually(t, patience, "nothing to be held", func() bool { return count(t, pool, "SELECT count(*) FROM postroom.held") == 0 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if all, ids := count(t, pool, "SELECT count(*) FROM effect"), count(t, pool, "SELECT count(DISTINCT id) FROM effect"); all != n || ids != n {
		t.Errorf("%d effects of %d events, want %d", all, ids, n)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The receiving process is killed before its commit, while it waits for the commit, and after the
// commit. No answer was sent, so the provider sends each event again, and each has one effect.
func TestReceiverIsKilled(t *testing.T) {
	t.Parallel()
	url := devtest.DatabaseURL(t)
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE effect (id text)"); err != nil {
		t.Fatal(err)
	}
	held := func() int { return count(t, pool, "SELECT count(*) FROM postroom.held") }
	for want, id := range []string{"before", "after"} {
		address, _ := process(t, url, true)
		if status := deliver(t, address, id); status != 0 || held() != want {
			t.Errorf("killed %s its commit: answered %d, %d events are stored, want %d", id, status, held(), want)
		}
	}
	address, kill := process(t, url, false)
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "LOCK TABLE postroom.held IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan int, 1)
	go func() { answered <- deliver(t, address, "during") }()
	devtest.Eventually(t, patience, "the statement to wait", func() bool {
		return count(t, pool, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'postroom.held'::regclass") > 0
	})
	kill()
	if status := devtest.Receive(t, patience, "the connection to break", answered); status != 0 && status != http.StatusServiceUnavailable {
		t.Errorf("killed while it waited for its commit: answered %d", status)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	address, _ = process(t, url, false)
	for _, id := range []string{"before", "after", "during", "before"} {
		if status := deliver(t, address, id); status != http.StatusOK {
			t.Errorf("%s again: answered %d", id, status)
		}
	}
	applied(t, pool, 3)
}

// PostgreSQL is killed while webhooks come in, and comes back. Events that were answered 200 are
// stored. The others are stored when they are sent again. Each has one effect.
func TestDatabaseIsKilled(t *testing.T) {
	t.Parallel()
	postgres := devtest.OwnPostgres(t, devstack.Config{Durable: true})
	url, err := postgres.CreateDatabase(t.Context(), "outage", "")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := schema.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "CREATE TABLE effect (id text)"); err != nil {
		t.Fatal(err)
	}
	in := inbox.New(pool, nil, inbox.Config{})
	in.Declare(inbox.Subscription{Name: "apply"})
	receiver := quiet(in, in)
	var good, bad atomic.Int64
	var all sync.Map // statuses by id
	var stop atomic.Bool
	var senders sync.WaitGroup
	send := func(id string) int {
		w := httptest.NewRecorder()
		receiver.ServeHTTP(w, signed(t, id, "{}"))
		return w.Code
	}
	for sender := range 4 {
		senders.Go(func() {
			for n := 0; !stop.Load(); n++ {
				id := fmt.Sprintf("%d-%d", sender, n)
				status := send(id)
				all.Store(id, status)
				switch status {
				case http.StatusOK:
					good.Add(1)
				case http.StatusServiceUnavailable:
					bad.Add(1)
					time.Sleep(time.Millisecond) // so that an outage does not lead to thousands of requests
				default:
					t.Errorf("%s is answered %d", id, status)
				}
			}
		})
	}
	more := func(n *atomic.Int64, what string) {
		t.Helper()
		from := n.Load()
		devtest.Eventually(t, patience, what, func() bool { return n.Load() > from+20 })
	}
	more(&good, "webhooks to be stored")
	if err := postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	more(&bad, "webhooks to be answered 503")
	if err := postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	more(&good, "webhooks to be stored again")
	stop.Store(true)
	senders.Wait()
	n := 0
	all.Range(func(id, status any) bool {
		n++
		switch rows := count(t, pool, "SELECT count(*) FROM postroom.held WHERE event_id = $1", id); {
		case status == http.StatusOK && rows != 1:
			t.Errorf("%s was answered 200, and has %d rows", id, rows)
		case status != http.StatusOK && send(id.(string)) != http.StatusOK:
			t.Errorf("%s was not accepted when it was sent again", id)
		}
		return true
	})
	applied(t, pool, n)
}

// A receiver whose pool is closed stores nothing and never says that it did.
func TestPoolIsClosed(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE effect (id text)"); err != nil {
		t.Fatal(err)
	}
	send := func(pool *pgxpool.Pool) *httptest.ResponseRecorder {
		in := inbox.New(pool, nil, inbox.Config{})
		in.Declare(inbox.Subscription{Name: "apply"})
		w := httptest.NewRecorder()
		quiet(in, in).ServeHTTP(w, signed(t, "a", "{}"))
		return w
	}
	closed, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if w := send(closed); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("answered %d %v %s, want 503", w.Code, w.Header(), w.Body)
	}
	if n := count(t, pool, "SELECT count(*) FROM postroom.inbox"); n != 0 {
		t.Errorf("%d events are stored, want none", n)
	}
	if w := send(pool); w.Code != http.StatusOK {
		t.Errorf("sent again: answered %d", w.Code)
	}
	applied(t, pool, 1)
}

// The handler fails, and the provider is not told: the event is tried again, and is dead in the end. A
// known id with another body is a dead letter at once. An id is known only within its source.
func TestFailuresAfterTheAnswer(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	in := inbox.New(pool, nil, inbox.Config{IdlePoll: 20 * time.Millisecond, Logger: silent})
	var calls atomic.Int64
	in.Handle(inbox.Subscription{Name: "apply", Workers: 1, Attempts: 3, Schedule: postroom.Backoff{10 * time.Millisecond}},
		postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
			calls.Add(1)
			return errors.New("broken")
		}))
	send := func(source, body string) {
		t.Helper()
		receiver := webhook.NewReceiver(in, webhook.ReceiverConfig{Source: source, Handler: "apply", Scheme: webhook.Standard(secret), Patience: patience, Logger: silent})
		w := httptest.NewRecorder()
		if receiver.ServeHTTP(w, signed(t, "a", body)); w.Code != http.StatusOK {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
	}
	send("/acme", "{}")
	send("/other", "{}")
	send("/acme", `{"type":"changed"}`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	devtest.Eventually(t, patience, "all to be dead", func() bool { return count(t, pool, "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL") == 0 })
	send("/acme", "{}")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for class, want := range map[string]int{"error": 2, "conflict": 1} {
		if n := count(t, pool, "SELECT count(*) FROM postroom.held WHERE class = $1", class); n != want {
			t.Errorf("%d dead events of class %s, want %d", n, class, want)
		}
	}
	if n := calls.Load(); n != 6 {
		t.Errorf("%d calls, want three for each of two events", n)
	}
}

// A webhook is forwarded once, as an event of the outbox. If its body is not JSON, the event does not
// say so.
func TestForward(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	in := inbox.New(pool, nil, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "apply", Workers: 1}, webhook.Forward(outbox.New(outbox.Config{Source: "/shop"})))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	receiver := webhook.NewReceiver(in, webhook.ReceiverConfig{
		Source: "/acme", Handler: "apply", Scheme: webhook.Standard(secret), Key: func(postroom.Event) string { return "k" },
	})
	for range 3 {
		w := httptest.NewRecorder()
		receiver.ServeHTTP(w, signed(t, "a", `{"type":"paid"}`))
		if w.Code != http.StatusOK {
			t.Fatalf("answered %d %s", w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	receiver.ServeHTTP(w, signed(t, "b", `paid`))
	devtest.Eventually(t, patience, "nothing to be held", func() bool { return count(t, pool, "SELECT count(*) FROM postroom.held") == 0 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := count(t, pool, "SELECT count(*) FROM postroom.outbox WHERE content_type = 'application/octet-stream' AND data = 'paid'"); w.Code != http.StatusOK || n != 1 {
		t.Errorf("answered %d to a body that is no JSON, and forwarded %d", w.Code, n)
	}
	var got, id string
	err := pool.QueryRow(t.Context(), `SELECT event_id, concat_ws(' ', source, type, key, causation_id, correlation_id, content_type, convert_from(data, 'UTF8'), headers) FROM postroom.outbox WHERE data <> 'paid'`).Scan(&id, &got)
	if want := `/shop standard.paid k a a application/json {"type":"paid"} {"webhook-source": "/acme"}`; err != nil || got != want || id == "a" {
		t.Errorf("forwarded %s %s, %v; want %s", id, got, err, want)
	}
	if n := count(t, pool, "SELECT count(*) FROM postroom.outbox"); n != 2 {
		t.Errorf("%d events were forwarded, want 2", n)
	}
}
