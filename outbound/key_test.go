package outbound_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// TestOneKeyForAllAttempts is about the sources of the key.
func TestOneKeyForAllAttempts(t *testing.T) {
	hexKey := regexp.MustCompile(`^[0-9a-f]{32}$`)
	tests := []struct {
		name     string
		method   string
		header   string
		context  string
		generate bool
		want     string // "*" is any 32 hexadecimal digits
		attempts int
	}{
		{"of the context", "POST", "", "ctx", false, "ctx", 5},
		{"of the header", "POST", "hdr", "", false, "hdr", 5},
		{"the context's counts for more", "POST", "hdr", "ctx", false, "ctx", 5},
		{"made", "POST", "", "", true, "*", 5},
		{"made only where none is given", "POST", "hdr", "", true, "hdr", 5},
		{"not made where it is not needed", "PUT", "", "", true, "", 5},
		{"given where it is not needed", "DELETE", "", "ctx", false, "ctx", 5},
		{"never with a GET", "GET", "", "ctx", true, "", 5},
		{"none", "POST", "", "", false, "", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, ctx := always(503), t.Context()
			if tt.context != "" {
				ctx = outbound.WithKey(ctx, tt.context)
			}
			req := request(ctx, t, tt.method, "x")
			if tt.header != "" {
				req.Header.Set("Idempotency-Key", tt.header)
			}
			_, err := client(v, outbound.Config{GenerateKeys: tt.generate, Schedule: soon}).Do(req)
			if err == nil || v.count() != tt.attempts {
				t.Fatalf("%v after %d attempts, want %d", err, v.count(), tt.attempts)
			}
			for i, key := range v.keys {
				if tt.want == "*" && (!hexKey.MatchString(key) || key != v.keys[0]) || tt.want != "*" && key != tt.want {
					t.Errorf("attempt %d had key %q, want %q", i+1, key, tt.want)
				}
				if v.bodies[i] != "x" {
					t.Errorf("attempt %d had body %q", i+1, v.bodies[i])
				}
			}
			if got := req.Header.Get("Idempotency-Key"); got != tt.header {
				t.Errorf("the request was changed: its key is %q", got)
			}
		})
	}
}

func TestKeysThatCannotBeSent(t *testing.T) {
	tests := []struct {
		name, key string
		protocol  outbound.Protocol
		body      string
	}{
		{"too long", strings.Repeat("k", 256), outbound.Protocol{}, "x"},
		{"too long for the vendor", strings.Repeat("k", 33), outbound.AmazonPay(), "x"},
		{"with a line break", "k\r\nX-Evil: 1", outbound.Protocol{}, "x"},
		{"not ASCII", "schlüssel", outbound.Protocol{}, "x"},
		{"no place for it", "k", outbound.Square(), "plain text"},
		{"no object", "k", outbound.Square(), `[1]`},
		{"null", "k", outbound.Square(), `null`},
		{"another is there", "k", outbound.Square(), `{"idempotency_key":"other"}`},
		{"nothing is left of it", "k", outbound.Protocol{Format: func(string) string { return "" }}, "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := always(200)
			_, err := client(v, outbound.Config{Protocol: tt.protocol}).Fetch(request(outbound.WithKey(t.Context(), tt.key), t, "POST", tt.body))
			if !errors.Is(err, outbound.ErrNotSent) || v.count() != 0 {
				t.Errorf("Fetch = %v after %d calls, want a refusal", err, v.count())
			}
		})
	}
	for name, lines := range map[string][]string{"empty": {""}, "twice": {"k", "l"}} {
		v := always(200)
		req := request(t.Context(), t, "POST", "x")
		req.Header["Idempotency-Key"] = lines
		if _, err := client(v, outbound.Config{}).Fetch(req); !errors.Is(err, outbound.ErrNotSent) || v.count() != 0 {
			t.Errorf("a header that is %s: %v after %d calls, want a refusal", name, err, v.count())
		}
	}
}

