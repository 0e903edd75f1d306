// Package idempotencytest tests over the network whether your HTTP endpoint keeps the contract of
// package idempotency. The endpoint may be written in any language.
//
//	func TestRefundsAreIdempotent(t *testing.T) {
//		idempotencytest.Test(t, idempotencytest.Endpoint{
//			URL:     server.URL + "/refunds",
//			Body:    `{"charge": "ch_1", "amount": 1000}`,
//			Changed: `{"charge": "ch_1", "amount": 2000}`,
//			Header:  http.Header{"Authorization": {"Bearer " + token}},
//			Effects: func() (int, error) { return countRefunds() },
//		})
//	}
//
// [Test] sends the given requests many times, and many of them at once, so use an endpoint in a
// test environment. The package imports only the standard library.
package idempotencytest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Endpoint is the endpoint to test.
type Endpoint struct {
	// URL is the address to which requests are sent. Required.
	URL string

	// Method is the requests' method.
	//
	// Defaults to POST.
	Method string

	// Body is the body of a request that succeeds each time it is sent with a new key.
	// Changed is the body of a different request. Required.
	Body, Changed string

	// ContentType is the content type of both bodies.
	//
	// Defaults to application/json.
	ContentType string

	// Header has the headers of each request, for instance Authorization.
	Header http.Header

	// Other has the headers of another caller, if the endpoint has several callers. Without Other,
	// Test does not check that the keys of callers are separate.
	Other http.Header

	// Effects, if set, returns how many effects all requests together have had so far.
	Effects func() (int, error)

	// KeyOptional says that the endpoint carries out requests without a key.
	KeyOptional bool

	// MismatchStatus is the status of the answer if a key was used for another request.
	//
	// Defaults to 422.
	MismatchStatus int

	// Twins is how many requests with one key are sent at once.
	//
	// Defaults to 20.
	Twins int

	// Patience limits how long a key may be in progress.
	//
	// Defaults to 30 seconds.
	Patience time.Duration

	// Client sends the requests.
	//
	// Defaults to a client that does not follow redirects, because a redirect is the
	// endpoint's answer.
	Client *http.Client
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
	code   string
}

// suite has the tests of an endpoint.
type suite struct {
	Endpoint
}

// Test tests the endpoint, in one subtest for each rule of the contract.
func Test(t *testing.T, e Endpoint) {
	t.Helper()
	if e.URL == "" || e.Body == "" || e.Changed == "" || e.Body == e.Changed {
		t.Fatal("idempotencytest: URL, Body and Changed are required, and the bodies must differ")
	}
	e.Method = cmp.Or(e.Method, http.MethodPost)
	e.ContentType = cmp.Or(e.ContentType, "application/json")
	e.MismatchStatus = cmp.Or(e.MismatchStatus, http.StatusUnprocessableEntity)
	e.Twins = cmp.Or(e.Twins, 20)
	e.Patience = cmp.Or(e.Patience, 30*time.Second)
	e.Client = cmp.Or(e.Client, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }})
	s := suite{e}
	for _, part := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"a repeated request has the same answer and no second effect", s.repeat},
		{"a key without quotes equals the key with quotes", s.quotes},
		{"the key of another request is refused", s.mismatch},
		{"two keys are two operations", s.keys},
		{"a request without a key", s.missing},
		{"keys that are not valid are refused", s.invalid},
		{"of many requests at once, one is carried out", s.twins},
		{"a key means nothing to another caller", s.callers},
	} {
		t.Run(part.name, part.test)
	}
}

// newKey returns a key that was never used before.
func newKey() string { return "conformance-" + rand.Text() }

// send sends a request. The request has no key if key is "".
func (s suite) send(t *testing.T, key, body string, header http.Header) answer {
	t.Helper()
	a, err := s.try(t.Context(), key, body, header)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (s suite) try(ctx context.Context, key, body string, header http.Header) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, s.Method, s.URL, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("Content-Type", s.ContentType)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }() // the body is already read
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return a, err
	}
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(a.body, &problem) // not every answer is a problem
	a.code = problem.Code
	return a, nil
}

