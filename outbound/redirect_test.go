package outbound_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// The vendor acts on a POST and redirects the caller to its result. If the redirect then fails,
// the error does not say that nothing was done.
func TestRedirectedPostMayHaveActed(t *testing.T) {
	answer := func(code int, headers ...string) func() (*http.Response, error) {
		return func() (*http.Response, error) { return status(code, headers...), nil }
	}
	for name, then := range map[string]struct {
		to   string
		next func() (*http.Response, error)
	}{
		"no connection":        {"/charges/1", func() (*http.Response, error) { return nil, errRefused }},
		"not there yet":        {"/charges/1", answer(404)},
		"round and round":      {"/charges/1", answer(303, "Location", "/charges/1")},
		"on to a third":        {"/charges/1", answer(302, "Location", "ftp://api.vendor.example/")},
		"to no address":        {"http://[::1", nil},
		"to another protocol":  {"ftp://api.vendor.example/", nil},
		"to another host":      {"https://other.example/", answer(404)},
		"with a key all along": {"/charges/1", answer(404)},
	} {
		t.Run(name, func(t *testing.T) {
			v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return status(303, "Location", then.to), nil
				}
				return then.next()
			}}
			ctx, cfg := t.Context(), outbound.Config{Attempts: 1}
			if name == "with a key all along" {
				ctx = outbound.WithKey(ctx, "k")
			}
			_, err := client(v, cfg).Do(request(ctx, t, "POST", "x"))
			if err == nil || errors.Is(err, postroom.ErrNotApplied) || errors.Is(err, outbound.ErrRejected) || errors.Is(err, outbound.ErrNotSent) {
				t.Errorf("%v: the error claims that the vendor did nothing", err)
			}
		})
	}
	// A redirect alone does nothing, and neither does reading.
	for method, code := range map[string]int{"POST": 307, "GET": 302} {
		v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return status(code, "Location", "/next"), nil
			}
			return status(404), nil
		}}
		_, err := client(v, outbound.Config{Attempts: 1}).Do(request(outbound.WithKey(t.Context(), "k"), t, method, "x"))
		if !errors.Is(err, postroom.ErrNotApplied) {
			t.Errorf("%s, %d: %v", method, code, err)
		}
	}
}

// login is a vendor whose session has ended. It redirects a POST, and answers each later request
// with a page of status 200.
func login(code int, to string) *vendor {
	return &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
		if n == 1 {
			return status(code, "Location", to), nil
		}
		return status(200, "Content-Type", "text/html"), nil
	}}
}

// clients are the ways in which a request reaches a Transport. The caller's client has its own
// CheckRedirect, but the rules still hold.
func clients(v http.RoundTripper) map[string]func(*http.Request) (*http.Response, error) {
	cfg := outbound.Config{Next: v, Logger: quiet, Budget: outbound.Budget{Off: true}, Breaker: noBreaker}
	lenient := func(*http.Request, []*http.Request) error { return nil }
	outer := roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := outbound.NewTransport(cfg).RoundTrip(req)
		if resp != nil {
			resp.Request = nil // the response does not name its request
		}
		return resp, err
	})
	return map[string]func(*http.Request) (*http.Response, error){
		"Do":                              outbound.NewClient(cfg).Do,
		"HTTP":                            outbound.NewClient(cfg).HTTP().Do,
		"a client of one's own":           (&http.Client{Transport: outbound.NewTransport(cfg)}).Do,
		"one with its own rules":          (&http.Client{Transport: outbound.NewTransport(cfg), CheckRedirect: lenient}).Do,
		"one with another Transport":      (&http.Client{Transport: outbound.NewTransport(outbound.Config{Next: outbound.NewTransport(cfg), Logger: quiet})}).Do,
		"one whose responses are orphans": (&http.Client{Transport: outer}).Do,
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A page to which a redirect leads is not an answer to the original request.
func TestARedirectedCallIsNotApplied(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		for code, to := range map[int]string{
			300: "/login", 301: "/login", 302: "/login", 303: "/charges/1",
			307: "https://login.example/", 308: "http://api.vendor.example/login", // another host, and no TLS
		} {
			for name := range clients(nil) {
				t.Run(fmt.Sprintf("%s, %d, %s", method, code, name), func(t *testing.T) {
					v := login(code, to)
					resp, err := clients(v)[name](request(outbound.WithKey(t.Context(), "k"), t, method, "x"))
					if resp != nil && err == nil {
						err = outbound.CheckResponse(resp) // http.Client did not follow this redirect
					}
					var e *outbound.Error
					if !errors.As(err, &e) || !errors.Is(err, outbound.ErrRedirect) || e.Class != outbound.ClassRedirect || v.count() != 1 {
						t.Fatalf("%v after %d calls, want one call and a redirect that is not followed", err, v.count())
					}
					if e.Last == nil || e.Last.Status != code {
						t.Errorf("last answer %+v", e.Last)
					}
					if name != "one whose responses are orphans" && (e.Method != method || e.Host != "api.vendor.example") {
						t.Errorf("it was %s %s", e.Method, e.Host)
					}
					if !errors.Is(outbound.ForHandler(err), postroom.ErrPermanent) {
						t.Error("a handler would try it again, and be redirected again")
					}
					// Only 307 and 308 mean that the vendor did nothing itself.
					if done := !errors.Is(err, postroom.ErrNotApplied); done != (code < 307) {
						t.Errorf("%v: NotApplied is %v", err, !done)
					}
				})
			}
		}
	}
}

