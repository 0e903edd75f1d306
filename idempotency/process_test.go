package idempotency_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// serve is the server process: POST /refunds in a transaction, POST /payouts and POST
// /charges in lease mode. With the header Crash it is killed, as by kill -9: before or after its
// commit, or during the call of a vendor.
func serve(url string) error {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	guard := idempotency.New(pool, idempotency.Config{Principal: customer, Logger: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	mux.Handle("POST /refunds", guard.Handler(idempotency.Route{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, tx := r.Context(), idempotency.Tx(r.Context())
		var id int64
		if err := tx.QueryRow(ctx, "INSERT INTO refund DEFAULT VALUES RETURNING id").Scan(&id); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if _, err := tx.Exec(ctx, "INSERT INTO entry (refund) VALUES ($1)", id); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		dieIf(r, "before")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":%d,"process":%d}`, id, os.Getpid())
	})))
	mux.Handle("POST /payouts", guard.Handler(idempotency.Route{Mode: idempotency.LeaseMode}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := idempotency.Phase(r.Context(), "refund", func(ctx context.Context, tx pgx.Tx) (id int64, err error) {
			return id, tx.QueryRow(ctx, "INSERT INTO refund DEFAULT VALUES RETURNING id").Scan(&id)
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		dieIf(r, "before")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":%d}`, id)
	})))
	mux.Handle("POST /charges", guard.Handler(idempotency.Route{Mode: idempotency.LeaseMode}, charges(pool)))
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() { // if the test is gone, the server ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(deadly{w, r}, r)
	}))
}

