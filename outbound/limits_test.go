package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// long is a body with left bytes. It counts the bytes that are read.
type long struct{ left, read int }

func (l *long) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), l.left)
	for i := range p[:n] {
		p[i] = 'x'
	}
	l.left, l.read = l.left-n, l.read+n
	return n, nil
}

// answers returns a vendor that answers with a body, and the headers of [status].
func answers(code int, body io.Reader, headers ...string) *vendor {
	return &vendor{answer: func(int, *http.Request) (*http.Response, error) {
		resp := status(code, headers...)
		resp.Body = io.NopCloser(body)
		return resp, nil
	}}
}

// Fetch returns up to 10 MiB. Of a longer body it returns nothing.
func TestFetchIsBounded(t *testing.T) {
	const most = 10 << 20
	whole := &long{left: most}
	if got, err := client(answers(200, whole), outbound.Config{}).Fetch(request(t.Context(), t, "GET", "")); err != nil || len(got) != most {
		t.Errorf("Fetch = %d bytes, %v; want %d", len(got), err, most)
	}
	endless := &long{left: 3 * most}
	got, err := client(answers(200, endless), outbound.Config{}).Fetch(request(t.Context(), t, "GET", ""))
	var e *outbound.Error
	if got != nil || !errors.As(err, &e) || errors.Is(err, postroom.ErrNotApplied) {
		t.Errorf("Fetch = %d bytes, %v; want an error with an unknown outcome", len(got), err)
	}
	if endless.read > most+1 {
		t.Errorf("%d bytes were read of a response that never ends", endless.read)
	}
}

// The transport reads the beginning of a conflict's body, because the code is there. It leaves the
// rest to the caller.
func TestConflictIsReadInPart(t *testing.T) {
	const start = `{"code":"already_charged","detail":"`
	rest := &long{left: 1 << 20}
	v := answers(409, io.MultiReader(strings.NewReader(start), rest), "Content-Type", "application/problem+json")
	resp, err := client(v, outbound.Config{}).HTTP().Do(request(t.Context(), t, "POST", "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if rest.read > 16<<10 {
		t.Errorf("%d bytes were read before the caller asked for them", rest.read)
	}
	if got, err := io.ReadAll(resp.Body); err != nil || len(got) != len(start)+1<<20 || !strings.HasPrefix(string(got), start) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(start)+1<<20)
	}
}

// When the budget decides about a retry, it also counts retries that wait and will be made later,
// if all are within one window.
func TestBudgetCountsRetriesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n <= 10 {
				return status(503, "Retry-After", "5"), nil
			}
			return status(503), nil
		}}
		floor := outbound.Budget{Ratio: 1e-6} // the floor, and nearly nothing else
		c := outbound.NewClient(outbound.Config{Next: v, Logger: quiet, Attempts: 2, Schedule: soon, Budget: floor, Breaker: noBreaker})
		call := func() error {
			_, err := c.Do(request(t.Context(), t, "GET", ""))
			return err
		}
		for range 10 { // this is the floor of a window
			go func() { _ = call() }()
		}
		synctest.Wait()
		if err := call(); !errors.Is(err, outbound.ErrBudget) || v.count() != 11 {
			t.Errorf("%v after %d calls, want that the budget is spent for those that wait", err, v.count())
		}
		time.Sleep(11 * time.Second) // they were made after five seconds
		if err := call(); !errors.Is(err, outbound.ErrBudget) || v.count() != 22 {
			t.Errorf("%v after %d calls, want that they count for when they were made", err, v.count())
		}
		time.Sleep(6 * time.Second)
		if err := call(); !errors.Is(err, outbound.ErrAttempts) || v.count() != 24 {
			t.Errorf("%v after %d calls, want a retry when their window has passed", err, v.count())
		}
	})
}

// A request's body that must be kept in memory is read up to the limit. If its length is larger
// than the limit, it is not read at all.
func TestARequestsBodyIsBounded(t *testing.T) {
	for length, most := range map[int64]int{-1: 1001, 5000: 0} {
		v, body := always(200), &long{left: 5000}
		req, err := http.NewRequestWithContext(outbound.WithKey(t.Context(), "k"), "POST", "https://api.vendor.example/", body)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		if _, err := client(v, outbound.Config{MaxBody: 1000}).Do(req); !errors.Is(err, outbound.ErrNotSent) || v.count() != 0 {
			t.Errorf("%v after %d calls, want a refusal", err, v.count())
		}
		if body.read > most {
			t.Errorf("%d bytes were read of a body of length %d, want %d at the most", body.read, length, most)
		}
	}
}

// If the caller gives up before the first attempt, or while a new authorization is made,
// nothing is sent, and the error says so.
func TestNothingIsSentAfterTheCallerEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	v := always(200)
	c := client(v, outbound.Config{Protocol: outbound.Protocol{Format: func(key string) string { cancel(); return key }}})
	if _, err := c.Do(request(outbound.WithKey(ctx, "k"), t, "POST", "x")); !errors.Is(err, context.Canceled) || !errors.Is(err, outbound.ErrNotSent) || v.count() != 0 {
		t.Errorf("%v after %d calls, want none", err, v.count())
	}
	ctx, cancel = context.WithCancel(t.Context())
	v = always(401)
	c = client(v, outbound.Config{Refresh: func(*http.Request) (string, error) { cancel(); return "Bearer new", nil }})
	if _, err := c.Do(request(ctx, t, "POST", "x")); !errors.Is(err, context.Canceled) || v.count() != 1 {
		t.Errorf("%v after %d calls, want the one that was refused", err, v.count())
	}
}
