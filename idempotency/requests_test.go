package idempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/postroom/postroom/idempotency"
)

func TestRequestBody(t *testing.T) { // E11
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{MaxBody: 16}, func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodDelete {
			return
		}
		r.calls.Add(1)
		first, _ := io.ReadAll(req.Body)
		again, err := req.GetBody()
		if err != nil {
			r.Fatal(err)
		}
		second, _ := io.ReadAll(again)
		if string(first) != "0123456789abcdef" || string(second) != string(first) || req.ContentLength != 16 {
			r.Errorf("the handler reads %q, %q and %d", first, second, req.ContentLength)
		}
		if req.PathValue("none") != "" || req.Pattern == "" {
			r.Errorf("the pattern is %q", req.Pattern)
		}
		w.WriteHeader(http.StatusOK)
	})
	r.want(r.send(path, sending{key: "k", body: "0123456789abcdefg"}), 413, "request_too_large")
	broken := httptest.NewRequest(http.MethodPost, path, io.MultiReader(strings.NewReader("012"), errReader{}))
	broken.Header.Set("Idempotency-Key", "k")
	broken.Header.Set("Authorization", "Bearer ann")
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, broken)
	r.want(w, 400, "unreadable_request")
	r.wantCalls(0, 0)
	if n := one[int](r, "SELECT count(*) FROM postroom.idempotency"); n != 0 {
		r.Errorf("%d keys are claimed", n)
	}
	r.want(r.send(path, sending{key: "k", body: "0123456789abcdef"}), 200, "")
	none := httptest.NewRequest(http.MethodDelete, path, nil)
	none.Body = nil
	none.Header.Set("Authorization", "Bearer ann")
	r.mux.ServeHTTP(httptest.NewRecorder(), none)
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("the client is gone") }

func TestMultipart(t *testing.T) { // E12
	t.Parallel()
	r := newRig(t)
	for _, allowed := range []bool{false, true} {
		path := r.mount(idempotency.Route{Multipart: allowed}, r.refund)
		send := func(content string) *httptest.ResponseRecorder {
			media, body := form(t, "a.txt", content)
			return r.send(path, sending{key: "k", body: body, header: map[string]string{"Content-Type": media}})
		}
		if !allowed {
			r.want(send("hello"), 415, "multipart_not_supported")
			r.want(send("hello"), 415, "multipart_not_supported")
			if n := strings.Count(r.log.String(), "Route.Multipart"); n != 1 {
				r.Errorf("logged %d times how to mend it", n)
			}
			continue
		}
		r.wantReplay(send("hello"), send("hello"))
		r.want(send("other"), 422, "")
	}
	r.wantCalls(1, 1)
}

func TestBodiesThatAreNoJSON(t *testing.T) { // E13, E14, E15
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	deep := strings.Repeat("[", 100000)
	for name, body := range map[string]string{"invalid": `{"a":`, "twice": `{"a":1,"a":2}`, "deep": deep + strings.Repeat("]", 100000), "gzip": "\x1f\x8b\x08\x00"} {
		r.wantReplay(r.send(path, sending{key: name, body: body}), r.send(path, sending{key: name, body: body}))
		r.want(r.send(path, sending{key: name, body: body + " "}), 422, "")
	}
}

func TestOnePatternManyPaths(t *testing.T) { // E16, E17
	t.Parallel()
	r := newRig(t)
	r.mux.Handle("POST /orders/{id}/pay", r.guard.Handler(idempotency.Route{}, http.HandlerFunc(r.refund)))
	r.want(r.post("/orders/1/pay", "k"), 201, "")
	r.want(r.post("/orders/2/pay", "k"), 422, "")
	w := r.send("/orders/1/pay", sending{key: "k", header: map[string]string{"Date": "x", "Traceparent": "y", "Accept": "text/plain"}}) // E27
	r.want(w, 201, "")
	if got := one[string](r, "SELECT scope::text FROM postroom.idempotency"); got != "POST /orders/{}/pay" {
		r.Errorf("scope is %q", got)
	}
}

