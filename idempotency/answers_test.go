package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

func pgxpoolWith(t *testing.T, cfg *pgxpool.Config) (*pgxpool.Pool, error) {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err == nil {
		t.Cleanup(pool.Close)
	}
	return pool, err
}

// The client gets nothing that is not committed.
func TestTheAnswerLeavesAfterTheCommit(t *testing.T) { // E21, E22
	t.Parallel()
	r := newRig(t)
	g := newGate(func(http.ResponseWriter, *http.Request) {})
	path := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
		r.insert(req.Context())
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set(http.TrailerPrefix+"X-Other", "1")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusTeapot) // too late
		_, _ = w.Write([]byte("made"))
		w.Header().Set("X-Late", "1")
		c := http.NewResponseController(w)
		if err := c.Flush(); err != nil {
			r.Errorf("Flush = %v", err)
		}
		if _, _, err := c.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			r.Errorf("Hijack = %v", err)
		}
		if err := c.EnableFullDuplex(); !errors.Is(err, http.ErrNotSupported) {
			r.Errorf("EnableFullDuplex = %v", err)
		}
		g.serve(w, req)
	})
	sent := &watched{ResponseRecorder: httptest.NewRecorder()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		req := request("POST", path, "application/json", "1")
		req.Header.Set("Idempotency-Key", "k")
		req.Header.Set("Authorization", "Bearer ann")
		r.mux.ServeHTTP(sent, req)
	}()
	<-g.entered
	sent.at = func() {
		if r.effects() != 1 || one[int](r, "SELECT count(*) FROM postroom.idempotency") != 1 {
			r.Error("the answer left before the commit")
		}
	}
	g.release()
	<-done
	h := sent.Header()
	if sent.Code != 201 || sent.Body.String() != "made" || h.Get("X-Late") != "" || h.Get("Trailer") != "" || h.Get(http.TrailerPrefix+"X-Other") != "" {
		r.Errorf("answer is %d %v %s", sent.Code, h, sent.Body)
	}
}

// watched calls the function at as soon as an answer begins.
type watched struct {
	*httptest.ResponseRecorder
	at func()
}

func (w *watched) WriteHeader(status int) {
	w.at()
	w.ResponseRecorder.WriteHeader(status)
}

func TestLargeAnswers(t *testing.T) { // E23
	t.Parallel()
	r := newRig(t)
	large := func(w http.ResponseWriter, req *http.Request) {
		r.calls.Add(1)
		if info, _ := idempotency.FromContext(req.Context()); info.Mode == idempotency.TxMode {
			r.insert(req.Context())
		}
		_, err1 := w.Write(make([]byte, 60))
		_, err2 := w.Write(make([]byte, 60))
		if err1 != nil || err2 != nil && !errors.Is(err2, idempotency.ErrTooLarge) {
			r.Errorf("Write = %v, %v", err1, err2)
		}
	}
	path := r.mount(idempotency.Route{MaxResponse: 100}, large)
	r.want(r.post(path, "k"), 500, "response_too_large")
	r.want(r.post(path, "k"), 500, "response_too_large")
	r.wantCalls(2, 0)
	for _, rt := range []idempotency.Route{{MaxResponse: 100, Oversize: idempotency.OversizeDrops}, {MaxResponse: 100, Mode: idempotency.LeaseMode}} {
		r.calls.Store(0)
		path = r.mount(rt, large)
		if w := r.post(path, "k"); w.Code != 200 || w.Body.Len() != 120 {
			r.Errorf("dropped: %d, %d bytes", w.Code, w.Body.Len())
		}
		w := r.post(path, "k")
		r.want(w, 409, "idempotency_response_unavailable")
		if w.Header().Get("Retry-After") != "" {
			r.Error("a client is told to retry, although a retry cannot succeed")
		}
		r.wantCalls(1, 1)
	}
	path = r.mount(idempotency.Route{MaxResponse: 120}, large)
	r.want(r.post(path, "k"), 200, "")
}

func TestBodiesOfAReplay(t *testing.T) { // E25
	t.Parallel()
	r := newRig(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, h := range map[string]http.HandlerFunc{
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"no status":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"every byte":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(all) },
		"spelled JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"b": 1.0,  "a":1}` + "\n")) },
		"no content":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); _, _ = w.Write([]byte("x")) },
		"not modified": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) },
		"own length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = w.Write([]byte("four"))
		},
		"compressed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("\x1f\x8b"))
		},
		"status of its": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299); _, _ = w.Write([]byte("odd")) },
	} {
		path := r.mount(idempotency.Route{}, h)
		first, second := r.post(path, "k"), r.post(path, "k")
		r.wantReplay(first, second)
		for _, header := range []string{"Content-Type", "Content-Length", "Content-Encoding"} {
			if a, b := first.Header().Get(header), second.Header().Get(header); a != b {
				r.Errorf("%s: %s was %q and is repeated as %q", name, header, a, b)
			}
		}
		if first.Header().Get("Content-Length") == "9" {
			r.Errorf("%s: a wrong length was sent", name)
		}
	}
}