// settled repeats a request until its key is not in progress.
func (s suite) settled(t *testing.T, key, body string) answer {
	t.Helper()
	for end := time.Now().Add(s.Patience); ; {
		a := s.send(t, key, body, s.Header)
		if !a.inProgress() {
			return a
		}
		if time.Now().After(end) {
			t.Fatalf("the key is in progress after %s", s.Patience)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (a answer) inProgress() bool {
	return a.status == http.StatusConflict && a.header.Get("Retry-After") != "" || a.status == http.StatusAccepted && a.code != ""
}

func (a answer) success() bool { return a.status >= 200 && a.status < 400 }

func (a answer) String() string { return fmt.Sprintf("%d %.300s", a.status, a.body) }

// effects calls the function do, and fails the test unless this call causes exactly n effects.
func (s suite) effects(t *testing.T, n int, do func()) {
	t.Helper()
	if s.Effects == nil {
		do()
		return
	}
	before, err := s.Effects()
	if err != nil {
		t.Fatal(err)
	}
	do()
	after, err := s.Effects()
	if err != nil {
		t.Fatal(err)
	}
	if after-before != n {
		t.Errorf("%d effects, want %d", after-before, n)
	}
}

func (s suite) wantReplay(t *testing.T, first, again answer) {
	t.Helper()
	if first.status != again.status || !bytes.Equal(first.body, again.body) {
		t.Errorf("%s was repeated as %s", first, again)
	}
	for _, name := range []string{"Content-Type", "Location", "X-Content-Type-Options", "Content-Security-Policy"} {
		if !slices.Equal(first.header.Values(name), again.header.Values(name)) {
			t.Errorf("%s was %q and is repeated as %q", name, first.header.Values(name), again.header.Values(name))
		}
	}
	if again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Idempotency-Status") != "replayed" {
		t.Errorf("the replay is not marked: Idempotent-Replayed %q, Idempotency-Status %q", again.header.Get("Idempotent-Replayed"), again.header.Get("Idempotency-Status"))
	}
	if again.header.Get("Set-Cookie") != "" {
		t.Error("a cookie is repeated")
	}
}

func (s suite) repeat(t *testing.T) {
	s.effects(t, 1, func() {
		key := newKey()
		first := s.send(t, key, s.Body, s.Header)
		if !first.success() {
			t.Fatalf("the first request is answered %s", first)
		}
		if first.header.Get("Idempotent-Replayed") != "" {
			t.Error("the first answer says that it is a replay")
		}
		for range 3 {
			s.wantReplay(t, first, s.send(t, key, s.Body, s.Header))
		}
	})
}

func (s suite) quotes(t *testing.T) {
	s.effects(t, 1, func() {
		key := newKey()
		first := s.send(t, `"`+key+`"`, s.Body, s.Header)
		s.wantReplay(t, first, s.send(t, key, s.Body, s.Header))
	})
}

func (s suite) mismatch(t *testing.T) {
	s.effects(t, 1, func() {
		key := newKey()
		first := s.send(t, key, s.Body, s.Header)
		other := s.send(t, key, s.Changed, s.Header)
		if other.status != s.MismatchStatus || other.header.Get("Content-Type") != "application/problem+json" || other.code == "" {
			t.Errorf("the changed request is answered %s, want a problem with status %d and a code", other, s.MismatchStatus)
		}
		if other.header.Get("Retry-After") != "" || bytes.Contains(other.body, []byte(key)) {
			t.Errorf("the problem has a Retry-After, or contains the key: %s", other)
		}
		s.wantReplay(t, first, s.send(t, key, s.Body, s.Header))
	})
}

func (s suite) keys(t *testing.T) {
	s.effects(t, 2, func() {
		for range 2 {
			if a := s.send(t, newKey(), s.Body, s.Header); !a.success() || a.header.Get("Idempotent-Replayed") != "" {
				t.Errorf("a new key is answered %s", a)
			}
		}
	})
}

func (s suite) missing(t *testing.T) {
	if s.KeyOptional {
		s.effects(t, 2, func() {
			for range 2 {
				if a := s.send(t, "", s.Body, s.Header); !a.success() || a.header.Get("Idempotent-Replayed") != "" {
					t.Errorf("answered %s", a)
				}
			}
		})
		return
	}
	s.effects(t, 0, func() {
		a := s.send(t, "", s.Body, s.Header)
		if a.status != http.StatusBadRequest || a.code == "" {
			t.Errorf("answered %s, want a problem with status 400 and a code", a)
		}
	})
}

func (s suite) invalid(t *testing.T) {
	s.effects(t, 0, func() {
		for _, key := range []string{`"unclosed`, `""`, "a, b", `"a" b`, strings.Repeat("k", 300)} {
			if a := s.send(t, key, s.Body, s.Header); a.status != http.StatusBadRequest {
				t.Errorf("the key %.20s is answered %s, want 400", key, a)
			}
		}
	})
}

func (s suite) twins(t *testing.T) {
	s.effects(t, 1, func() {
		key := newKey()
		answers := make([]answer, s.Twins)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				var err error
				if answers[i], err = s.try(t.Context(), key, s.Body, s.Header); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		last := s.settled(t, key, s.Body)
		fresh := 0
		for _, a := range answers {
			switch {
			case a.inProgress():
			case !a.success() || !bytes.Equal(a.body, last.body):
				t.Errorf("a request is answered %s, want %s, or that the key is in progress", a, last)
			case a.header.Get("Idempotent-Replayed") == "":
				fresh++
			}
		}
		if fresh != 1 {
			t.Errorf("%d of the requests with one key were carried out, want 1", fresh)
		}
	})
}

func (s suite) callers(t *testing.T) {
	if s.Other == nil {
		t.Skip("Endpoint.Other is not set")
	}
	s.effects(t, 2, func() {
		key := newKey()
		first := s.send(t, key, s.Body, s.Header)
		other := s.send(t, key, s.Body, s.Other)
		if !first.success() || !other.success() || other.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("one caller is answered %s, the other %s", first, other)
		}
	})
}