func TestWithoutServeMux(t *testing.T) { // E18
	t.Parallel()
	r := newRig(t)
	bare := r.guard.Handler(idempotency.Route{}, http.HandlerFunc(r.refund))
	named := r.guard.Handler(idempotency.Route{Scope: func(*http.Request) string { return "refund" }}, http.HandlerFunc(r.refund))
	for h, want := range map[http.Handler]int{bare: 500, named: 201} {
		req := request("POST", "/x", "application/json", "1")
		req.Header.Set("Idempotency-Key", "k")
		req.Header.Set("Authorization", "Bearer ann")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		r.want(w, want, "")
	}
	if !strings.Contains(r.log.String(), "Route.Scope") {
		r.Error("it is not logged how to mend it")
	}
}

func TestPrincipal(t *testing.T) { // E19
	t.Parallel()
	r := newRig(t, func(c *idempotency.Config) {
		c.Principal = func(req *http.Request) (string, error) {
			who, _ := customer(req)
			if who == "mallory" {
				return "", errors.New("unknown token")
			}
			return strings.TrimPrefix(who, "nobody"), nil
		}
	})
	path := r.mount(idempotency.Route{}, r.refund)
	r.want(r.send(path, sending{key: "k", as: "nobody"}), 401, "missing_principal")
	r.want(r.send(path, sending{key: "k", as: "mallory"}), 401, "missing_principal")
	long := strings.Repeat("x", 300)
	r.wantReplay(r.send(path, sending{key: "k", as: long}), r.send(path, sending{key: "k", as: long}))
	r.wantCalls(1, 1)
	// A principal may have a name that equals the stored digest of another principal. It is not
	// that other principal.
	digest := one[string](r, "SELECT principal FROM postroom.idempotency")
	if w := r.send(path, sending{key: "k", as: digest}); w.Header().Get("Idempotent-Replayed") != "" {
		r.Error("another caller's answer was repeated")
	}
	r.exec("TRUNCATE ledger")

	r.reset(func(c *idempotency.Config) { c.HashPrincipal = true })
	path = r.mount(idempotency.Route{}, r.refund)
	r.wantReplay(r.send(path, sending{key: "h", as: "token"}), r.send(path, sending{key: "h", as: "token"}))
	r.send(path, sending{key: "h", as: "other"})
	r.wantCalls(2, 2)
	if n := one[int](r, "SELECT count(*) FROM postroom.idempotency WHERE principal ~ 'token|other|ann'"); n != 0 {
		r.Error("the database has the token")
	}
	if _, err := r.guard.Get(t.Context(), idempotency.Key{Scope: "POST " + path, Principal: "token", Value: "h"}); err != nil {
		r.Errorf("Get = %v", err)
	}
}

// If middleware outside of the guard refuses a request, the request uses up no key.
func TestMiddlewareRefusesWithoutUsingAKey(t *testing.T) { // E20
	t.Parallel()
	r := newRig(t)
	refuse := true
	guarded := r.guard.Handler(idempotency.Route{}, http.HandlerFunc(r.refund))
	r.mux.HandleFunc("/limited", func(w http.ResponseWriter, req *http.Request) {
		if refuse {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		guarded.ServeHTTP(w, req)
	})
	r.want(r.post("/limited", "k"), 429, "")
	if n := one[int](r, "SELECT count(*) FROM postroom.idempotency"); n != 0 {
		r.Error("a refused request used up its key")
	}
	refuse = false
	r.want(r.post("/limited", "k"), 201, "")
}

// If there are two guards, the inner one passes the request on.
func TestNested(t *testing.T) { // E34
	t.Parallel()
	r := newRig(t)
	inner := r.guard.Handler(idempotency.Route{}, http.HandlerFunc(r.refund))
	path := r.mount(idempotency.Route{}, inner.ServeHTTP)
	r.wantReplay(r.post(path, "k"), r.post(path, "k"))
	r.wantCalls(1, 1)
}

// A request without a key contains many requests with their own keys. Each of these is a separate
// operation.
func TestRequestsWithinARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	many := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(r.send(path, sending{key: "k", ctx: req.Context()}).Code)
	})
	r.want(r.send(many, sending{method: "PUT"}), 201, "")
	r.want(r.send(many, sending{method: "PUT"}), 201, "")
	r.wantCalls(1, 1)
}

