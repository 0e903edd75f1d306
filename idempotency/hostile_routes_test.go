package idempotency_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// Goroutines of a handler take turns with the transaction, and each asks for it.
func TestGoroutinesOfAHandlerAskForTheTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
		var working sync.WaitGroup
		var turn sync.Mutex
		for range 4 {
			working.Go(func() {
				tx := idempotency.Tx(req.Context())
				turn.Lock()
				defer turn.Unlock()
				if _, err := tx.Exec(req.Context(), "INSERT INTO ledger DEFAULT VALUES"); err != nil {
					t.Error(err)
				}
			})
		}
		working.Wait()
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(path, "k"), 201, "")
	if n := r.effects(); n != 4 {
		t.Errorf("%d effects, want 4", n)
	}
}

// Clients go away in the middle of a request, and send it again. The service has time limits outside
// and inside the guard, and its handler sometimes aborts, streams, hijacks or is slow. Each request
// has one effect, and each connection comes back.
func TestClientsThatGoAway(t *testing.T) {
	t.Parallel()
	rnd := devtest.Random(t, 0)
	pool := onePool(t, false)
	r := newRigOn(t, pool)
	var mu sync.Mutex
	odd := func() int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(8)
	}
	handle := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		if _, err := idempotency.Tx(ctx).Exec(ctx, "INSERT INTO ledger (note) VALUES ($1)", string(body)); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		control := http.NewResponseController(w)
		switch odd() {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			if _, _, err := control.Hijack(); err == nil {
				t.Error("an answer was hijacked")
			}
			panic("no connection")
		case 2:
			_ = control.SetWriteDeadline(time.Now())
			_, _ = io.WriteString(w, "a")
			_ = control.Flush()
		case 3:
			_, _ = idempotency.Tx(ctx).Exec(ctx, "SELECT pg_sleep(0.02)")
		case 4:
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			return
		case 5:
			_, _ = idempotency.Tx(ctx).Exec(ctx, "SELECT pg_sleep(600)")
		}
		w.WriteHeader(http.StatusCreated)
	})
	inner := http.TimeoutHandler(handle, 100*time.Millisecond, "slow")
	routes := map[string]idempotency.Route{
		"/plain":  {Timeout: 200 * time.Millisecond, Wait: time.Second},
		"/cancel": {Timeout: 200 * time.Millisecond, CancelOnDisconnect: true, TxRetries: 1, Wait: time.Second},
		"/final":  {Timeout: 200 * time.Millisecond, Store: idempotency.StoreFinal, Wait: time.Second},
	}
	for path, rt := range routes {
		r.mux.Handle(path, http.TimeoutHandler(r.guard.Handler(rt, handle), 150*time.Millisecond, "slow"))
		r.mux.Handle(path+"/inner", r.guard.Handler(rt, inner))
	}
	server := httptest.NewUnstartedServer(r.mux)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	var clients sync.WaitGroup
	want := 0
	for path := range routes {
		for _, path := range []string{path, path + "/inner"} {
			for i := range 4 {
				want++
				clients.Go(func() {
					key := fmt.Sprintf("%s/%d", path, i)
					devtest.Eventually(t, 60*time.Second, key+" to be answered", func() bool {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+odd()*60)*time.Millisecond)
						defer cancel()
						req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+path, strings.NewReader(key))
						if err != nil {
							t.Error(err)
							return true
						}
						req.Header.Set("Idempotency-Key", key)
						req.Header.Set("Authorization", "Bearer ann")
						answer, err := server.Client().Do(req)
						if err != nil {
							return false
						}
						defer answer.Body.Close() //nolint:errcheck // it is only read
						text, err := io.ReadAll(answer.Body)
						if err != nil {
							return false
						}
						switch answer.StatusCode {
						case 200, 201, 418: // 418 is kept by StoreFinal
							return answer.StatusCode != 418 || strings.HasPrefix(path, "/final")
						case 500, 409, 503:
							return false
						}
						t.Errorf("%s: %d %s", key, answer.StatusCode, text)
						return true
					})
				})
			}
		}
	}
	clients.Wait()
	devtest.Eventually(t, 20*time.Second, "each connection to be back", func() bool { return pool.Stat().AcquiredConns() == 0 })
	kept := one[int](r, "SELECT count(*) FROM postroom.idempotency WHERE status IN (200, 201)")
	if all := one[int](r, "SELECT count(*) FROM postroom.idempotency"); all != want {
		t.Errorf("%d answers are kept, want %d", all, want)
	}
	if got, notes := r.effects(), one[int](r, "SELECT count(DISTINCT note) FROM ledger"); got != kept || notes != kept {
		t.Errorf("%d effects of %d requests, want one for each of %d answers", got, notes, kept)
	}
}

// A handler sets an encoding and formats of its own for its transaction. The guard still stores the
// answer under the name of the caller, so a repeated request has no second effect.
func TestTheEncodingOfAHandlerIsItsOwn(t *testing.T) {
	t.Parallel()
	const set = "SET LOCAL client_encoding = 'LATIN1'; SET LOCAL DateStyle = 'German'; SET LOCAL bytea_output = 'escape'"
	r := newRig(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheStatement} {
		r.withPool(4, mode)
		for _, status := range []int{201, 404} {
			path := r.mount(idempotency.Route{Store: idempotency.StoreFinal, Optional: []string{http.MethodPut}}, func(w http.ResponseWriter, req *http.Request) {
				r.insert(req.Context())
				w.Header().Set("X-Region", "Zürich")
				if _, err := idempotency.Tx(req.Context()).Exec(req.Context(), set); err != nil {
					t.Error(err)
				}
				w.WriteHeader(status)
			})
			first := r.send(path, sending{key: "k", as: "Zoë"})
			r.want(first, status, "")
			r.wantReplay(first, r.send(path, sending{key: "k", as: "Zoë"}))
			r.want(r.send(path, sending{method: http.MethodPut}), status, "")
		}
	}
	if n := r.effects(); n != 4 {
		t.Errorf("%d effects, want 4", n)
	}
	run := func() (string, idempotency.Outcome, error) {
		op := idempotency.Operation{Scope: "lease", Key: "k", Principal: "Zoë"}
		return idempotency.DoLease(t.Context(), r.guard, op, func(ctx context.Context) (string, error) {
			return idempotency.Phase(ctx, "größe", func(ctx context.Context, tx pgx.Tx) (string, error) {
				_, err := tx.Exec(ctx, set)
				return "groß", err
			})
		})
	}
	for range 2 {
		if got, _, err := run(); err != nil || got != "groß" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
