package inbox_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// answer is the way in which a vendor reacts to a request.
type answer string

const (
	charged answer = "charged"
	lost    answer = "lost"    // it charges, and the connection breaks before it says so
	hanging answer = "hanging" // it does nothing until the client gives up
	refuses answer = "refuses" // it has not charged
	faulty  answer = "faulty"  // it may have charged or not
)

// vendor is another system, behind HTTP, that counts the requests for each key.
type vendor struct {
	url    string
	client *http.Client

	mu      sync.Mutex
	calls   map[string]int // by key
	answers []answer       // to the next requests; all later requests are charged
}

func newVendor(t *testing.T, answers ...answer) *vendor {
	t.Helper()
	v := &vendor{calls: map[string]int{}, answers: answers}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	v.url, v.client = server.URL, server.Client()
	return v
}

// ServeHTTP implements http.Handler.
func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	v.mu.Lock()
	v.calls[key]++
	how := charged
	if len(v.answers) > 0 {
		how, v.answers = v.answers[0], v.answers[1:]
	}
	v.mu.Unlock()
	switch how {
	case lost:
		panic(http.ErrAbortHandler) // which closes the connection
	case hanging:
		<-r.Context().Done()
	case refuses:
		http.Error(w, "no such card", http.StatusUnprocessableEntity)
	case faulty:
		http.Error(w, "out of order", http.StatusInternalServerError)
	case charged:
		_, _ = io.WriteString(w, "ch_"+key)
	}
}

// charge is the function of a step, as a client of the vendor writes it.
func (v *vendor) charge(ctx context.Context, key string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := v.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode == http.StatusUnprocessableEntity:
		return "", postroom.NotApplied(fmt.Errorf("vendor: %s", strings.TrimSpace(string(body))))
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("vendor: %s", strings.TrimSpace(string(body)))
	}
	return string(body), nil
}

// seen returns how often each key was called.
func (v *vendor) seen() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.calls)
}

func (v *vendor) total() (n int) {
	for _, calls := range v.seen() {
		n += calls
	}
	return n
}

// charging is a handler of one step, which notes the step's result when it settles.
func charging(v *vendor, options ...postroom.CallOption) inbox.ExternalHandler {
	return func(ctx context.Context, attempt *inbox.Attempt) error {
		result, err := inbox.Step(ctx, attempt, "charge", v.charge, options...)
		if err != nil {
			return err
		}
		attempt.OnSuccess(noting("h", attempt.Event.ID+" "+result))
		return nil
	}
}

// noting is an effect for OnSuccess.
func noting(handler, text string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		return effect(handler).Handle(ctx, tx, postroom.Event{ID: text})
	}
}

// accept stores events for a handler.
func (b *bench) accept(name string, ids ...string) {
	b.Helper()
	for _, id := range ids {
		got, err := b.in.Accept(b.Context(), name, postroom.Event{ID: id, Source: "/shop", Type: "order.placed", Data: []byte("1")})
		if got != inbox.Stored || err != nil {
			b.Fatalf("Accept = %s, %v", got, err)
		}
	}
}

// anew replaces the inbox by a new one, as if in another process.
func (b *bench) anew(change func(*inbox.Config)) {
	cfg := b.config()
	if change != nil {
		change(&cfg)
	}
	b.in = inbox.New(b.pool, b.nc, cfg)
}

// receipt has the columns of a row of receipt that tests look at.
type receipt struct {
	Step       string
	Revision   int
	Key        string
	Unanswered int
	Done       bool
	Result     string // without the quotes of JSON
}

func (b *bench) receipts(name string) []receipt {
	b.Helper()
	rows, _ := b.pool.Query(b.Context(), `SELECT step, revision, key, unanswered, done_at IS NOT NULL, coalesce(convert_from(result, 'UTF8')::json #>> '{}', '')
		FROM postroom.receipt WHERE handler = $1 ORDER BY dedupe_key, step, revision`, name)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[receipt])
	if err != nil {
		b.Fatal(err)
	}
	return all
}

// failure returns the text of the last failure of a held event.
func (b *bench) failure(key string) (text string) {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), "SELECT coalesce(failures -> -1 ->> 'text', '') FROM postroom.held WHERE dedupe_key = $1", key).Scan(&text)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func (b *bench) waitUntilNoneHeld(name string) {
	b.Helper()
	b.eventually("no event to be held", func() bool { return len(b.held(name)) == 0 })
}
