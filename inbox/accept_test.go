package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

func TestAccept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "webhook", Workers: 2}, effect("webhook")) // it reads no stream
	b.in.Handle(b.subscription("placed"), effect("placed"))
	ev := postroom.Event{ID: "a", Source: "/stripe", Type: "charge.succeeded", Data: []byte("1")}
	other := ev
	other.Data = []byte("2")
	ancient := ev
	ancient.ID, ancient.LoggedAt, ancient.Time = "b", time.Unix(0, 0), time.Unix(0, 0)
	steps := []struct {
		name, handler string
		ev            postroom.Event
		want          inbox.AcceptResult
		err           error
	}{
		{"new", "webhook", ev, inbox.Stored, nil},
		{"the same, while it is owed", "webhook", ev, inbox.Duplicate, nil},
		{"other content", "webhook", other, inbox.Conflict, nil},
		{"other content again", "webhook", other, inbox.Conflict, nil},
		{"of any age", "webhook", ancient, inbox.Stored, nil},
		{"without an id", "webhook", postroom.Event{Source: "/stripe", Type: "charge.succeeded"}, inbox.Stored, nil},
		{"no such handler", "none", ev, "", inbox.ErrUnknownHandler},
		{"no event", "webhook", postroom.Event{ID: "c", Type: "a b"}, "", postroom.ErrInvalidEvent},
		{"of a type that the handler does not take", "placed", ev, "", postroom.ErrUnknownType},
	}
	for _, s := range steps {
		got, err := b.in.Accept(t.Context(), s.handler, s.ev)
		if got != s.want || !errors.Is(err, s.err) || err == nil && s.err != nil {
			t.Errorf("%s: Accept = %q, %v; want %q, %v", s.name, got, err, s.want, s.err)
		}
	}
	if got := b.held("webhook"); len(got) != 4 {
		t.Errorf("held: %v, want three events and a conflict", got)
	}
	b.run()
	b.eventually("the effects", func() bool { return len(b.effects("webhook")) == 3 })
	b.eventually("only the conflict to be held", func() bool { return len(b.held("webhook")) == 1 && b.dead("webhook") == 1 })
	if got, err := b.in.Accept(t.Context(), "webhook", ev); got != inbox.Duplicate || err != nil {
		t.Errorf("Accept of a decided event = %q, %v", got, err)
	}
	if n := b.effects("webhook")["a"]; n != 1 {
		t.Errorf("%d effects, want one", n)
	}
}

// idle waits until the inbox has sent no statement for a while. Without this wait, the runner could
// find an event that is accepted now when it looks for work after the last event.
func (b *bench) idle() {
	b.Helper()
	b.eventually("the inbox to be idle", func() (idle bool) {
		err := b.pool.QueryRow(b.Context(), `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND (state <> 'idle' OR query_start > clock_timestamp() - interval '300 ms') AND query NOT LIKE '%pg_stat_activity%')`).Scan(&idle)
		if err != nil {
			b.Fatal(err)
		}
		return idle
	})
}

// If an event is accepted while the inbox runs, it runs at once, not at the next poll.
func TestAcceptWakesTheRunner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.IdlePoll = time.Hour
	b.in = inbox.New(b.pool, nil, cfg) // without a stream there is no need of a broker
	b.in.Handle(inbox.Subscription{Name: "webhook", Workers: 1}, effect("webhook"))
	b.run()
	for _, id := range []string{"a", "b", "c"} {
		b.idle()
		if _, err := b.in.Accept(t.Context(), "webhook", postroom.Event{ID: id, Source: "/s", Type: "t"}); err != nil {
			t.Fatal(err)
		}
		b.eventually("its effect", func() bool { return b.effects("webhook")[id] == 1 })
	}
}

