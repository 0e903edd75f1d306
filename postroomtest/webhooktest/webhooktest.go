// Package webhooktest tests an endpoint that receives webhooks. Like a hostile sender, it sends
// requests over the network, so you can write the endpoint in any language.
//
//	func TestWebhooks(t *testing.T) {
//		webhooktest.Test(t, webhooktest.Endpoint{
//			URL:     server.URL + "/webhooks/acme",
//			Body:    func(id string) string { return `{"type": "test"}` },
//			Sign:    func(h http.Header, id string, at time.Time, body []byte) error { … },
//			Effects: func() (int, error) { return countEffects() },
//		})
//	}
//
// The tests send hundreds of requests, so use an endpoint in a test environment. The package
// imports only the standard library.
package webhooktest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Sign sets the headers as the provider would set them for a body, in a request that has the given
// id and is signed at the given time.
type Sign func(h http.Header, id string, at time.Time, body []byte) error

// Endpoint is the endpoint to test.
type Endpoint struct {
	// URL is where requests go. Required.
	URL string

	// Body returns the body of an event with the given id. The endpoint must store each of these
	// events. Required.
	Body func(id string) string

	// Sign signs with the newest secret. Required.
	Sign Sign

	// SignOld signs with the older secret. Set SignOld if the endpoint knows two secrets.
	SignOld Sign

	// Unsigned are headers that Sign sets and that no signature covers.
	Unsigned []string

	// Untimed says that the scheme does not sign a time.
	Untimed bool

	// MaxBody is the largest body that the endpoint accepts.
	//
	// Defaults to 2 MiB.
	MaxBody int

	// Effects returns how many events have taken effect so far. Required.
	Effects func() (int, error)

	// Twins is how many requests with the same id the test sends at once.
	//
	// Defaults to 50.
	Twins int

	// Patience limits how long a test waits for effects.
	//
	// Defaults to 30 seconds.
	Patience time.Duration

	// Client sends the requests.
	//
	// Defaults to a client that does not follow redirects.
	Client *http.Client
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %.300s", a.status, a.body) }

// suite is an endpoint under test.
type suite struct {
	Endpoint
}

// Test tests the endpoint, in one subtest for each rule.
func Test(t *testing.T, e Endpoint) {
	t.Helper()
	if e.URL == "" || e.Body == nil || e.Sign == nil || e.Effects == nil {
		t.Fatal("webhooktest: URL, Body, Sign and Effects are required")
	}
	e.MaxBody = cmp.Or(e.MaxBody, 2<<20)
	e.Twins = cmp.Or(e.Twins, 50)
	e.Patience = cmp.Or(e.Patience, 30*time.Second)
	e.Client = cmp.Or(e.Client, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }})
	s := suite{e}
	for _, part := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"a request has one effect, however often it is sent", s.repeat},
		{"of many requests at once, one has an effect", s.twins},
		{"a change of any byte is refused", s.changes},
		{"a request of another time is refused", s.times},
		{"a request signed with either secret is accepted", s.secrets},
		{"a request without a signature is refused", s.unsigned},
		{"a header that is sent twice", s.repeatedHeaders},
		{"a huge body is refused", s.huge},
		{"slow senders do not delay other senders", s.slow},
		{"another method is refused", s.methods},
	} {
		t.Run(part.name, part.test)
	}
}

// request is a request to send.
type request struct {
	header http.Header
	body   string
}

// signed returns a request with an id that was never used before.
func (s suite) signed(t *testing.T, sign Sign, at time.Time) request {
	t.Helper()
	id := "conformance-" + rand.Text()
	return s.sign(t, sign, id, at, s.Body(id))
}

func (s suite) sign(t *testing.T, sign Sign, id string, at time.Time, body string) request {
	t.Helper()
	h := http.Header{"Content-Type": {"application/json"}}
	if err := sign(h, id, at, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return request{h, body}
}

func (s suite) try(ctx context.Context, method string, r request) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL, strings.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	req.Header = r.header.Clone()
	resp, err := s.Client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }() // an error makes no difference: the body is already read
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(resp.Body)
	return a, err
}