// 304 says that the resource of a GET has not changed. It says nothing about an effect.
func TestNotModifiedIsNoEffect(t *testing.T) {
	for method, ok := range map[string]bool{"GET": true, "HEAD": true, "POST": false, "PUT": false, "DELETE": false} {
		_, err := client(always(304), outbound.Config{}).Do(request(t.Context(), t, method, ""))
		if (err == nil) != ok || err != nil && !errors.Is(err, outbound.ErrRedirect) {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// The number of redirects of a GET is bounded, even if the client's own rules do not bound it.
func TestRedirectsAreBounded(t *testing.T) {
	for name := range clients(nil) {
		if name == "one whose responses are orphans" {
			continue // it follows no redirects
		}
		t.Run(name, func(t *testing.T) {
			v := always(302, "Location", "/again")
			resp, err := clients(v)[name](request(t.Context(), t, "GET", ""))
			if resp != nil && err == nil {
				err = outbound.CheckResponse(resp)
			}
			if err == nil || v.count() > 11 {
				t.Errorf("%v after %d calls", err, v.count())
			}
		})
	}
}

// A redirect and the request to which it leads are one attempt. The redirect does not give the
// operation new attempts.
func TestARedirectIsOneAttempt(t *testing.T) {
	v := &vendor{answer: func(n int, req *http.Request) (*http.Response, error) {
		if req.URL.Path != "/next" && n > 1 {
			return status(307, "Location", "/next"), nil
		}
		return status(503), nil
	}}
	_, err := client(v, outbound.Config{Attempts: 3, Schedule: soon}).Do(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
	var e *outbound.Error
	if !errors.As(err, &e) || e.Attempts != 3 || !errors.Is(err, outbound.ErrAttempts) || v.count() != 4 {
		t.Errorf("%v after %d calls, want three attempts of which the second is redirected", err, v.count())
	}
	for i, key := range v.keys {
		if key != "k" || v.bodies[i] != "x" {
			t.Errorf("call %d has key %q and body %q", i, key, v.bodies[i])
		}
	}
}

// If a body cannot be sent again, the redirect is not followed.
func TestABodyThatIsGoneIsNotSentOn(t *testing.T) {
	v := login(307, "/next")
	req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
	req.GetBody = nil
	if _, err := client(v, outbound.Config{}).Do(req); !errors.Is(err, outbound.ErrRedirect) || !errors.Is(err, postroom.ErrNotApplied) || v.count() != 1 {
		t.Errorf("%v after %d calls", err, v.count())
	}
}

// If Next follows redirects itself, the transport notices that and does not take the result for an
// answer.
func TestANextThatFollowsRedirects(t *testing.T) {
	v := login(302, "/login")
	next := roundTripper(func(req *http.Request) (*http.Response, error) {
		return (&http.Client{Transport: v}).Do(req.Clone(req.Context()))
	})
	_, err := client(next, outbound.Config{}).Do(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
	if !errors.Is(err, outbound.ErrRedirect) || errors.Is(err, postroom.ErrNotApplied) || !strings.Contains(err.Error(), "Next follows redirects") || v.open.Load() != 0 {
		t.Errorf("%v, %d bodies are open", err, v.open.Load())
	}
	v.calls = nil
	if _, err := client(next, outbound.Config{}).Do(request(t.Context(), t, "GET", "")); err != nil {
		t.Errorf("GET: %v", err)
	}
}

// If Next reports whether it sent the request, the transport relies on that.
func TestReportOfNextAboutItsRequestCounts(t *testing.T) {
	for name, sent := range map[string]*http.Request{"nothing": nil, "a GET": requestTo(t.Context(), t, "GET", "https://api.vendor.example/login", "")} {
		next := roundTripper(func(*http.Request) (*http.Response, error) {
			resp := status(200)
			resp.Request = sent
			return resp, nil
		})
		_, err := client(next, outbound.Config{}).Do(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
		if errors.Is(err, outbound.ErrRedirect) != (sent != nil) || (err == nil) != (sent == nil) {
			t.Errorf("%s was sent: %v", name, err)
		}
	}
}

// The first attempt may have been acted on. If the second is redirected and sends nothing
// there, the outcome of the call is still unknown.
func TestEarlierDoubtOutlivesARedirect(t *testing.T) {
	v := &vendor{answer: func(n int, req *http.Request) (*http.Response, error) {
		switch {
		case n == 1:
			return status(503), nil
		case req.URL.Path == "/v1/charges":
			return status(307, "Location", "/next"), nil
		case req.URL.Path == "/next":
			return status(307, "Location", "/last"), nil
		}
		return nil, errRefused
	}}
	_, err := client(v, outbound.Config{Schedule: soon}).Do(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
	if err == nil || errors.Is(err, postroom.ErrNotApplied) || v.count() < 4 {
		t.Errorf("%v after %d calls: the vendor may have acted on the first", err, v.count())
	}
}

// If a redirect is not followed, the request is one attempt, and its body is closed.
func TestRequestThatIsNotRedirectedIsOneAttempt(t *testing.T) {
	v := login(307, "https://login.example/")
	req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
	var again []*closing
	req.GetBody = func() (io.ReadCloser, error) {
		again = append(again, &closing{Reader: strings.NewReader("x")})
		return again[len(again)-1], nil
	}
	_, err := client(v, outbound.Config{}).Do(req)
	var e *outbound.Error
	if !errors.As(err, &e) || !errors.Is(err, outbound.ErrRedirect) || e.Attempts != 1 {
		t.Errorf("%v, want a redirect that is not followed after one attempt", err)
	}
	for i, body := range again {
		if !body.closed.Load() {
			t.Errorf("body %d of %d is open", i+1, len(again))
		}
	}
	if len(again) == 0 {
		t.Error("http.Client asked for no body to send on")
	}
}

// A request that was redirected from another host has no key, so it is not repeated.
// http.Client makes no such request: it has another client's rules.
func TestRequestFromAnotherHostIsNotRepeated(t *testing.T) {
	v := always(503)
	req := request(outbound.WithKey(t.Context(), "k"), t, "POST", "x")
	req.Response = status(302)
	req.Response.Request = requestTo(t.Context(), t, "GET", "https://elsewhere.example/", "")
	resp, err := outbound.NewTransport(outbound.Config{Next: v, Logger: quiet, Schedule: soon}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if v.count() != 1 || v.keys[0] != "" {
		t.Errorf("%d attempts with keys %q, want one without", v.count(), v.keys)
	}
}

// A request for another protocol is bound by the rules too.
func TestAnUpgradeFollowsNoRedirect(t *testing.T) {
	v := login(302, "/login")
	req := request(t.Context(), t, "POST", "x")
	req.Header.Set("Upgrade", "h2c")
	if _, err := client(v, outbound.Config{}).Do(req); !errors.Is(err, outbound.ErrRedirect) || v.count() != 1 {
		t.Errorf("%v after %d calls", err, v.count())
	}
}

// After a redirect to another host a request for another protocol is a plain GET, without the
// caller's secrets.
func TestAnUpgradeTakesNoSecretToAnotherHost(t *testing.T) {
	var got http.Header
	v := &vendor{answer: func(n int, req *http.Request) (*http.Response, error) {
		if n == 1 {
			return status(302, "Location", "https://elsewhere.example/"), nil
		}
		got = req.Header.Clone()
		return status(200), nil
	}}
	req := request(t.Context(), t, "GET", "")
	req.Header.Set("Upgrade", "h2c")
	req.Header.Set("X-Api-Key", "secret")
	resp, err := client(v, outbound.Config{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if v.count() != 2 || got.Get("X-Api-Key") != "" || got.Get("Upgrade") != "" || got.Get("Referer") != "" {
		t.Errorf("%d calls, the last with %v", v.count(), got)
	}
}

// The transport refuses a client that follows redirects in another way: that keeps the method after
// 302, or changes it after 307.
func TestARedirectKeepsItsMethod(t *testing.T) {
	for code, method := range map[int]string{302: "POST", 307: "GET"} {
		v := always(200)
		next := request(t.Context(), t, method, "x")
		next.Response = status(code, "Location", "/")
		next.Response.Request = request(t.Context(), t, "POST", "x")
		if _, err := outbound.NewTransport(outbound.Config{Next: v, Logger: quiet}).RoundTrip(next); !errors.Is(err, outbound.ErrRedirect) || v.count() != 0 {
			t.Errorf("%d: %v after %d calls", code, err, v.count())
		}
	}
}

// Another host gets neither the context of a trace, which may have the caller's data as baggage, nor
// the header with the time limit. The first host gets both.
func TestAnotherHostGetsNoContextAndNoTimeout(t *testing.T) {
	before := otel.GetTextMapPropagator()
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	defer otel.SetTextMapPropagator(before)
	var got []http.Header
	v := &vendor{answer: func(n int, req *http.Request) (*http.Response, error) {
		got = append(got, req.Header.Clone())
		if n == 1 {
			return status(302, "Location", "https://other.example/x"), nil
		}
		return status(200), nil
	}}
	email, err := baggage.NewMember("customer.email", "ann%40example.com")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(email)
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(baggage.ContextWithBaggage(t.Context(), bag), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
	req := requestTo(ctx, t, "GET", "https://api.vendor.example/", "")
	req.Header.Set("Accept", "text/plain")
	resp, err := client(v, outbound.Config{TimeoutHeader: "X-Request-Timeout"}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for _, name := range []string{"Baggage", "Traceparent", "X-Request-Timeout"} {
		if got[0].Get(name) == "" {
			t.Errorf("the first host did not get %s", name)
		}
	}
	if got[1].Get("Accept") == "" || len(got[1]) != 1 {
		t.Errorf("the other host got %v, want only Accept", got[1])
	}
}

// The body of a GET is for the first host only. Within the host it follows a redirect.
func TestTheBodyOfAGetStaysOnItsHost(t *testing.T) {
	const search = `{"api_key":"secret"}`
	for to, follows := range map[string]bool{"https://other.example/x": false, "http://api.vendor.example/x": false, "/x": true} {
		v := login(307, to)
		resp, err := client(v, outbound.Config{}).Do(requestTo(t.Context(), t, "GET", "https://api.vendor.example/search", search))
		if resp != nil {
			_ = resp.Body.Close()
		}
		if follows && (err != nil || v.count() != 2 || v.bodies[1] != search) {
			t.Errorf("to %s: %v, bodies %q", to, err, v.bodies)
		}
		if !follows && (!errors.Is(err, outbound.ErrRedirect) || v.count() != 1) {
			t.Errorf("to %s: %v after %d calls, want a redirect that is not followed", to, err, v.count())
		}
	}
}
