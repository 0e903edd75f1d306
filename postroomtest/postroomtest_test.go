package postroomtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/postroomtest/servers"
	"github.com/postroom/postroom/relay"
)

// said returns the text with which a call ends its test.
func failureText(t *testing.T, call func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if v := recover(); v != nil && v != r {
				panic(v)
			}
		}()
		call(r)
	}()
	return strings.Join(r.errors, "\n")
}

func TestRequireWritten(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	before := postroom.NewEvent("order.placed", "before")
	if err := placeNothing(t.Context(), pool, before); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // the transaction is only read
	if evs := postroomtest.RequireWritten(t, tx); len(evs) != 0 {
		t.Errorf("a transaction that wrote nothing has written %v", evs)
	}
	placed := postroom.NewEvent("order.placed", map[string]any{"id": "o-1", "amount": 4200})
	placed.Key, placed.Headers = "o-1", map[string]string{"tenant": "a"}
	paid := placed.Follow("order.paid", "o-1")
	nested, err := tx.Begin(t.Context()) // a savepoint is part of the transaction
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(shop.Write(t.Context(), nested, placed), nested.Commit(t.Context()), shop.Write(t.Context(), tx, paid)); err != nil {
		t.Fatal(err)
	}
	evs := postroomtest.RequireWritten(t, tx,
		postroomtest.Want{Type: "order.placed", Key: "o-1", Subject: "order.placed", JSON: `{"amount": 4200, "id": "o-1"}`, Headers: map[string]string{"tenant": "a"}},
		postroomtest.Want{})
	if evs[0].ID != placed.ID || evs[0].Source != "/shop" || evs[1].CausationID != placed.ID || evs[1].CorrelationID != placed.ID || evs[1].LoggedAt.IsZero() {
		t.Errorf("read back as %+v", evs)
	}
	for _, tt := range []struct {
		name  string
		db    postroomtest.Querier
		wants []postroomtest.Want
		want  string // a part of the report; empty: nothing is reported
	}{
		{"of a pool all events that are committed count", pool, []postroomtest.Want{{JSON: `"before"`}}, ""},
		{"nothing was to be written", tx, nil, "2 events were written, want 0"},
		{"another type", tx, []postroomtest.Want{{Type: "order.made"}, {}}, `event 1: Type is "order.placed", want "order.made"`},
		{"another key", tx, []postroomtest.Want{{}, {Key: "o-2"}}, `event 2: Key is "o-1", want "o-2"`},
		{"another header", tx, []postroomtest.Want{{Headers: map[string]string{"tenant": "b"}}, {}}, `header tenant is "a", want "b"`},
		{"other data", tx, []postroomtest.Want{{JSON: `{"id":"o-1"}`}, {}}, "the data is"},
		{"no JSON", tx, []postroomtest.Want{{JSON: `{`}, {}}, "Want.JSON is not JSON"},
		{"something after the JSON", tx, []postroomtest.Want{{JSON: `{"amount": 4200, "id": "o-1"}, 1`}, {}}, "Want.JSON is not JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := failureText(t, func(t testing.TB) { postroomtest.RequireWritten(t, tt.db, tt.wants...) })
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
}

// placeNothing writes an event without a domain change.
func placeNothing(ctx context.Context, pool *pgxpool.Pool, ev postroom.Event) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return shop.Write(ctx, tx, ev) })
}