// A part of a batch that answers with an error leaves its effects in the transaction of the batch, unless
// the batch runs it in a savepoint.
func TestPartOfABatchThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	part := r.mount(idempotency.Route{}, r.failing(http.StatusConflict))
	batch := func(run func(ctx context.Context)) string {
		return r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
			run(req.Context())
			w.WriteHeader(http.StatusMultiStatus)
		})
	}
	inSavepoint := batch(func(ctx context.Context) {
		savepoint, err := idempotency.Tx(ctx).Begin(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		r.want(r.send(part, sending{ctx: ctx}), http.StatusConflict, "")
		if err := savepoint.Rollback(ctx); err != nil {
			t.Error(err)
		}
	})
	r.want(r.post(inSavepoint, "k"), http.StatusMultiStatus, "")
	r.wantCalls(1, 0)
	r.want(r.post(batch(func(ctx context.Context) { r.send(part, sending{ctx: ctx}) }), "k"), http.StatusMultiStatus, "")
	r.wantCalls(2, 1)
}

// A request with a key that is sent inside another request with a key has no transaction of its own
// in which its answer could be kept. The guard refuses it, whichever way the handler made it.
func TestAKeyInsideARequestWithAKeyIsRefused(t *testing.T) {
	t.Parallel()
	made := func(ctx context.Context, key, body string) *http.Request {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/refund", strings.NewReader(body))
		req.Header.Set("Idempotency-Key", key)
		return req
	}
	const outer, own = "k", `{"amount":1000}`
	for name, inner := range map[string]func(req *http.Request) *http.Request{
		"another key":  func(req *http.Request) *http.Request { return made(req.Context(), "k2", own) },
		"the same key": func(req *http.Request) *http.Request { return made(req.Context(), outer, own) },
		"another body": func(req *http.Request) *http.Request {
			again := req.Clone(req.Context())
			again.Body = io.NopCloser(strings.NewReader(`{"amount":2000}`))
			return again
		},
		"another path": func(req *http.Request) *http.Request {
			again := req.Clone(req.Context())
			again.URL.Path = "/refund"
			return again
		},
		"another key in a copy": func(req *http.Request) *http.Request {
			again := req.Clone(req.Context())
			again.Header.Set("Idempotency-Key", "k2")
			return again
		},
		"another query": func(req *http.Request) *http.Request {
			again := made(req.Context(), outer, own)
			again.URL.Path, again.RequestURI = req.URL.Path, req.RequestURI+"?part=2"
			return again
		},
		"another query in a copy": func(req *http.Request) *http.Request {
			again := req.Clone(req.Context())
			again.URL.RawQuery = "part=2"
			return again
		},
		"another method": func(req *http.Request) *http.Request {
			again := req.Clone(req.Context())
			again.Method = http.MethodPatch
			return again
		},
		"a key that is not valid": func(req *http.Request) *http.Request { return made(req.Context(), "k k", own) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			refund := r.guard.Handler(idempotency.Route{Scope: func(*http.Request) string { return "refund" }}, http.HandlerFunc(r.refund))
			many := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
				w.WriteHeader(http.StatusMultiStatus)
				for range 3 {
					sub := httptest.NewRecorder()
					refund.ServeHTTP(sub, inner(req))
					r.want(sub, 500, "idempotency_misconfigured")
					if !strings.Contains(sub.Body.String(), "inside another request with a key") {
						r.Errorf("the answer does not name the fault: %s", sub.Body)
					}
				}
			})
			r.want(r.post(many, outer), 207, "")
			r.wantCalls(0, 0)
		})
	}
}