func TestAuthorizeReplay(t *testing.T) { // E26
	t.Parallel()
	r := newRig(t)
	var seen idempotency.Record
	path := r.mount(idempotency.Route{AuthorizeReplay: func(_ *http.Request, rec idempotency.Record) error {
		seen = rec
		return errors.New("not any more")
	}}, r.refund)
	r.want(r.post(path, "k"), 201, "")
	r.want(r.post(path, "k"), 403, "replay_refused")
	if seen.Response.Status != 201 || seen.Principal != "ann" {
		r.Errorf("asked about %+v", seen)
	}
	r.wantCalls(1, 1)
}

// turn is a Codec that inverts every bit.
type turn struct{}

func (turn) Encode(_ context.Context, _ idempotency.Key, body []byte) ([]byte, error) {
	out := bytes.Clone(body)
	for i := range out {
		out[i] ^= 0xff
	}
	return out, nil
}

func (turn) Decode(ctx context.Context, k idempotency.Key, kept []byte) ([]byte, error) {
	return turn{}.Encode(ctx, k, kept)
}

func TestPersonalData(t *testing.T) { // E28
	t.Parallel()
	r := newRig(t, func(c *idempotency.Config) { c.Codec = turn{} })
	path := r.mount(idempotency.Route{}, r.refund)
	first := r.post(path, "k")
	r.wantReplay(first, r.post(path, "k"))
	if one[bool](r, "SELECT position('call' IN encode(body, 'escape')) > 0 FROM postroom.idempotency") {
		r.Error("the body is stored unencrypted")
	}
	k := idempotency.Key{Scope: "POST " + path, Principal: "ann", Value: "k"}
	if err := r.guard.Delete(t.Context(), k); err != nil {
		r.Errorf("Delete = %v", err)
	}
	if err := r.guard.Delete(t.Context(), k); !errors.Is(err, idempotency.ErrNotFound) {
		r.Errorf("Delete of a key that does not exist = %v", err)
	}
	if _, err := r.guard.Get(t.Context(), k); !errors.Is(err, idempotency.ErrNotFound) {
		r.Errorf("Get of a key that does not exist = %v", err)
	}
}

func TestPanics(t *testing.T) { // E29
	t.Parallel()
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		r := newRig(t)
		for _, value := range []any{"out of order", http.ErrAbortHandler} {
			r.calls.Store(0)
			path := r.mount(idempotency.Route{Mode: mode, Store: idempotency.StoreAll}, func(w http.ResponseWriter, req *http.Request) {
				if mode == idempotency.TxMode {
					r.insert(req.Context())
				}
				w.WriteHeader(http.StatusCreated)
				if r.calls.Add(1) == 1 {
					panic(value)
				}
			})
			func() {
				defer func() {
					if got := recover(); got != value {
						r.Errorf("the panic became %v", got)
					}
				}()
				r.post(path, "k")
			}()
			if n := r.effects(); n != 0 {
				r.Errorf("%d effects after a panic", n)
			}
			w := r.post(path, "k") // at once: the key is free
			r.want(w, 201, "")
			r.exec("TRUNCATE ledger")
		}
		if n := r.pool.Stat().AcquiredConns(); n != 0 {
			r.Errorf("%d connections are lost", n)
		}
	}
}

// The client goes away while its handler works. The handler finishes its work, and the retry gets
// the answer.
func TestDisconnect(t *testing.T) { // E30
	t.Parallel()
	r := newRig(t)
	for _, cancels := range []bool{false, true} {
		r.calls.Store(0)
		r.exec("TRUNCATE ledger")
		g := newGate(func(w http.ResponseWriter, req *http.Request) {
			if ended := req.Context().Err() != nil; ended != cancels {
				r.Errorf("the handler's context has ended: %t", ended)
			}
			w.WriteHeader(http.StatusCreated)
		})
		path := r.mount(idempotency.Route{CancelOnDisconnect: cancels}, func(w http.ResponseWriter, req *http.Request) {
			r.calls.Add(1)
			r.insert(req.Context())
			g.serve(w, req)
		})
		ctx, leave := context.WithCancel(t.Context())
		answer := r.inside(g, path, sending{key: "k", ctx: ctx})
		leave()
		w := answer()
		if cancels {
			r.want(w, 503, "")
			r.wantCalls(1, 0)
			continue
		}
		r.want(w, 201, "")
		r.wantReplay(w, r.post(path, "k"))
		r.wantCalls(1, 1)
	}
}