func TestProtocolsCarryKeys(t *testing.T) {
	tests := []struct {
		name     string
		protocol outbound.Protocol
		header   string
		want     string
		body     string
		wantBody string
	}{
		{"any", outbound.Protocol{}, "Idempotency-Key", "k1", "x", "x"},
		{"Stripe", outbound.Stripe(), "Idempotency-Key", "k1", "x", "x"},
		{"PayPal", outbound.PayPal(), "PayPal-Request-Id", "k1", "x", "x"},
		{"Amazon", outbound.AmazonPay(), "X-Amz-Pay-Idempotency-Key", "k1", "x", "x"},
		{"the draft", outbound.Draft(), "Idempotency-Key", `"k1"`, "x", "x"},
		{"a message id", outbound.MessageID("Message-ID", "shop.example"), "Message-ID", "<k1@shop.example>", "x", "x"},
		{"Square", outbound.Square(), "", "", ` { "amount": 1.50 , "a":[1]}` + "\n", ` {"idempotency_key":"k1", "amount": 1.50 , "a":[1]}` + "\n"},
		{"an empty object", outbound.BodyField("request_id"), "", "", `{}`, `{"request_id":"k1"}`},
		{"the same is there", outbound.BodyField("request_id"), "", "", `{"a":1,"request_id":"k1"}`, `{"a":1,"request_id":"k1"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var headers []http.Header
			var lengths []int64
			v := &vendor{answer: func(n int, req *http.Request) (*http.Response, error) {
				headers, lengths = append(headers, req.Header), append(lengths, req.ContentLength)
				return status(map[bool]int{true: 201, false: 503}[n == 2]), nil
			}}
			req := request(outbound.WithKey(t.Context(), "k1"), t, "POST", tt.body)
			if _, err := client(v, outbound.Config{Protocol: tt.protocol, Schedule: soon}).Fetch(req); err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				if v.bodies[i] != tt.wantBody || lengths[i] != int64(len(tt.wantBody)) {
					t.Errorf("body %q of length %d, want %q", v.bodies[i], lengths[i], tt.wantBody)
				}
				if tt.header != "" && headers[i].Get(tt.header) != tt.want {
					t.Errorf("headers %v, want %s: %s", headers[i], tt.header, tt.want)
				}
				if !json.Valid([]byte(v.bodies[i])) && tt.protocol.Field != "" {
					t.Errorf("%s is no JSON", v.bodies[i])
				}
			}
		})
	}
}

func TestKeyOfTheBodyIsKept(t *testing.T) {
	v := always(503)
	_, err := client(v, outbound.Config{Protocol: outbound.Square(), Schedule: soon, GenerateKeys: true}).Do(request(t.Context(), t, "POST", `{"idempotency_key":"mine"}`))
	if !errors.Is(err, outbound.ErrAttempts) || v.bodies[4] != `{"idempotency_key":"mine"}` {
		t.Errorf("%v, bodies %q", err, v.bodies)
	}
}

// A vendor that accepts no keys gets none, because http.Transport itself would repeat a request
// with a key.
func TestNoKeys(t *testing.T) {
	v := always(503)
	req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
	req.Header.Set("Idempotency-Key", "of a library")
	if _, err := client(v, outbound.Config{Protocol: outbound.NoKeys(), GenerateKeys: true}).Do(req); err == nil || v.count() != 1 || v.keys[0] != "" {
		t.Errorf("%v after %d attempts with keys %q, want one without", err, v.count(), v.keys)
	}
}

// TestRedirects makes the first host redirect its callers.
func TestRedirects(t *testing.T) {
	var elsewhere, here atomic.Pointer[http.Request]
	second := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { elsewhere.Store(r) }))
	t.Cleanup(second.Close)
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/out307":
			http.Redirect(w, r, second.URL+"/x", http.StatusTemporaryRedirect)
		case "/out302":
			http.Redirect(w, r, second.URL+"/x", http.StatusFound)
		case "/twice":
			http.Redirect(w, r, "/out307", http.StatusTemporaryRedirect)
		case "/in307":
			http.Redirect(w, r, "/x", http.StatusPermanentRedirect)
		default:
			here.Store(r)
		}
	}))
	t.Cleanup(first.Close)
	tests := []struct {
		name, method, path string
		where              *atomic.Pointer[http.Request] // nil: refused
		key                bool
	}{
		{"a POST within the host", "POST", "/in307", &here, true},
		{"a PUT within the host", "PUT", "/in307", &here, true},
		{"a POST to another", "POST", "/out307", nil, false},
		{"a POST to another, by a detour", "POST", "/twice", nil, false},
		{"a POST that becomes a GET", "POST", "/out302", nil, false},
		{"a PUT to another", "PUT", "/out307", nil, false},
		{"a DELETE by a detour", "DELETE", "/twice", nil, false},
		{"a GET within the host", "GET", "/in307", &here, true},
		{"a GET to another", "GET", "/out302", &elsewhere, false},
		{"a GET by a detour", "GET", "/twice", &elsewhere, false},
		{"a GET with a body by a detour", "GET", "/twice", nil, false},
	}
	for _, given := range []string{"header", "context", "made"} {
		for _, tt := range tests {
			t.Run(tt.name+" with the key of the "+given, func(t *testing.T) {
				elsewhere.Store(nil)
				here.Store(nil)
				ctx := t.Context()
				if given == "context" {
					ctx = outbound.WithKey(ctx, "k1")
				}
				body := "body"
				if tt.name == "a GET by a detour" {
					body = ""
				}
				req := requestTo(ctx, t, tt.method, first.URL+tt.path, body)
				req.Header.Set("Authorization", "Bearer secret")
				req.Header.Set("Cookie", "session=secret")
				req.Header.Set("X-Vendor-Token", "secret")
				req.Header.Set("Accept", "application/json")
				if given == "header" {
					req.Header.Set("Idempotency-Key", "k1")
				}
				_, err := real(t, outbound.Config{GenerateKeys: given == "made"}).Fetch(req)
				if tt.where == nil {
					if !errors.Is(err, outbound.ErrRedirect) || elsewhere.Load() != nil || here.Load() != nil {
						t.Errorf("Fetch = %v, want a refusal", err)
					}
					return
				}
				if err != nil || tt.where.Load() == nil {
					t.Fatalf("Fetch = %v, and did not arrive", err)
				}
				got := tt.where.Load().Header
				keyed := tt.key && (given == "header" || tt.method != "GET" && given == "context" || tt.method == "POST")
				if key := got.Get("Idempotency-Key"); (key != "") != keyed {
					t.Errorf("arrived with key %q", key)
				}
				for _, name := range []string{"Authorization", "Cookie", "X-Vendor-Token"} {
					if secret := got.Get(name); (secret != "") != tt.key {
						t.Errorf("arrived with %s %q", name, secret)
					}
				}
				if got.Get("Accept") != "application/json" {
					t.Error("arrived without Accept")
				}
			})
		}
	}
}

// A key that the request has in its header is not formatted, and a redirect does not change that:
// every attempt sends the same bytes.
func TestAKeyInTheHeaderOutlivesARedirect(t *testing.T) {
	for name, p := range map[string]outbound.Protocol{
		"draft":      outbound.Draft(),
		"message id": outbound.MessageID("Idempotency-Key", "shop.example"),
		"unchanged":  {},
	} {
		t.Run(name, func(t *testing.T) {
			v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
				switch n {
				case 1: // the vendor acts, and its answer is lost
					return nil, errReset
				case 2, 4: // its load balancer redirects
					return status(307, "Location", fmt.Sprint("/", n)), nil
				case 3:
					return nil, errReset
				}
				return status(200), nil
			}}
			req := request(t.Context(), t, "POST", "x")
			req.Header.Set("Idempotency-Key", `"abc"`)
			_, err := client(v, outbound.Config{Protocol: p, Attempts: 6, Schedule: outbound.Exponential{Base: 1, Cap: 1}}).Do(req)
			if want := slices.Repeat([]string{`"abc"`}, 5); err != nil || !slices.Equal(v.keys, want) {
				t.Errorf("%v with keys %q, want %q", err, v.keys, want)
			}
		})
	}
}

// A generated key is the same after a redirect.
func TestAMadeKeyOutlivesARedirect(t *testing.T) {
	var keys []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/x", http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(s.Close)
	if _, err := real(t, outbound.Config{GenerateKeys: true}).Fetch(requestTo(t.Context(), t, "POST", s.URL, "b")); err != nil {
		t.Fatal(err)
	}
	if len(keys) != 2 || keys[0] == "" || keys[0] != keys[1] {
		t.Errorf("keys %q, want the same twice", keys)
	}
}

// TestPostIsRedirectedToItsHostOnly tries redirects to several addresses.
func TestPostIsRedirectedToItsHostOnly(t *testing.T) {
	tests := []struct {
		name, from, to string
		follows        bool
	}{
		{"the same host", "https://api.example/a", "https://api.example/b", true},
		{"its port in words", "https://api.example/a", "https://API.example:443/b", true},
		{"with TLS", "http://api.example/a", "https://api.example/b", true},
		{"without TLS", "https://api.example/a", "http://api.example/b", false},
		{"another port", "https://api.example/a", "https://api.example:8443/b", false},
		{"a host below", "https://api.example/a", "https://eu.api.example/b", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return status(307, "Location", tt.to), nil
				}
				return status(200), nil
			}}
			_, err := client(v, outbound.Config{}).Fetch(requestTo(outbound.WithKey(t.Context(), "k"), t, "POST", tt.from, "x"))
			if (err == nil) != tt.follows || v.count() != map[bool]int{true: 2, false: 1}[tt.follows] {
				t.Errorf("%v after %d calls, follows: %v", err, v.count(), tt.follows)
			}
			if tt.follows && (v.keys[1] != "k" || v.bodies[1] != "x") {
				t.Errorf("keys %q, bodies %q", v.keys, v.bodies)
			}
		})
	}
}

// If a redirect leads to another host and back, the key is not sent again.
func TestKeyIsNotSentBackAfterAnotherHost(t *testing.T) {
	v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
		if n < 3 {
			return status(307, "Location", "https://other.example/"+strings.Repeat("x", n)), nil
		}
		return status(200), nil
	}}
	req := request(t.Context(), t, "GET", "")
	req.Header.Set("Idempotency-Key", "k")
	if _, err := client(v, outbound.Config{}).Fetch(req); err != nil {
		t.Fatal(err)
	}
	if strings.Join(v.keys, ",") != "k,," {
		t.Errorf("keys %q, want none at the other host", v.keys)
	}
}

// A library may put a header into the map in another spelling. The vendor still gets one key: the one
// of the context, or else that of the library.
func TestAKeyInAnotherSpelling(t *testing.T) {
	for spelling, protocol := range map[string]outbound.Protocol{
		"idempotency-key":           {},
		"PayPal-Request-Id":         outbound.PayPal(),
		"x-amz-pay-idempotency-key": outbound.AmazonPay(),
	} {
		for _, given := range []string{"", "ctx"} {
			t.Run(spelling+" "+given, func(t *testing.T) {
				var got []string
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got = append(got, strings.Join(r.Header.Values(spelling), " and "))
					w.WriteHeader(http.StatusServiceUnavailable)
				}))
				defer server.Close()
				ctx, want := t.Context(), "library"
				if given != "" {
					ctx, want = outbound.WithKey(ctx, given), given
				}
				req := requestTo(ctx, t, "POST", server.URL, "x")
				req.Header[spelling] = []string{"library"}
				_, err := client(http.DefaultTransport, outbound.Config{Protocol: protocol, GenerateKeys: true, Attempts: 2, Schedule: soon}).Fetch(req)
				if err == nil || !slices.Equal(got, []string{want, want}) {
					t.Errorf("%v; the vendor got the keys %q, want %s twice", err, got, want)
				}
			})
		}
	}
}

// What Refresh calls is another operation, so it does not get the key of the operation.
func TestRefreshGetsNoKey(t *testing.T) {
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.URL.Path+" "+r.Header.Get("Idempotency-Key"))
		if r.URL.Path == "/charges" && r.Header.Get("Authorization") != "new" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	tokens := client(http.DefaultTransport, outbound.Config{})
	charges := client(http.DefaultTransport, outbound.Config{Refresh: func(req *http.Request) (string, error) {
		_, err := tokens.Fetch(requestTo(req.Context(), t, "POST", server.URL+"/token", "x"))
		return "new", err
	}})
	_, err := charges.Fetch(requestTo(outbound.WithKey(t.Context(), "k"), t, "POST", server.URL+"/charges", "x"))
	if want := []string{"/charges k", "/token ", "/charges k"}; err != nil || !slices.Equal(keys, want) {
		t.Errorf("%v; calls with keys %q, want %q", err, keys, want)
	}
}

// http.Transport itself repeats a request with a key if a connection that was in use before breaks. If
// the vendor rejects the repetition, it may still have acted on the first request.
func TestARepetitionOfNextIsADoubt(t *testing.T) {
	var posts atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
		case posts.Add(1) > 1:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		}
	}))
	defer server.Close()
	c := client(server.Client().Transport, outbound.Config{Attempts: 1})
	if _, err := c.Fetch(requestTo(t.Context(), t, "GET", server.URL, "")); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"", "h2c"} {
		posts.Store(0)
		req := requestTo(outbound.WithKey(t.Context(), "k"), t, "POST", server.URL, "x")
		if protocol != "" { // such a request is passed on with the headers of the caller
			req.Header.Set("Upgrade", protocol)
			req.Header.Set("Idempotency-Key", "k")
		}
		_, err := c.Fetch(req)
		if posts.Load() != 2 || err == nil || errors.Is(err, postroom.ErrNotApplied) {
			t.Errorf("Upgrade %q: %v after %d requests, NotApplied is %t, want an unknown outcome after 2", protocol, err, posts.Load(), errors.Is(err, postroom.ErrNotApplied))
		}
	}
}