// The conflict of a call cannot be held, because OnDead fails. The other event is stored and runs at
// once. The same call, made again, holds the conflict.
func TestAcceptWakesTheRunnerIfAConflictIsNotHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.recordDeaths(1)
	cfg.IdlePoll = time.Hour
	b.in = inbox.New(b.pool, nil, *cfg)
	b.in.Handle(inbox.Subscription{Name: "bill", Workers: 1}, effect("bill"))
	b.run()
	if _, err := b.in.AcceptAll(t.Context(), accepted("bill", "first", "1")); err != nil {
		t.Fatal(err)
	}
	b.eventually("the first effect", func() bool { return len(b.effects("bill")) == 1 })
	b.idle()
	all := []inbox.Acceptance{accepted("bill", "a", "1"), accepted("bill", "b", "1"), accepted("bill", "b", "2")}
	if got, err := b.in.AcceptAll(t.Context(), all...); err == nil || !strings.Contains(err.Error(), "accept them again") {
		t.Errorf("AcceptAll = %v, %v, want an error that says what to do", got, err)
	}
	b.eventually("the effects", func() bool { return len(b.effects("bill")) == 3 })
	want := []inbox.AcceptResult{inbox.Duplicate, inbox.Duplicate, inbox.Conflict}
	if got, err := b.in.AcceptAll(t.Context(), all...); err != nil || !slices.Equal(got, want) {
		t.Errorf("AcceptAll again = %v, %v, want %v", got, err, want)
	}
	if n := b.dead("bill"); n != 1 {
		t.Errorf("%d dead events, want the conflict", n)
	}
}

func TestDedupeKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // so that no event is delivered again, and counted as a duplicate
	sub := b.subscription("commission")
	sub.DedupeKey = func(ev postroom.Event) string {
		if ev.Key == "panic" {
			panic("no")
		}
		return ev.Key
	}
	b.in.Handle(sub, effect("commission"))
	publish := func(id, key string) {
		b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: key, Data: []byte(id)})
	}
	publish("first", "order 1")
	b.run()
	b.eventually("the effect", func() bool { return len(b.effects("commission")) == 1 })
	publish("second", "order 1") // another event, and no conflict
	publish("third", "order 2")
	publish("none", "")
	publish("panics", "panic")
	b.eventually("all to be decided", func() bool { return b.ledger("commission") == 4 && b.counted("commission", "duplicate") == 1 })
	b.drained()
	b.wantOnce("commission", "first", "third")
	for key, o := range b.held("commission") {
		if o.State != "dead" || o.Class != "dedupe_key" {
			t.Errorf("%s: %+v", key, o)
		}
	}
	if got := b.dead("commission"); got != 2 {
		t.Errorf("%d are dead, want the two without a key", got)
	}
}

// The body of an accepted event may be larger than one that a broker takes, up to a limit.
func TestLargeAccepted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sizes := make(chan int, 1)
	b.in.Handle(inbox.Subscription{Name: "webhook", Workers: 1}, postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
		sizes <- len(ev.Data)
		return nil
	}))
	large := postroom.Event{ID: "large", Source: "/shop", Type: "t", Data: bytes.Repeat([]byte("x"), postroom.MaxAccepted)}
	for _, want := range []inbox.AcceptResult{inbox.Stored, inbox.Duplicate} {
		if got, err := b.in.Accept(t.Context(), "webhook", large); got != want || err != nil {
			t.Errorf("Accept of %d bytes = %v, %v, want %s", len(large.Data), got, err, want)
		}
	}
	larger := large
	larger.ID, larger.Data = "larger", append(larger.Data, 'x')
	if got, err := b.in.Accept(t.Context(), "webhook", larger); got != "" || !errors.Is(err, postroom.ErrInvalidEvent) {
		t.Errorf("Accept of %d bytes = %v, %v, want it refused", len(larger.Data), got, err)
	}
	b.run()
	if got := devtest.Receive(t, time.Minute, "the handler to be called", sizes); got != postroom.MaxAccepted {
		t.Errorf("the handler got %d bytes, want %d", got, postroom.MaxAccepted)
	}
}