// charges calls a vendor that accepts no keys and can be asked. A table takes the vendor's part.
func charges(vendor *pgxpool.Pool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := idempotency.Call(r.Context(), "charge", func(ctx context.Context, key string) (id int64, err error) {
			dieIf(r, "calling")
			err = vendor.QueryRow(ctx, "INSERT INTO charge (reference) VALUES ($1) RETURNING id", key).Scan(&id)
			dieIf(r, "called")
			return id, err
		}, postroom.Lookup(func(ctx context.Context, key string) (id int64, found bool, err error) {
			err = vendor.QueryRow(ctx, "SELECT id FROM charge WHERE reference = $1", key).Scan(&id)
			if errors.Is(err, pgx.ErrNoRows) {
				return 0, false, nil
			}
			return id, err == nil, err
		}))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"charge":%d}`, id)
	}
}

func dieIf(r *http.Request, when string) {
	if r.Header.Get("Crash") == when {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it is on its way
	}
}

// deadly kills the process just before it sends an answer, after the commit.
type deadly struct {
	http.ResponseWriter
	r *http.Request
}

func (d deadly) WriteHeader(status int) {
	dieIf(d.r, "after")
	d.ResponseWriter.WriteHeader(status)
}

// service is a database with server processes on it.
type service struct {
	*rig
	url string
}

func newService(t *testing.T) *service {
	t.Helper()
	url := devtest.DatabaseURL(t)
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := &service{rig: newRigOn(t, pool), url: url}
	s.exec(`CREATE TABLE refund (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY); CREATE TABLE entry (refund bigint);
		CREATE TABLE charge (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, reference text)`)
	return s
}

// start starts a server process and returns its address.
func (s *service) start() string {
	s.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:noctx // it is killed at the test's end
	cmd.Env = append(os.Environ(), serverVar+"="+s.url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Fatalf("the server process did not start: %v", err)
	}
	return "http://" + strings.TrimSpace(line)
}

// call sends a request over the network. If the server dies, it returns no status.
func (s *service) call(url, key, crash string) (status int, body string, replayed bool) {
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, url, strings.NewReader(`{"amount":1000}`))
	if err != nil {
		s.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer ann")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Crash", crash)
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	return resp.StatusCode, string(text), resp.Header.Get("Idempotent-Replayed") == "true"
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100, DisableKeepAlives: false}}

// Two processes get a hundred requests with one key at the same time. There is one refund, and one
// entry in the ledger. Then come a hundred replays, all equal byte by byte.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	s := newService(t)
	servers := []string{s.start(), s.start()}
	var created atomic.Int64
	var answer atomic.Value
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			status, body, replayed := s.call(servers[i%2]+"/refunds", "k", "")
			switch {
			case status == 201:
				if !replayed {
					created.Add(1)
				}
				if was := answer.Swap(body); was != nil && was != body {
					t.Errorf("two answers: %s and %s", was, body)
				}
			case status != 409:
				t.Errorf("%d %s", status, body)
			}
		})
	}
	all.Wait()
	if n := created.Load(); n != 1 {
		t.Errorf("%d requests were carried out", n)
	}
	for i := range 100 {
		all.Go(func() {
			if status, body, replayed := s.call(servers[i%2]+"/refunds", "k", ""); status != 201 || !replayed || body != answer.Load() {
				t.Errorf("a replay is %d %s, want %s", status, body, answer.Load())
			}
		})
	}
	all.Wait()
	s.wantRefunds(1)
}

func (s *service) wantRefunds(n int) {
	s.Helper()
	if got := one[string](s.rig, "SELECT (SELECT count(*) FROM refund) || ' ' || (SELECT count(*) FROM entry)"); got != fmt.Sprintf("%d %d", n, n) {
		s.Errorf("refunds and entries: %s, want %d of each", got, n)
	}
}

// If the server is killed before its commit, nothing was done, and the retry does it. If it is
// killed after its commit, the retry gets the answer.
func TestKilledServer(t *testing.T) { // E6
	t.Parallel()
	s := newService(t)
	survivor := s.start()
	for crash, replay := range map[string]bool{"before": false, "after": true} {
		s.exec("TRUNCATE refund, entry")
		if status, body, _ := s.call(s.start()+"/refunds", crash, crash); status != 0 {
			t.Fatalf("the server was not killed: %d %s", status, body)
		}
		var status int
		var replayed bool
		devtest.Eventually(t, patience, "the retry is answered", func() bool { // the server may not have noticed yet that the client is gone
			status, _, replayed = s.call(survivor+"/refunds", crash, "")
			return status != 409
		})
		if status != 201 || replayed != replay {
			t.Errorf("killed %s the commit: %d, a replay: %t", crash, status, replayed)
		}
		s.wantRefunds(1)
	}
}

// In lease mode the claim of the dead process expires, and the retry continues where that process
// stopped.
func TestKilledServerInLeaseMode(t *testing.T) { // E6
	t.Parallel()
	s := newService(t)
	survivor := s.start()
	for _, crash := range []string{"before", "after"} {
		s.exec("TRUNCATE refund")
		if status, _, _ := s.call(s.start()+"/payouts", crash, crash); status != 0 {
			t.Fatalf("the server was not killed: %d", status)
		}
		if crash == "before" {
			if status, _, _ := s.call(survivor+"/payouts", crash, ""); status != 409 {
				t.Errorf("while the claim holds: %d", status)
			}
			s.exec("UPDATE postroom.idempotency SET lease_until = now() - interval '1 s' WHERE state = 'pending'")
		}
		status, body, replayed := s.call(survivor+"/payouts", crash, "")
		if status != 201 || replayed != (crash == "after") {
			t.Errorf("killed %s, the answer was stored: %d %s, a replay: %t", crash, status, body, replayed)
		}
		if n := one[int](s.rig, "SELECT count(*) FROM refund"); n != 1 {
			t.Errorf("%d refunds", n)
		}
	}
}

// The server is killed while it calls a vendor that recognises no repetition, before or after the
// vendor got the call. The retry asks the vendor, and there is one charge.
func TestKilledServerInACall(t *testing.T) { // E6
	t.Parallel()
	s := newService(t)
	survivor := s.start()
	for n, crash := range []string{"calling", "called"} {
		if status, _, _ := s.call(s.start()+"/charges", crash, crash); status != 0 {
			t.Fatalf("the server was not killed: %d", status)
		}
		if got := one[int](s.rig, "SELECT count(*) FROM charge"); got != 2*n { // one of them is from the first round
			t.Fatalf("killed %s: %d charges", crash, got)
		}
		s.exec("UPDATE postroom.idempotency SET lease_until = now() - interval '1 s' WHERE state = 'pending'")
		status, body, _ := s.call(survivor+"/charges", crash, "")
		if got := one[int](s.rig, "SELECT count(*) FROM charge"); status != 201 || got != n+1 || body != fmt.Sprintf(`{"charge":%d}`, n+1) {
			t.Errorf("killed %s, the retry is %d %s, and there are %d charges", crash, status, body, got)
		}
	}
}