func TestApply(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, tt := range []struct {
		name    string
		handle  func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error
		outcome postroomtest.Outcome
		class   string
	}{
		{"done", func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			return shop.Write(ctx, tx, ev.Follow("order.paid", "o-1"))
		}, postroomtest.Applied, ""},
		{"fails", func(context.Context, pgx.Tx, postroom.Event) error { return errors.New("no luck") }, postroomtest.Retried, "error"},
		{"asks for time", func(context.Context, pgx.Tx, postroom.Event) error {
			return postroom.RetryAfter(time.Hour, errors.New("busy"))
		}, postroomtest.Retried, "error"},
		{"is hopeless", func(context.Context, pgx.Tx, postroom.Event) error {
			return postroom.Permanent(errors.New("no such order"))
		}, postroomtest.Dead, "permanent"},
		{"panics", func(context.Context, pgx.Tx, postroom.Event) error { panic("oh") }, postroomtest.Retried, "panic"},
		{"fails in the database", func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return err
		}, postroomtest.Retried, "22012"},
		{"overlooks that", func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		}, postroomtest.Retried, "error"},
		{"ends the transaction", func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			_, err := tx.Exec(ctx, "ROLLBACK")
			return err
		}, postroomtest.Retried, "transaction"},
		{"ends the transaction and begins another", func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			_, err := tx.Exec(ctx, "ROLLBACK AND CHAIN")
			return err
		}, postroomtest.Retried, "transaction"},
		{"commits it", func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error { return tx.Commit(ctx) }, postroomtest.Retried, "error"},
		{"breaks a constraint at the commit", func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			_, err := tx.Exec(ctx, "CREATE TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO late VALUES (1), (1)")
			return err
		}, postroomtest.Retried, "23505"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ev := postroom.NewEvent("order.placed", "o-1")
			got := postroomtest.Apply(t, pool, postroom.HandlerFunc(tt.handle), ev)
			if got.Outcome != tt.outcome || got.Class != tt.class || got.Attempts != 1 || (got.Err == nil) != (tt.class == "") {
				t.Errorf("got %+v, want %s of class %q", got, tt.outcome, tt.class)
			}
			if delay, asked := postroom.RetryDelay(got.Err); asked && got.RetryAfter != delay {
				t.Errorf("RetryAfter is %s, want %s", got.RetryAfter, delay)
			}
			// An inbox must give the failure the same class.
			if class := classInInbox(t, devtest.Pool(t), tt.handle, ev); class != tt.class {
				t.Errorf("class is %q, and an inbox says %q", got.Class, class)
			}
			again := postroomtest.Apply(t, pool, postroom.HandlerFunc(tt.handle), ev)
			if tt.outcome != postroomtest.Applied {
				if again.Outcome != tt.outcome {
					t.Errorf("then %+v, want %s again: nothing was left", again, tt.outcome)
				}
				return
			}
			if len(got.Written) != 1 || got.Written[0].CausationID != ev.ID {
				t.Errorf("it has written %v, want what follows the event", got.Written)
			}
			if again.Outcome != postroomtest.Duplicate || again.Attempts != 0 || again.Written != nil {
				t.Errorf("then %+v, want a duplicate", again)
			}
		})
	}
}

// classInInbox returns the class that an inbox gives to the failure of a handler.
func classInInbox(t *testing.T, pool *pgxpool.Pool, h postroom.HandlerFunc, ev postroom.Event) (class string) {
	t.Helper()
	ev.Source = "/test"
	in := inbox.New(pool, nil, inbox.Config{Logger: quiet})
	in.Handle(inbox.Subscription{Name: "h", Attempts: 1, Workers: 1}, h)
	if _, err := in.Accept(t.Context(), "h", ev); err != nil {
		t.Fatal(err)
	}
	postroomtest.Drain(t, in)
	err := pool.QueryRow(t.Context(), "SELECT class FROM postroom.held WHERE event_id = $1", ev.ID).Scan(&class)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return class
}