// A repeated webhook differs in one field. With a dedupe key it is a duplicate; without one it
// is a conflict.
func TestChangedRedeliveryIsADuplicateOrAConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "plain", Workers: 1}, effect("plain"))
	b.in.Handle(inbox.Subscription{
		Name: "keyed", Workers: 1, DedupeKey: func(ev postroom.Event) string { return "stripe " + ev.ID },
	}, effect("keyed"))
	webhook := func(pending int) postroom.Event {
		return postroom.Event{ID: "evt_1", Source: "/stripe", Type: "charge.succeeded", Data: fmt.Appendf(nil, `{"id":"evt_1","pending_webhooks":%d}`, pending)}
	}
	for handler, want := range map[string]inbox.AcceptResult{"plain": inbox.Conflict, "keyed": inbox.Duplicate} {
		if got, err := b.in.Accept(t.Context(), handler, webhook(2)); got != inbox.Stored || err != nil {
			t.Errorf("%s: the first = %v, %v", handler, got, err)
		}
		if got, err := b.in.Accept(t.Context(), handler, webhook(1)); got != want || err != nil {
			t.Errorf("%s: the second = %v, %v, want %s", handler, got, err, want)
		}
	}
	b.run()
	b.eventually("one effect each", func() bool { return b.effects("plain")["evt_1"] == 1 && b.effects("keyed")["evt_1"] == 1 })
	if held := b.held("keyed"); len(held) != 0 {
		t.Errorf("held %v, want nothing of the handler with a key", held)
	}
}

func accepted(handler, id, data string) inbox.Acceptance {
	return inbox.Acceptance{Handler: handler, Event: postroom.Event{ID: id, Source: "/stripe", Type: "charge.succeeded", Data: []byte(data)}}
}

// One call accepts events for several handlers, and may contain the same event twice.
func TestAcceptAll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "bill", Workers: 1}, effect("bill"))
	b.in.Handle(inbox.Subscription{Name: "mail", Workers: 1}, effect("mail"))
	changed := accepted("bill", "a", "2")
	changed.IgnoreChanged = true
	all := []inbox.Acceptance{
		accepted("bill", "a", "1"), accepted("mail", "a", "1"), accepted("bill", "a", "1"), accepted("bill", "a", "2"), accepted("bill", "a", "2"),
		changed, accepted("bill", "b", "1"),
	}
	want := []inbox.AcceptResult{inbox.Stored, inbox.Stored, inbox.Duplicate, inbox.Conflict, inbox.Conflict, inbox.Changed, inbox.Stored}
	if got, err := b.in.AcceptAll(t.Context(), all...); err != nil || !slices.Equal(got, want) {
		t.Errorf("AcceptAll = %v, %v; want %v", got, err, want)
	}
	if got := b.held("bill"); len(got) != 3 {
		t.Errorf("held for bill: %v, want two that are due and a conflict", got)
	}
	bad := accepted("bill", "c", "1")
	bad.Event.Type = "a b"
	if _, err := b.in.AcceptAll(t.Context(), accepted("bill", "d", "1"), bad); !errors.Is(err, postroom.ErrInvalidEvent) {
		t.Errorf("AcceptAll with a bad event: %v", err)
	}
	if got, err := b.in.AcceptAll(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("AcceptAll of nothing = %v, %v", got, err)
	}
	b.run()
	b.eventually("the effects", func() bool {
		return len(b.effects("bill")) == 2 && len(b.effects("mail")) == 1 && len(b.held("bill")) == 1
	})
}

// If a sender repeats a request on many connections at the same time, the request has one effect.
func TestAcceptAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "bill", Workers: 2}, effect("bill"))
	b.run()
	for _, data := range [][]string{{"1"}, {"1", "2"}} { // the same content, and two contents
		id := fmt.Sprint("a", len(data))
		counts := make(map[inbox.AcceptResult]int)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				got, err := b.in.AcceptAll(t.Context(), accepted("bill", id, data[i%len(data)]))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				counts[got[0]]++
			})
		}
		wg.Wait()
		if want := map[inbox.AcceptResult]int{inbox.Stored: 1, inbox.Duplicate: 50/len(data) - 1}; len(data) == 1 && !maps.Equal(counts, want) {
			t.Errorf("results: %v, want %v", counts, want)
		}
		if counts[inbox.Stored] != 1 || len(data) == 2 && counts[inbox.Conflict] != 25 {
			t.Errorf("results with %d contents: %v", len(data), counts)
		}
		b.eventually("the effect", func() bool { return b.effects("bill")[id] == 1 })
	}
	b.eventually("only the conflict to be held", func() bool { return len(b.held("bill")) == 1 && b.dead("bill") == 1 })
}