func (s suite) send(t *testing.T, r request) answer {
	t.Helper()
	a, err := s.try(t.Context(), http.MethodPost, r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// accepted sends a request, and fails the test if the answer is not 200.
func (s suite) accepted(t *testing.T, what string, r request) {
	t.Helper()
	if a := s.send(t, r); a.status != http.StatusOK {
		t.Errorf("%s is answered %s, want 200", what, a)
	}
}

// refusal is the answer to the first request that was refused. All other refusals must be equal to
// it, because a difference would tell an attacker what to change.
type refusal struct{ first *answer }

// check fails the test if an answer is no refusal, or differs from the first refusal.
func (f *refusal) check(t *testing.T, what string, a answer) {
	t.Helper()
	if f.first == nil {
		f.first = &a
	}
	if a.status != http.StatusUnauthorized {
		t.Errorf("%s is answered %s, want 401", what, a)
	} else if !bytes.Equal(a.body, f.first.body) {
		t.Errorf("%s is answered %s, and another refusal was %s", what, a, f.first)
	}
}

// effects calls the function do, which sends requests and returns how many effects they should
// have. Then it sends one more request, and waits. It fails the test if the number is wrong.
func (s suite) effects(t *testing.T, do func() (n int)) {
	t.Helper()
	before, err := s.Effects()
	if err != nil {
		t.Fatal(err)
	}
	want := before + do() + 1
	s.accepted(t, "one more request", s.signed(t, s.Sign, time.Now()))
	got := before
	for end := time.Now().Add(s.Patience); got < want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got, err = s.Effects(); err != nil {
			t.Fatal(err)
		}
	}
	if got != want {
		t.Errorf("%d effects, want %d", got-before-1, want-before-1)
	}
}

func (s suite) repeat(t *testing.T) {
	s.effects(t, func() int {
		r := s.signed(t, s.Sign, time.Now())
		for i := range 4 {
			s.accepted(t, fmt.Sprintf("time %d", i+1), r)
		}
		return 1
	})
}

func (s suite) twins(t *testing.T) {
	s.effects(t, func() int {
		r := s.signed(t, s.Sign, time.Now())
		var all sync.WaitGroup
		for range s.Twins {
			all.Go(func() {
				a, err := s.try(t.Context(), http.MethodPost, r)
				if err != nil || a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
					t.Errorf("one of the requests at once is answered %s, %v; want 200, or 503 for a retry", a, err)
				}
			})
		}
		all.Wait()
		s.accepted(t, "the request, sent once more", r)
		return 1
	})
}