// A goroutine of a handler goes on with the transaction after the handler returned. It gets an error,
// and the connection goes back to the pool.
func TestApplyOfAHandlerThatLeavesAGoroutine(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	var left sync.WaitGroup
	handler := postroom.HandlerFunc(func(_ context.Context, tx pgx.Tx, _ postroom.Event) error {
		begun := make(chan struct{})
		left.Go(func() {
			_, err := tx.Exec(context.Background(), "SELECT 1")
			close(begun)
			for err == nil {
				_, err = tx.Exec(context.Background(), "SELECT 1")
			}
			if !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("the goroutine got %v", err)
			}
			if conn := tx.Conn(); !conn.IsClosed() {
				t.Error("the goroutine got the connection")
			}
		})
		<-begun
		return nil
	})
	for range 10 {
		if r := postroomtest.Apply(t, pool, handler, postroom.NewEvent("a", 1)); r.Outcome != postroomtest.Applied {
			t.Errorf("the outcome is %s, %v", r.Outcome, r.Err)
		}
	}
	left.Wait()
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections did not come back", n)
	}
}

func TestApplyRefusesInvalidEvents(t *testing.T) {
	t.Parallel()
	got := failureText(t, func(t testing.TB) { postroomtest.Apply(t, nil, nil, postroom.Event{Type: "no type"}) })
	if !strings.Contains(got, "the event cannot be delivered: Type") {
		t.Errorf("it says %q", got)
	}
}

// Apply writes the same inbox row as an inbox.
func TestApplyWritesTheRowOfAnInbox(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	ev := postroom.NewEvent("order.placed", "o-1")
	ev.Source = "/shop"
	nothing := postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return nil })
	if got := postroomtest.Apply(t, pool, nothing, ev); got.Outcome != postroomtest.Applied {
		t.Fatalf("got %+v", got)
	}
	in := inbox.New(pool, nil, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "postroomtest"}, nothing)
	if got, err := in.Accept(t.Context(), "postroomtest", ev); got != inbox.Duplicate || err != nil {
		t.Errorf("an inbox says %s, %v; want a duplicate", got, err)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		order inbox.Order
		batch int
	}{{"plain", inbox.Unordered, 0}, {"batched", inbox.Unordered, 10}, {"ordered", inbox.HoldKey, 0}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			devtest.Postgres(t)
			pool, nc := servers.Postgres(t), servers.NATS(t)
			servers.Stream(t, nc, "SHOP", "order.>")
			const n = 50
			for i := range n {
				ev := postroom.NewEvent("order.placed", i)
				ev.Key = fmt.Sprint(i % 5)
				if err := placeNothing(t.Context(), pool, ev); err != nil {
					t.Fatal(err)
				}
			}
			in := inbox.New(pool, nc, inbox.Config{Logger: quiet})
			failed := map[string]bool{}
			in.Handle(inbox.Subscription{
				Name: "billing", Stream: "SHOP", Types: []string{"order.placed"}, Order: tt.order, Batch: tt.batch, Workers: 1,
				Schedule: postroom.Backoff{10 * time.Millisecond}, Attempts: 8,
			}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if ev.Key == "3" && !failed[ev.ID] {
					failed[ev.ID] = true
					return errors.New("once")
				}
				return shop.Write(ctx, tx, ev.Follow("order.billed", "x"))
			}))
			in.Handle(inbox.Subscription{Name: "archive", Stream: "SHOP", Types: []string{"order.billed"}, Workers: 1},
				postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
					return postroom.Permanent(errors.New("no archive"))
				}))
			r := relay.New(pool, natsjs.NewPublisher(nc), relay.Config{Logger: quiet})
			postroomtest.Drain(t, r, in)
			lags, err := in.Lag(t.Context())
			if err != nil {
				if tt.order == inbox.Unordered { // an ordered handler's lag is unknown after its inbox has ended
					t.Error(err)
				}
			} else if lags[0] != (inbox.Lag{Handler: "archive", Dead: n}) || lags[1] != (inbox.Lag{Handler: "billing"}) {
				t.Errorf("left are %+v", lags)
			}
			var decided int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.inbox").Scan(&decided); err != nil || decided != 2*n {
				t.Errorf("%d events are decided (%v), want %d", decided, err, 2*n)
			}
		})
	}
}