// The statement that stores the events of several calls commits, and then fails: the server ends the
// session before it answers, or it does not say whether other events are duplicates. It was the only
// call for each new event, so no call may say that its event is a duplicate. A call that fails is
// repeated by its caller.
func TestAcceptThatFailsAfterTheCommit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, mark string // the mark is in the statement whose answer is lost
		says       []byte
		fails      bool
	}{
		{"its session ends", "{h,h", devtest.Refusal("FATAL", "57P01"), true}, // the handlers of a statement with two events
		{"the comparison is cancelled", "decided", devtest.Refusal("ERROR", "57014"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.in.Declare(inbox.Subscription{Name: "h"})
			b.accept("h", "old")
			if tt.mark == "decided" {
				tt.mark = firstLine(b, tt.mark)
			}
			losing := b.losing(&devtest.Losing{Mark: tt.mark, Says: tt.says})
			b.in.Declare(inbox.Subscription{Name: "h"})
			accept := func(id string) (inbox.AcceptResult, error) {
				return b.in.Accept(t.Context(), "h", postroom.Event{ID: id, Source: "/shop", Type: "order.placed", Data: []byte("1")})
			}
			var failed atomic.Int32
			for round := 0; !losing.Lost.Load() && round < 100; round++ {
				var wg sync.WaitGroup
				for _, id := range append(ids(fmt.Sprintf("r%03d-", round), 20), "old") {
					wg.Go(func() {
						got, err := accept(id)
						switch {
						case err == nil && (got == inbox.Stored) != (id != "old"):
							t.Errorf("the only call for %s says %s", id, got)
						case err != nil:
							failed.Add(1)
							if got, err := accept(id); err != nil || got != inbox.Duplicate {
								t.Errorf("the next call for %s = %s, %v, want a duplicate of the event that is stored", id, got, err)
							}
						}
					})
				}
				wg.Wait()
				if !tt.fails && failed.Load() == 1 { // the statement had only the old event
					losing.Lost.Store(false)
					failed.Store(0)
				}
			}
			if !losing.Lost.Load() || (failed.Load() > 0) != tt.fails {
				t.Errorf("lost an answer: %t, %d calls failed", losing.Lost.Load(), failed.Load())
			}
		})
	}
}

// AcceptTx stores with the caller's transaction, and workers begin after the commit.
func TestAcceptTx(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.IdlePoll = time.Hour
	b.in = inbox.New(b.pool, nil, cfg)
	b.in.Handle(inbox.Subscription{Name: "bill", Workers: 1}, effect("bill"))
	b.run()
	for _, commits := range []bool{false, true} {
		tx, err := b.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.in.AcceptTx(t.Context(), tx, accepted("bill", "a", "1"), accepted("bill", "a", "2"), accepted("bill", "b", "1"))
		if want := []inbox.AcceptResult{inbox.Stored, inbox.Conflict, inbox.Stored}; err != nil || !slices.Equal(got, want) {
			t.Fatalf("AcceptTx = %v, %v; want %v", got, err, want)
		}
		if n := len(b.held("bill")); n != 0 {
			t.Errorf("%d events are held before the commit", n)
		}
		var plan string
		if err := tx.QueryRow(t.Context(), "SHOW plan_cache_mode").Scan(&plan); err != nil || plan != "auto" {
			t.Errorf("AcceptTx left plan_cache_mode = %q, %v in the caller's transaction", plan, err)
		}
		if commits {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.eventually("the effects", func() bool { return len(b.effects("bill")) == 2 })
}

// A process that only accepts events declares the handler that another process runs.
func TestAcceptForAnotherProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "bill", Workers: 1}, effect("bill"))
	b.run()
	front := inbox.New(b.pool, nil, inbox.Config{})
	front.Declare(inbox.Subscription{Name: "bill", Types: []string{"charge.succeeded"}, DedupeKey: func(ev postroom.Event) string { return "stripe " + ev.ID }})
	if err := front.Check(t.Context()); err != nil {
		t.Error("Check:", err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	if got, err := front.Accept(ctx, "bill", accepted("", "a", "1").Event); got != inbox.Stored || err != nil {
		t.Fatalf("Accept = %q, %v", got, err)
	}
	if got, err := front.Accept(ctx, "bill", accepted("", "a", "2").Event); got != inbox.Duplicate || err != nil {
		t.Errorf("Accept of the same dedupe key = %q, %v", got, err)
	}
	b.eventually("the effect", func() bool { return b.effects("bill")["a"] == 1 })
	other := postroom.Event{Source: "/stripe", Type: "charge.failed"}
	if _, err := front.Accept(ctx, "bill", other); !errors.Is(err, postroom.ErrUnknownType) {
		t.Errorf("Accept of another type: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name was declared twice")
		}
	}()
	front.Declare(inbox.Subscription{Name: "bill"})
}

