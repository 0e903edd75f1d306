package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
)

// wantLater checks that an answer says that nothing was done, and when to send the request again.
func (r *rig) wantLater(name string, req sending, path, code string) {
	r.Helper()
	before := r.effects()
	w := r.send(path, req)
	if w.Code != 503 || codeIn(w) != code || w.Header().Get("Retry-After") != "1" {
		r.Errorf("%s: %d %s, Retry-After %q, want 503 %s and a second", name, w.Code, w.Body, w.Header().Get("Retry-After"), code)
	}
	if n := r.effects() - before; n != 0 {
		r.Errorf("%s: %d effects, want none", name, n)
	}
}

// If a statement fails and the handler answers with success, the guard's answer depends on the
// cause of the failure.
func TestFailuresByTheirCause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ignoring := func(statements ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			r.insert(req.Context())
			for _, sql := range statements {
				_, _ = idempotency.Tx(req.Context()).Exec(req.Context(), sql)
			}
			w.WriteHeader(http.StatusCreated)
		}
	}
	raise := func(code string) string { return "DO $$ BEGIN RAISE SQLSTATE '" + code + "'; END $$" }
	r.exec("CREATE TABLE busy ()")
	holder, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), "LOCK TABLE busy"); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		code string
		do   http.HandlerFunc
		rt   idempotency.Route
	}{
		"a statement's time limit":   {"request_interrupted", ignoring("SET LOCAL statement_timeout = '20ms'", "SELECT pg_sleep(60)", "SELECT 1"), idempotency.Route{}},
		"a lock's time limit":        {"transaction_conflict", ignoring("SET LOCAL lock_timeout = '20ms'", "LOCK TABLE busy"), idempotency.Route{}},
		"the handler's time":         {"request_interrupted", ignoring("SELECT pg_sleep(60)"), idempotency.Route{Timeout: 50 * time.Millisecond}},
		"a serialization failure":    {"transaction_conflict", ignoring(raise("40001")), idempotency.Route{}},
		"a disk that is full":        {"idempotency_store_unavailable", ignoring(raise("53100"), "SELECT 1"), idempotency.Route{}},
		"too little memory":          {"idempotency_store_unavailable", ignoring(raise("53200")), idempotency.Route{}},
		"a server that only reads":   {"idempotency_store_unavailable", ignoring(raise("25006")), idempotency.Route{}},
		"a server that is shut down": {"idempotency_store_unavailable", ignoring("SELECT pg_terminate_backend(pg_backend_pid())"), idempotency.Route{}},
	} {
		r.wantLater(name, sending{key: "k"}, r.mount(tt.rt, tt.do), tt.code)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, sql := range map[string]string{"a wrong statement": "nonsense", "a violated constraint": raise("23514"), "a value": "SELECT 1/0"} {
		w := r.post(r.mount(idempotency.Route{}, ignoring(sql, "SELECT 1")), "k")
		if w.Code != 500 || codeIn(w) != "transaction_failed" || w.Header().Get("Retry-After") != "" {
			t.Errorf("%s: %d %s, want 500, not to be repeated", name, w.Code, w.Body)
		}
	}
	if n := r.effects(); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// If a request ends because of the client's connection or deadline, nothing was done, and the same
// request may be sent again.
func TestInterruptedRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"a deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 20*time.Millisecond)
		},
		"a deadline with a cause": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, 20*time.Millisecond, errors.New("the gateway's patience"))
		},
		"a client that has gone": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			return ctx, cancel
		},
	} {
		ctx, cancel := end(t.Context())
		path := r.mount(idempotency.Route{CancelOnDisconnect: true}, func(w http.ResponseWriter, req *http.Request) {
			if _, err := idempotency.Tx(req.Context()).Exec(req.Context(), "INSERT INTO ledger DEFAULT VALUES"); err != nil && ctx.Err() == nil {
				t.Error(err) // the deadline may come sooner on a busy machine
			}
			if ctx.Err() == nil && name == "a client that has gone" {
				cancel()
			}
			<-ctx.Done()
			w.WriteHeader(http.StatusCreated)
		})
		r.wantLater(name, sending{key: "k", ctx: ctx}, path, "request_interrupted")
		cancel()
		r.want(r.send(path, sending{key: "k"}), 201, "") // ctx has ended, and this request's has not
	}
}

// If a Lookup fails, that does not mean that the call did not happen.
func TestFailedLookupIsNoAnswer(t *testing.T) {
	t.Parallel()
	asked := errors.New("no")
	r := newRig(t, func(c *idempotency.Config) {
		c.Principal = func(*http.Request) (string, error) { return "ann", asked }
	})
	path := r.mount(idempotency.Route{AuthorizeReplay: func(*http.Request, idempotency.Record) error { return asked }}, r.refund)
	r.want(r.post(path, "k"), 401, "missing_principal")
	asked = fmt.Errorf("ask for the session: %w", context.DeadlineExceeded)
	r.wantLater("the principal", sending{key: "k"}, path, "idempotency_store_unavailable")
	asked = nil
	r.want(r.post(path, "k"), 201, "")
	r.reset()
	path = r.mount(idempotency.Route{Scope: func(*http.Request) string { return "s" }, AuthorizeReplay: func(*http.Request, idempotency.Record) error { return asked }}, r.refund)
	r.want(r.post(path, "k"), 201, "")
	r.want(r.post(path, "k"), 201, "")
	asked = errors.New("no")
	r.want(r.post(path, "k"), 403, "replay_refused")
	asked = fmt.Errorf("ask for the right: %w", context.DeadlineExceeded)
	r.wantDone("the right to a replay", r.post(path, "k"))
}