func TestGuardChecksTheTransactionOfAHandler(t *testing.T) { // E31, E32
	t.Parallel()
	r := newRig(t)
	run := func(rt idempotency.Route, then func(ctx context.Context, tx pgx.Tx)) *httptest.ResponseRecorder {
		path := r.mount(rt, func(w http.ResponseWriter, req *http.Request) {
			then(req.Context(), idempotency.Tx(req.Context()))
			w.WriteHeader(http.StatusCreated)
		})
		if slices.Contains(rt.Optional, http.MethodPost) {
			return r.post(path, "")
		}
		return r.post(path, "k")
	}
	unkeyed := idempotency.Route{Optional: []string{http.MethodPost}}
	exec := func(sql string) func(context.Context, pgx.Tx) {
		return func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, sql) }
	}
	r.exec("INSERT INTO ledger (note) VALUES ('taken')")
	r.want(run(idempotency.Route{}, func(ctx context.Context, tx pgx.Tx) {
		if err := tx.Commit(ctx); !errors.Is(err, idempotency.ErrTxOwned) {
			r.Errorf("Commit = %v", err)
		}
		if err := tx.Rollback(ctx); !errors.Is(err, idempotency.ErrTxOwned) {
			r.Errorf("Rollback = %v", err)
		}
	}), 201, "")
	r.want(run(idempotency.Route{}, exec("nonsense")), 500, "transaction_failed")
	r.want(run(idempotency.Route{}, exec("COMMIT")), 500, "transaction_failed")
	r.want(run(idempotency.Route{Store: idempotency.StoreAll}, exec("ROLLBACK")), 500, "transaction_failed")
	for _, end := range []string{"ROLLBACK AND CHAIN", "ROLLBACK; BEGIN", "COMMIT AND CHAIN", "COMMIT; BEGIN"} {
		other := func(ctx context.Context, tx pgx.Tx) {
			exec(end)(ctx, tx)
			exec("INSERT INTO ledger DEFAULT VALUES")(ctx, tx) // in another transaction, which has the same status
		}
		r.want(run(idempotency.Route{}, other), 500, "transaction_failed")
		r.want(run(idempotency.Route{Store: idempotency.StoreAll}, other), 500, "transaction_failed")
		r.want(run(unkeyed, other), 500, "transaction_failed")
	}
	r.want(run(idempotency.Route{}, exec("INSERT INTO ledger (note) VALUES ('taken')")), 500, "transaction_failed") // at the commit
	r.want(run(idempotency.Route{}, exec("SELECT pg_terminate_backend(pg_backend_pid())")), 503, "idempotency_store_unavailable")
	r.want(run(idempotency.Route{}, func(ctx context.Context, tx pgx.Tx) {
		nested, err := tx.Begin(ctx)
		if err != nil {
			r.Fatal(err)
		}
		_, _ = nested.Exec(ctx, "nonsense")
		if err := nested.Rollback(ctx); err != nil {
			r.Error(err)
		}
	}), 201, "")
	if n := r.effects(); n != 1 {
		r.Errorf("%d rows, want the one that was there", n)
	}

	// A handler keeps its transaction and uses it after the answer: the transaction does nothing.
	var left pgx.Tx
	run(idempotency.Route{}, func(_ context.Context, tx pgx.Tx) { left = tx })
	if _, err := left.Exec(t.Context(), "INSERT INTO ledger DEFAULT VALUES"); !errors.Is(err, pgx.ErrTxClosed) {
		r.Errorf("Exec after the end = %v", err)
	}

	path := r.mount(idempotency.Route{TxRequired: true}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	r.want(r.post(path, "k"), 500, "idempotency_misconfigured")
	func() {
		defer func() {
			if recover() == nil {
				r.Error("Tx outside a handler did not panic")
			}
		}()
		idempotency.Tx(t.Context())
	}()
}

// If a handler takes too long, its context ends.
func TestTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{Timeout: 10 * time.Millisecond}, func(w http.ResponseWriter, req *http.Request) {
		if _, err := idempotency.Tx(req.Context()).Exec(req.Context(), "SELECT pg_sleep(60)"); err != nil {
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	})
	r.want(r.post(path, "k"), 504, "")
	devtest.Eventually(t, patience, "the connection is given back", func() bool { return r.pool.Stat().AcquiredConns() == 0 })
}