// An accepted event belongs to the trace of its request, unless it has one of its own.
func TestAcceptedEventsHaveATrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Declare(inbox.Subscription{Name: "bill"})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	own := accepted("bill", "own", "1")
	own.Event.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, err := b.in.AcceptAll(ctx, accepted("bill", "context", "1"), own); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"context": "00-01000000000000000000000000000000-0200000000000000-01", "own": own.Event.TraceParent} {
		var got string
		if err := b.pool.QueryRow(t.Context(), "SELECT trace_parent FROM postroom.held WHERE event_id = $1", id).Scan(&got); err != nil || got != want {
			t.Errorf("trace of %s: %q, %v; want %q", id, got, err, want)
		}
	}
}

// If another transaction is accepting the same event, the call waits for that transaction, and
// other events do not wait.
func TestAcceptBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Declare(inbox.Subscription{Name: "bill"})
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // if the test ends before the commit
	if _, err := b.in.AcceptTx(t.Context(), tx, accepted("bill", "open", "1")); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		result inbox.AcceptResult
		err    error
	}
	behind := make(chan answer, 1)
	go func() {
		result, err := b.in.Accept(t.Context(), "bill", accepted("", "open", "1").Event)
		behind <- answer{result, err}
	}()
	b.eventually("it to wait for the transaction", func() bool { return b.blocked() > 0 })
	duplicates := make(chan answer, 20)
	for range cap(duplicates) { // these calls wait for the call above, and use no connections
		go func() {
			result, err := b.in.Accept(t.Context(), "bill", accepted("", "open", "1").Event)
			duplicates <- answer{result, err}
		}()
	}
	for _, id := range []string{"a", "b", "c"} {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // shorter than the calls above wait
		got, err := b.in.Accept(ctx, "bill", accepted("", id, "1").Event)
		cancel()
		if got != inbox.Stored || err != nil {
			t.Fatalf("Accept of another event = %q, %v", got, err)
		}
	}
	if n := b.blocked(); n > 1 {
		t.Errorf("%d sessions wait for the transaction, want one", n)
	}
	b.eventually("one session to wait for the transaction", func() bool { return b.blocked() == 1 }) // for a moment no session waits: when one call takes the place of another
	if len(behind) > 0 {
		t.Errorf("the event did not wait for the transaction: %+v", <-behind)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := devtest.Receive(t, time.Minute, "the event to be accepted", behind); got != (answer{inbox.Duplicate, nil}) {
		t.Errorf("Accept after the commit = %+v, want a duplicate", got)
	}
	for range cap(duplicates) {
		if got := devtest.Receive(t, time.Minute, "a twin to be accepted", duplicates); got != (answer{inbox.Duplicate, nil}) {
			t.Errorf("Accept of a twin = %+v, want a duplicate", got)
		}
	}
}

// blocked is how many sessions of the database wait for another transaction.
func (b *bench) blocked() (n int) {
	b.Helper()
	const sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	if err := b.pool.QueryRow(b.Context(), sql).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}