func TestDrainReportsEventsThatAreLeft(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	in := inbox.New(pool, nil, inbox.Config{Logger: quiet})
	in.Handle(inbox.Subscription{Name: "billing", Workers: 1}, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
		return postroom.RetryAfter(time.Hour, errors.New("busy"))
	}))
	ev := postroom.NewEvent("order.placed", "o-1")
	ev.Source = "/shop"
	if _, err := in.Accept(t.Context(), "billing", ev); err != nil {
		t.Fatal(err)
	}
	got := failureText(t, func(t testing.TB) {
		postroomtest.Drain(soon{t, time.Now().Add(12 * time.Second)}, in)
	})
	if want := "handler billing has events: 1 held for another attempt"; !strings.Contains(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
	got = failureText(t, func(t testing.TB) { postroomtest.Drain(t, inbox.New(pool, nil, inbox.Config{})) })
	if want := "no handler is registered"; !strings.Contains(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// soon is a test whose deadline is near.
type soon struct {
	testing.TB

	at time.Time
}

func (s soon) Deadline() (time.Time, bool) { return s.at, true }

// charge is an external handler that calls a vendor.
func charge(vendor *postroomtest.Vendor) inbox.ExternalHandler {
	client := &http.Client{Timeout: 200 * time.Millisecond}
	return func(ctx context.Context, a *inbox.Attempt) error {
		ref, err := inbox.Step(ctx, a, "charge", func(ctx context.Context, key string) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, vendor.URL+"/charges", strings.NewReader("4200"))
			if err != nil {
				return "", err
			}
			req.Header.Set("Idempotency-Key", key)
			resp, err := client.Do(req)
			if err != nil {
				return "", err
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return "", postroom.NotApplied(fmt.Errorf("vendor: %s", resp.Status))
			}
			ref, err := io.ReadAll(resp.Body)
			return string(ref), err
		})
		if err != nil {
			return err
		}
		a.OnSuccess(func(ctx context.Context, tx pgx.Tx) error {
			return shop.Write(ctx, tx, a.Event.Follow("order.charged", ref))
		})
		return nil
	}
}