// wantDone checks that an answer says that the request was carried out, and that its answer may come
// later.
func (r *rig) wantDone(what string, w *httptest.ResponseRecorder) {
	r.Helper()
	var p struct {
		Title, Detail string
		Retryable     bool
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		r.Fatal(err)
	}
	says := p.Title + " " + p.Detail
	if w.Code != 503 || codeIn(w) != "idempotency_response_unavailable" || !p.Retryable || w.Header().Get("Retry-After") == "" ||
		!strings.Contains(says, "was carried out") || strings.Contains(says, "nothing was done") {
		r.Errorf("%s: the answer is %d %s, want that it was carried out", what, w.Code, w.Body)
	}
}

// An operation was carried out, and its kept answer cannot be read. The guard says that it was
// carried out, and neither that nothing was done nor that the store is not available.
func TestAnAnswerThatCannotBeReadWasCarriedOut(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"the key is lost": errors.New("its secret was destroyed"), "the codec is late": context.DeadlineExceeded} {
		codec := &slowCodec{}
		r := newRig(t, func(c *idempotency.Config) { c.Codec = codec })
		path := r.mount(idempotency.Route{}, r.refund)
		op := idempotency.Operation{Scope: "s", Key: "k"}
		do := func() (int, idempotency.Outcome, error) {
			return idempotency.Do(t.Context(), r.guard, op, func(context.Context, pgx.Tx) (int, error) { return 7, nil })
		}
		r.want(r.post(path, "k"), 201, "")
		if _, _, err := do(); err != nil {
			t.Fatal(err)
		}
		codec.err = err
		r.wantDone(name, r.post(path, "k"))
		_, _, got := do()
		if !errors.Is(got, idempotency.ErrUnreadable) || !errors.Is(got, err) {
			t.Errorf("%s: Do = %v, want ErrUnreadable", name, got)
		}
		for _, not := range []error{idempotency.ErrUnavailable, idempotency.ErrInterrupted, idempotency.ErrNotCommitted} {
			if errors.Is(got, not) {
				t.Errorf("%s: Do = %v, which says that nothing was done", name, got)
			}
		}
		codec.err = nil
		if _, outcome, err := do(); err != nil || outcome != idempotency.Replayed {
			t.Errorf("%s: Do = %v, %v later", name, outcome, err)
		}
		r.wantCalls(1, 1)
	}
	for name, render := range map[string]func(context.Context, string) (idempotency.Response, error){
		"there is no Render": nil,
		"Render fails": func(context.Context, string) (idempotency.Response, error) {
			return idempotency.Response{}, errors.New("gone")
		},
	} {
		r := newRig(t)
		path := r.mount(idempotency.Route{Render: render}, func(w http.ResponseWriter, req *http.Request) {
			idempotency.KeepRef(req.Context(), "refund 7")
			r.refund(w, req)
		})
		r.want(r.post(path, "k"), 201, "")
		r.wantDone(name, r.post(path, "k"))
		r.wantCalls(1, 1)
	}
}

// slowCodec fails as it is told to.
type slowCodec struct{ err error }

func (c *slowCodec) Encode(_ context.Context, _ idempotency.Key, body []byte) ([]byte, error) {
	return body, c.err
}

func (c *slowCodec) Decode(_ context.Context, _ idempotency.Key, kept []byte) ([]byte, error) {
	return kept, c.err
}

func TestLateCodecInterruptsTheRequest(t *testing.T) {
	t.Parallel()
	codec := &slowCodec{err: fmt.Errorf("ask for the data key: %w", context.DeadlineExceeded)}
	r := newRig(t, func(c *idempotency.Config) { c.Codec = codec })
	path := r.mount(idempotency.Route{}, r.refund)
	r.wantLater("a codec that is late", sending{key: "k"}, path, "request_interrupted")
	codec.err = errors.New("a key that is no key")
	r.want(r.post(path, "k"), 500, "transaction_failed")
	codec.err = nil
	r.want(r.post(path, "k"), 201, "")
}

// Do reports that it was interrupted. An error of its function is returned unchanged.
func TestDoIsInterrupted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err := idempotency.Do(ctx, r.guard, idempotency.Operation{Scope: "s", Key: "k"}, func(context.Context, pgx.Tx) (int, error) {
		<-ctx.Done()
		return 1, nil
	})
	if !errors.Is(err, idempotency.ErrInterrupted) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, idempotency.ErrNotCommitted) {
		t.Errorf("%v, want an interruption", err)
	}
	vendor := fmt.Errorf("call the vendor: %w", context.DeadlineExceeded)
	_, _, err = idempotency.Do(t.Context(), r.guard, idempotency.Operation{Scope: "s", Key: "k"}, func(context.Context, pgx.Tx) (int, error) { return 1, vendor })
	if !errors.Is(err, vendor) || errors.Is(err, idempotency.ErrInterrupted) || errors.Is(err, idempotency.ErrUnavailable) {
		t.Errorf("%v, want the error that the function returned", err)
	}
}