// The key of a request also protects what its handler sends without a key.
func TestARequestWithoutAKeyInsideARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	many := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
		for range 2 {
			r.want(r.send(path, sending{ctx: req.Context()}), 201, "")
		}
	})
	r.wantReplay(r.post(many, "k"), r.post(many, "k"))
	r.wantCalls(2, 2)
}

// The same request may pass a second guard behind a router, which sees another path.
func TestNestedBehindARouter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	router := http.NewServeMux()
	router.Handle("POST /refunds", r.guard.Handler(idempotency.Route{}, http.HandlerFunc(r.refund)))
	r.mux.Handle("/v1/", r.guard.Handler(idempotency.Route{}, http.StripPrefix("/v1", router)))
	r.wantReplay(r.post("/v1/refunds", "k"), r.post("/v1/refunds", "k"))
	r.wantCalls(1, 1)
}

// A guard of another database does not rely on the outer guard: its own keys count.
func TestNestedGuardOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	r, other := newRig(t), newRig(t)
	path := other.mount(idempotency.Route{}, other.refund)
	many := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
		first := other.send(path, sending{key: "k", ctx: req.Context()})
		r.wantReplay(first, other.send(path, sending{key: "k", ctx: req.Context()}))
		r.want(other.send(path, sending{ctx: req.Context()}), 400, "missing_idempotency_key")
		w.WriteHeader(first.Code)
	})
	r.want(r.post(many, "k"), 201, "")
	other.wantCalls(1, 1)
}

// If a handler is run again, it gets the request as it came, even if the first run changed it.
func TestSecondRunGetsTheRequestAsItCame(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen []string
	path := r.mount(idempotency.Route{TxRetries: 1}, func(w http.ResponseWriter, req *http.Request) {
		seen = append(seen, req.URL.Path+" "+req.Header.Get("X-Step"))
		req.URL.Path = "/elsewhere"
		req.Header.Set("X-Step", "2")
		if len(seen) == 1 {
			_, _ = idempotency.Tx(req.Context()).Exec(req.Context(), serialize)
		}
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(path, "k"), 201, "")
	if len(seen) != 2 || seen[0] != seen[1] {
		t.Errorf("the runs saw %q", seen)
	}
}

// If a form was read before the guard, the guard cannot compare the request, and refuses it. With
// a PrintFunc that reads the form it can.
func TestGuardRefusesAFormThatWasReadBefore(t *testing.T) { // E11
	t.Parallel()
	r := newRig(t)
	amount := func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.PostFormValue("amount")) }
	for name, rt := range map[string]idempotency.Route{
		"/form": {},
		"/own":  {PrintFunc: func(req *http.Request, _ []byte) []byte { return []byte(req.PostForm.Encode()) }},
	} {
		guarded := r.guard.Handler(rt, http.HandlerFunc(amount))
		r.mux.HandleFunc(name, func(w http.ResponseWriter, req *http.Request) {
			_ = req.PostFormValue("token")
			req.ContentLength = -1 // as for a chunked body, so that only the form shows that there was a body
			guarded.ServeHTTP(w, req)
		})
	}
	form := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	r.want(r.send("/form", sending{key: "k", body: "amount=1", header: form}), 500, "idempotency_misconfigured")
	r.want(r.send("/own", sending{key: "k", body: "amount=1", header: form}), 200, "")
	r.want(r.send("/own", sending{key: "k", body: "amount=2", header: form}), 422, "")
	path := r.mount(idempotency.Route{}, amount)
	r.want(r.send(path, sending{key: "k", body: "amount=1", header: form}), 200, "")
	r.want(r.send(path, sending{key: "k", body: "amount=2", header: form}), 422, "")
}