func TestApplyExternal(t *testing.T) {
	t.Parallel()
	remembers := inbox.Subscription{VendorWindow: time.Hour} // the vendor remembers keys for an hour
	for _, tt := range []struct {
		name      string
		vendor    []postroomtest.Behaviour
		forgetful bool
		sub       inbox.Subscription
		outcome   postroomtest.Outcome
		class     string
		attempts  int
		works     int
	}{
		{name: "answers", outcome: postroomtest.Applied, attempts: 1, works: 1},
		{name: "times out", sub: remembers, vendor: []postroomtest.Behaviour{postroomtest.TimesOut, postroomtest.TimesOut}, outcome: postroomtest.Applied, attempts: 3, works: 1},
		{name: "answers late", sub: remembers, vendor: []postroomtest.Behaviour{postroomtest.AnswersLate}, outcome: postroomtest.Applied, attempts: 2, works: 1},
		{name: "answers late, and may know no keys", vendor: []postroomtest.Behaviour{postroomtest.AnswersLate}, outcome: postroomtest.Dead, class: "outcome_unknown", attempts: 1, works: 1},
		{name: "rejects", vendor: []postroomtest.Behaviour{postroomtest.Rejects}, outcome: postroomtest.Applied, attempts: 2, works: 1},
		{name: "rejects for good", vendor: []postroomtest.Behaviour{postroomtest.Rejects, postroomtest.Rejects}, sub: inbox.Subscription{Attempts: 2}, outcome: postroomtest.Dead, class: "error", attempts: 2},
		{name: "knows no keys", sub: remembers, vendor: []postroomtest.Behaviour{postroomtest.AnswersLate}, forgetful: true, outcome: postroomtest.Applied, attempts: 2, works: 2},
		{name: "waits long", vendor: []postroomtest.Behaviour{postroomtest.Rejects}, sub: inbox.Subscription{Schedule: postroom.Backoff{time.Hour}, Attempts: 8}, outcome: postroomtest.Retried, class: "error", attempts: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			var vendor *postroomtest.Vendor
			vendor = postroomtest.NewVendor(t, func(r postroomtest.Request) postroomtest.Answer {
				if all := vendor.Requests(); all[len(all)-1].Key != r.Key { // a vendor may look at what it got
					t.Errorf("the last request is %+v, want %+v", all[len(all)-1], r)
				}
				return postroomtest.Answer{Body: []byte("ch_1")}
			})
			vendor.Forgetful = tt.forgetful
			vendor.Next(tt.vendor...)
			ev := postroom.NewEvent("order.placed", "o-1")
			got := postroomtest.ApplyExternal(t, pool, tt.sub, charge(vendor), ev)
			if got.Outcome != tt.outcome || got.Class != tt.class || got.Attempts != tt.attempts || (got.Err == nil) != (tt.class == "") {
				t.Errorf("got %+v, want %s of class %q after %d attempts", got, tt.outcome, tt.class, tt.attempts)
			}
			if n := len(vendor.Works()); n != tt.works {
				t.Errorf("the vendor has charged %d times, want %d", n, tt.works)
			}
			for _, r := range vendor.Requests() {
				if r.Key == "" || r.Key != vendor.Requests()[0].Key || string(r.Body) != "4200" || r.Path != "/charges" {
					t.Errorf("request %+v", r)
				}
			}
			if tt.outcome != postroomtest.Applied {
				return
			}
			if len(got.Written) != 1 || string(got.Written[0].Data) != `"ch_1"` {
				t.Errorf("written: %v", got.Written)
			}
			if again := postroomtest.ApplyExternal(t, pool, tt.sub, charge(vendor), ev); again.Outcome != postroomtest.Duplicate || again.Attempts != 0 {
				t.Errorf("then %+v, want a duplicate", again)
			}
		})
	}
}

// A handler that committed must not run again. A server without resources costs no attempt.
func TestApplyOfAHandlerThatIsNotRetried(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, tt := range []struct {
		name    string
		handle  func(context.Context, pgx.Tx, postroom.Event) error
		outcome postroomtest.Outcome
		class   string
	}{
		{"commits with a statement", func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			_, err := tx.Exec(ctx, "COMMIT")
			return err
		}, postroomtest.Dead, "transaction"},
		{"commits with a statement and begins another transaction", func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			_, err := tx.Exec(ctx, "COMMIT AND CHAIN")
			return errors.Join(err, errors.New("fails after that"))
		}, postroomtest.Dead, "transaction"},
		{"needs too much memory", func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'out of memory' USING ERRCODE = '53200'; END $$")
			return err
		}, postroomtest.Snoozed, "53200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := postroomtest.Apply(t, pool, postroom.HandlerFunc(tt.handle), postroom.NewEvent("order.placed", "o-1"))
			if got.Outcome != tt.outcome || got.Class != tt.class || got.Err == nil {
				t.Errorf("got %+v, want %s of class %q", got, tt.outcome, tt.class)
			}
		})
	}
}

func TestExternalAnswersTwice(t *testing.T) {
	t.Parallel()
	vendor := postroomtest.NewVendor(t, nil)
	answers := 0
	vendor.OnAnswer = func(postroomtest.Request, postroomtest.Answer) { answers++ }
	vendor.Next(postroomtest.AnswersTwice)
	for _, want := range []int{2, 3} {
		resp, err := http.Post(vendor.URL, "text/plain", strings.NewReader("x")) //nolint:noctx // one request of a test
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if answers != want {
			t.Errorf("%d answers, want %d", answers, want)
		}
	}
	if n := len(vendor.Works()); n != 2 {
		t.Errorf("work was done %d times, want 2: the requests have no key", n)
	}
}