// covered returns the names of headers that Sign set, except Content-Type and Unsigned.
func (s suite) covered(h http.Header) (names []string) {
	for name := range h {
		if name != "Content-Type" && !slices.ContainsFunc(s.Unsigned, func(u string) bool { return strings.EqualFold(u, name) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// changed returns texts that differ from s in one byte each.
func changed(s string) (all []string) {
	for i := range len(s) {
		b := []byte(s)
		b[i] ^= 1
		// The last character of base64 before '=' has bits that some decoders ignore.
		if b[i] < 0x7f && (i+1 == len(s) || s[i+1] != '=') {
			all = append(all, string(b))
		}
	}
	return all
}

func (s suite) changes(t *testing.T) {
	s.effects(t, func() int {
		good := s.signed(t, s.Sign, time.Now())
		var same refusal
		for _, body := range append(changed(good.body), good.body+"\n", good.body+" ", "") {
			same.check(t, fmt.Sprintf("the body %q instead of %q", body, good.body), s.send(t, request{good.header, body}))
		}
		for _, name := range s.covered(good.header) {
			for _, value := range changed(good.header.Get(name)) {
				h := good.header.Clone()
				h.Set(name, value)
				same.check(t, fmt.Sprintf("%s: %q instead of %q", name, value, good.header.Get(name)), s.send(t, request{h, good.body}))
			}
		}
		s.accepted(t, "the unchanged request", good)
		return 1
	})
}

func (s suite) times(t *testing.T) {
	if s.Untimed {
		t.Skip("the scheme signs no time")
	}
	s.effects(t, func() int {
		var same refusal
		for _, away := range []time.Duration{-24 * time.Hour, -10 * time.Minute, 10 * time.Minute, 24 * time.Hour} {
			same.check(t, fmt.Sprintf("a request signed %s from now", away), s.send(t, s.signed(t, s.Sign, time.Now().Add(away))))
		}
		return 0
	})
}

func (s suite) secrets(t *testing.T) {
	if s.SignOld == nil {
		t.Skip("Endpoint.SignOld is not set")
	}
	s.effects(t, func() int {
		s.accepted(t, "a request signed with the new secret", s.signed(t, s.Sign, time.Now()))
		s.accepted(t, "a request signed with the old secret", s.signed(t, s.SignOld, time.Now()))
		return 2
	})
}

func (s suite) unsigned(t *testing.T) {
	s.effects(t, func() int {
		good := s.signed(t, s.Sign, time.Now())
		var same refusal
		same.check(t, "a request without headers", s.send(t, request{http.Header{"Content-Type": {"application/json"}}, good.body}))
		for _, name := range s.covered(good.header) {
			for _, values := range [][]string{nil, {""}} {
				h := good.header.Clone()
				h[name] = values
				same.check(t, fmt.Sprintf("a request with %s: %q", name, values), s.send(t, request{h, good.body}))
			}
		}
		return 0
	})
}

// repeatedHeaders sends requests with one header twice. Each accepted request must have one effect.
func (s suite) repeatedHeaders(t *testing.T) {
	s.effects(t, func() (n int) {
		names := s.covered(s.signed(t, s.Sign, time.Now()).header)
		for _, name := range names {
			for _, first := range []bool{true, false} {
				r := s.signed(t, s.Sign, time.Now())
				value := r.header.Get(name)
				r.header[name] = []string{value, value + "x"}
				if !first {
					slices.Reverse(r.header[name])
				}
				switch a := s.send(t, r); a.status {
				case http.StatusOK:
					n++
				case http.StatusUnauthorized:
				default:
					t.Errorf("with %s twice a request is answered %s, want 200 or 401", name, a)
				}
			}
		}
		return n
	})
}

func (s suite) huge(t *testing.T) {
	s.effects(t, func() int {
		body := strings.Repeat("x", s.MaxBody+1)
		r := s.sign(t, s.Sign, "conformance-"+rand.Text(), time.Now(), body)
		if a, err := s.try(t.Context(), http.MethodPost, r); err == nil && a.status != http.StatusRequestEntityTooLarge { // the endpoint may close the connection
			t.Errorf("a body of %d bytes is answered %s, want 413", len(body), a)
		}
		return 0
	})
}

// slow begins requests and does not complete them while another request is sent.
func (s suite) slow(t *testing.T) {
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme != "http" {
		t.Skip("the URL is not http")
	}
	s.effects(t, func() int {
		r := s.signed(t, s.Sign, time.Now())
		for range s.Twins {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", u.Host)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }() // the request is never completed
			if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", u.RequestURI(), u.Host, len(r.body)); err != nil {
				t.Fatal(err)
			}
			if err := r.header.Write(conn); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(conn, "\r\n%s", r.body[:len(r.body)/2]); err != nil {
				t.Fatal(err)
			}
		}
		s.accepted(t, "another request", s.signed(t, s.Sign, time.Now()))
		return 1
	})
}

func (s suite) methods(t *testing.T) {
	s.effects(t, func() int {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			a, err := s.try(t.Context(), method, s.signed(t, s.Sign, time.Now()))
			if err != nil {
				t.Fatal(err)
			}
			if a.status != http.StatusMethodNotAllowed {
				t.Errorf("%s is answered %s, want 405", method, a)
			}
		}
		return 0
	})
}