// If a middleware decoded a body and did not restore it, the guard cannot compare the request, and
// refuses it. A request without a body is served as usual.
func TestGuardRefusesABodyThatWasReadBefore(t *testing.T) { // E11
	t.Parallel()
	r := newRig(t)
	type amountOf struct{}
	guarded := r.guard.Handler(idempotency.Route{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.calls.Add(1)
		fmt.Fprintf(w, "paid %v", req.Context().Value(amountOf{}))
	}))
	restores := false
	r.mux.HandleFunc("POST /pay", func(w http.ResponseWriter, req *http.Request) {
		text, _ := io.ReadAll(req.Body)
		var in struct{ Amount int }
		_ = json.Unmarshal(text, &in)
		if restores {
			req.Body = io.NopCloser(bytes.NewReader(text))
		}
		guarded.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), amountOf{}, in.Amount)))
	})
	for _, amount := range []string{"10", "9999"} {
		r.want(r.send("/pay", sending{key: "k", body: `{"amount":` + amount + `}`}), 500, "idempotency_misconfigured")
	}
	r.wantCalls(0, 0)
	restores = true
	r.want(r.send("/pay", sending{key: "k", body: `{"amount":10}`}), 200, "")
	r.want(r.send("/pay", sending{key: "k", body: `{"amount":9999}`}), 422, "")
	server := httptest.NewServer(r.mux)
	defer server.Close()
	for name, body := range map[string]io.Reader{"none": nil, "empty": http.NoBody, "chunked": io.MultiReader()} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/pay", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", name)
		req.Header.Set("Authorization", "Bearer ann")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != 200 {
			t.Errorf("without a body (%s): %d", name, resp.StatusCode)
		}
	}
}

// The files of a multipart body do not outlive its request.
func TestFilesOfMultipart(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	path := r.mount(idempotency.Route{Multipart: true, MaxBody: 1 << 20}, func(w http.ResponseWriter, req *http.Request) {
		if err := req.ParseMultipartForm(1); err != nil { // so that the part is stored as a file
			t.Error(err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("%d files, %v: want the one that is uploaded", len(files), err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	body := "--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n" + strings.Repeat("x", 1000) + "\r\n--b--\r\n"
	r.want(r.send(path, sending{key: "k", body: body, header: map[string]string{"Content-Type": "multipart/form-data; boundary=b"}}), 201, "")
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%d files are left, %v", len(files), err)
	}
}

// If a request has a key, the client of net/http may send it again by itself. The second
// request is treated like any other with the same key.
func TestClientResendIsATwin(t *testing.T) { // E35
	t.Parallel()
	r := newRig(t)
	cut := make(chan struct{}, 1)
	path := r.mount(idempotency.Route{}, r.refund)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mux.ServeHTTP(w, req)
		if req.Header.Get("Idempotency-Key") == "k" {
			select {
			case cut <- struct{}{}: // the first answer is lost
				panic(http.ErrAbortHandler)
			default:
			}
		}
	}))
	defer server.Close()
	send := func(key string) (*http.Response, error) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader("1"))
		req.Header.Set("Idempotency-Key", key)
		req.Header.Set("Authorization", "Bearer ann")
		return server.Client().Do(req)
	}
	resp, err := send("warm") // so that the connection has been used before
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	resp, err = send("k")
	if err != nil { // the client may or may not have sent it again
		resp, err = send("k")
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 201 || resp.Header.Get("Idempotent-Replayed") != "true" {
		r.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	r.wantCalls(2, 2)
}

// net/http does not have Host among the headers, but it is compared if a route says so.
func TestHostIsCompared(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{PrintHeaders: []string{"host"}}, r.refund)
	other := r.mount(idempotency.Route{}, r.refund)
	post := func(path, host string) *httptest.ResponseRecorder {
		return r.send("http://"+host+path, sending{key: "k"})
	}
	first := post(path, "a.example")
	r.want(first, 201, "")
	r.wantReplay(first, post(path, "a.example"))
	r.want(post(path, "b.example"), 422, "idempotency_key_payload_mismatch")
	r.wantReplay(post(other, "a.example"), post(other, "b.example"))
}
