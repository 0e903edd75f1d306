package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// left is a receipt that a process left behind when it ended. The vendor may have been called or
// not.
type left struct {
	revision int32
	ago      time.Duration
	result   string // of a step that is done
	called   bool
}

// lookups are the vendor's answers to a lookup.
var lookups = map[string]func(ctx context.Context, key string) (string, bool, error){
	"found":     func(_ context.Context, key string) (string, bool, error) { return "found_" + key, true, nil },
	"not found": func(context.Context, string) (string, bool, error) { return "", false, nil },
	"error": func(context.Context, string) (string, bool, error) {
		return "", false, errors.New("vendor: no answer")
	},
}

// receiptCase is an event with one step. A process died during that step, or its vendor fails.
type receiptCase struct {
	name     string
	left     []left
	revision int32
	window   time.Duration
	lookup   string
	answers  []answer

	calls  map[int32]int // how many calls the vendor saw in all, by the revision of the key
	result string        // the result with which the event settled; REV0 and REV1 are the keys; empty if the event is dead
	class  string        // the class if the event is dead
	text   string        // a part of the text of its last failure
	made   int           // attempts, of which one was made by the process that left
}

const (
	hour    = time.Hour
	timeout = 2 * time.Second // of the handler; a step is called again only if the window does not end within this time
)

var receiptCases = []receiptCase{
	{name: "left before the receipt", calls: map[int32]int{0: 1}, result: "ch_REV0", made: 2},
	{name: "left between the receipt and the call", left: []left{{}}, window: hour, calls: map[int32]int{0: 1}, result: "ch_REV0", made: 2},
	{name: "left in the call, or after it", left: []left{{called: true}}, window: hour, calls: map[int32]int{0: 2}, result: "ch_REV0", made: 2},
	{name: "left after it was noted", left: []left{{called: true, result: "ch"}}, calls: map[int32]int{0: 1}, result: "ch", made: 2},
	{name: "left in the call, no keys", left: []left{{called: true}}, calls: map[int32]int{0: 1}, class: "outcome_unknown", text: "REV0", made: 2},
	{name: "left before the call, no keys", left: []left{{}}, class: "outcome_unknown", text: "REV0", made: 2},
	{name: "window not passed", left: []left{{ago: hour - timeout - time.Minute, called: true}}, window: hour, calls: map[int32]int{0: 2}, result: "ch_REV0", made: 2},
	{name: "window passed", left: []left{{ago: hour, called: true}}, window: hour, calls: map[int32]int{0: 1}, class: "outcome_unknown", made: 2},
	{name: "window would pass in the call", left: []left{{ago: hour - timeout, called: true}}, window: hour, calls: map[int32]int{0: 1}, class: "outcome_unknown", made: 2},
	{name: "window shorter than a call", left: []left{{called: true}}, window: timeout, calls: map[int32]int{0: 1}, class: "outcome_unknown", made: 2},
	{name: "window passed, but done", left: []left{{ago: 2 * hour, called: true, result: "ch"}}, window: hour, calls: map[int32]int{0: 1}, result: "ch", made: 2},
	{name: "found", left: []left{{ago: hour, called: true}}, window: hour, lookup: "found", calls: map[int32]int{0: 1}, result: "found_REV0", made: 2},
	{name: "not found", left: []left{{ago: hour}}, window: hour, lookup: "not found", calls: map[int32]int{0: 1}, result: "ch_REV0", made: 2},
	{name: "not found, no keys", left: []left{{}}, lookup: "not found", calls: map[int32]int{0: 1}, result: "ch_REV0", made: 2},
	{name: "not to be looked up", left: []left{{ago: hour, called: true}}, window: hour, lookup: "error", calls: map[int32]int{0: 1}, class: "error", text: "no answer", made: 4},
	{name: "in the window there is no lookup", left: []left{{called: true}}, window: hour, lookup: "error", calls: map[int32]int{0: 2}, result: "ch_REV0", made: 2},
	{name: "edited after it was done", left: []left{{called: true, result: "ch"}}, revision: 1, calls: map[int32]int{0: 1}, result: "ch", made: 2},
	{name: "edited while it was not known", left: []left{{called: true}}, revision: 1, window: hour, calls: map[int32]int{0: 1}, class: "outcome_unknown", text: "REV0", made: 2},
	{name: "edited before, and left again", left: []left{{called: true}, {revision: 1}}, revision: 1, window: hour, calls: map[int32]int{0: 1}, class: "outcome_unknown", text: "REV0", made: 2},
	{name: "edited, found", left: []left{{called: true}}, revision: 1, window: hour, lookup: "found", calls: map[int32]int{0: 1}, result: "found_REV0", made: 2},
	{name: "edited, not found", left: []left{{}}, revision: 1, window: hour, lookup: "not found", calls: map[int32]int{1: 1}, result: "ch_REV1", made: 2},
	{name: "answer lost", window: hour, answers: []answer{lost}, calls: map[int32]int{0: 2}, result: "ch_REV0", made: 3},
	{name: "no answer in time", window: hour, answers: []answer{hanging}, calls: map[int32]int{0: 2}, result: "ch_REV0", made: 3},
	{name: "answer lost, no keys", answers: []answer{lost}, calls: map[int32]int{0: 1}, class: "outcome_unknown", text: "EOF", made: 2},
	{name: "no answer in time, no keys", answers: []answer{hanging}, calls: map[int32]int{0: 1}, class: "outcome_unknown", text: "REV0", made: 3},
	{name: "error, no keys", answers: []answer{faulty}, calls: map[int32]int{0: 1}, class: "outcome_unknown", text: "out of order", made: 2},
	{name: "error, no keys, found", answers: []answer{faulty}, lookup: "found", calls: map[int32]int{0: 1}, result: "found_REV0", made: 3},
	{name: "refused, no keys", answers: []answer{refuses, refuses}, calls: map[int32]int{0: 3}, result: "ch_REV0", made: 4},
	{name: "refused after a call that is not known", left: []left{{called: true}}, window: hour, answers: []answer{refuses}, calls: map[int32]int{0: 3}, result: "ch_REV0", made: 3},
	{name: "refused always", answers: []answer{refuses, refuses, refuses}, calls: map[int32]int{0: 3}, class: "error", text: "no such card", made: 4},
}

// A process may end at any point of a step, and the vendor may do anything. The step is called
// again only if the vendor recognises the call. A step that is known to be done is not called
// again.
func TestReceipts(t *testing.T) {
	t.Parallel()
	for _, tt := range receiptCases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(newBench(t))
		})
	}
}

func (tt *receiptCase) run(b *bench) {
	b.Helper()
	v := newVendor(b.T)
	var options []postroom.CallOption
	if tt.lookup != "" {
		options = append(options, postroom.Lookup(lookups[tt.lookup]))
	}
	sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: 4, Timeout: timeout, Schedule: postroom.Backoff{10 * time.Millisecond}}
	if tt.window > timeout {
		sub.VendorWindow = tt.window
	} else { // a Subscription does not accept this window
		options = append(options, postroom.VendorWindow(tt.window))
	}
	var made int
	handler := charging(v, options...)
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		made = attempt.Number
		return handler(ctx, attempt)
	})
	b.accept("h", "e")
	b.exec("UPDATE postroom.held SET revision = $1, attempts = 1, epoch = 1, claimed_by = 'gone', next_at = now() - interval '1 s'", tt.revision)
	keys := b.leave(v, tt.left)
	v.answers = tt.answers
	stop := b.run()
	b.eventually("an end", func() bool { held := b.held("h"); return len(held) == 0 || held["/shop e"].State == "dead" })
	stop()
	fill := strings.NewReplacer("REV0", keys[0], "REV1", keys[1]).Replace
	if made != tt.made {
		b.Errorf("%d attempts, want %d", made, tt.made)
	}
	want := map[string]int{}
	for revision, n := range tt.calls {
		want[keys[revision]] = n
	}
	if got := v.seen(); !maps.Equal(got, want) {
		b.Errorf("the vendor saw %v, want %v", got, want)
	}
	dead := b.held("h")["/shop e"]
	if dead.Class != tt.class {
		b.Errorf("held: %+v, want class %q", dead, tt.class)
	}
	if tt.class != "" {
		b.wantOnce("h")
		if got := b.failure("/shop e"); !strings.Contains(got, fill(tt.text)) {
			b.Errorf("failure: %s; want %q in it", got, fill(tt.text))
		}
		return
	}
	result := fill(tt.result)
	b.wantOnce("h", "e "+result)
	noted := slices.ContainsFunc(b.receipts("h"), func(r receipt) bool { // under the key of the call that did it
		return r.Done && r.Result == result && (result == "ch" || strings.HasSuffix(result, r.Key))
	})
	if !noted {
		b.Errorf("receipts: %+v", b.receipts("h"))
	}
}

// leave writes receipts, and returns the keys of revisions 0 and 1.
func (b *bench) leave(v *vendor, all []left) (keys [2]string) {
	b.Helper()
	var instance string
	if err := b.pool.QueryRow(b.Context(), "SELECT id::text FROM postroom.instance").Scan(&instance); err != nil {
		b.Fatal(err)
	}
	for revision := range keys {
		keys[revision] = inbox.StepKey(instance, "h", "/shop e", "charge", int32(revision)) //nolint:gosec // one of two
	}
	for _, l := range all {
		b.exec(`INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, started_at, done_at, result)
			VALUES ('h', '/shop e', 'charge', $1, $2, now() - $3::interval, CASE WHEN $4::text <> '' THEN now() END, convert_to(to_json(nullif($4::text, ''))::text, 'UTF8'))`,
			l.revision, keys[l.revision], l.ago, l.result)
		if l.called {
			if _, err := v.charge(b.Context(), keys[l.revision]); err != nil {
				b.Fatal(err)
			}
		}
	}
	return keys
}

// Each step has the rules of its own vendor: one recognises keys, one can be asked, and one can do
// neither.
func TestEachStepHasItsOwnOptions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t, faulty, charged, faulty, faulty)
	sub := inbox.Subscription{Name: "h", Workers: 1, Schedule: postroom.Backoff{10 * time.Millisecond}, Attempts: 8}
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		for _, step := range []struct {
			name   string
			option postroom.CallOption
		}{{"recognises", postroom.VendorWindow(time.Hour)}, {"tells", postroom.Lookup(lookups["found"])}, {"neither", postroom.VendorWindow(0)}} {
			if _, err := inbox.Step(ctx, attempt, step.name, v.charge, step.option); err != nil {
				return err
			}
		}
		return nil
	})
	b.accept("h", "e")
	b.run()
	b.eventually("its death", func() bool { return b.dead("h") == 1 })
	if got := b.held("h")["/shop e"]; got.Class != "outcome_unknown" {
		t.Errorf("held: %+v", got)
	}
	calls := v.seen()
	got := map[string]int{}
	for _, r := range b.receipts("h") {
		got[r.Step] = calls[r.Key]
		if r.Done != (r.Step != "neither") {
			t.Errorf("receipt: %+v", r)
		}
	}
	if want := map[string]int{"recognises": 2, "tells": 1, "neither": 1}; !maps.Equal(got, want) {
		t.Errorf("calls by step: %v, want %v", got, want)
	}
}

// A step has another key if its event was edited. Another step, event, handler or database has another
// key, too.
func TestKeysOfSteps(t *testing.T) {
	t.Parallel()
	v := newVendor(t, refuses)
	handle := func(b *bench, name string) {
		b.in.HandleExternal(inbox.Subscription{Name: name, Workers: 1, Schedule: postroom.Backoff{time.Hour}, Attempts: 8}, func(ctx context.Context, attempt *inbox.Attempt) error {
			_, err := inbox.Step(ctx, attempt, "charge", v.charge)
			if err == nil {
				_, err = inbox.Step(ctx, attempt, "mail", v.charge)
			}
			return err
		})
	}
	first, second := newBench(t), newBench(t)
	second.exec("UPDATE postroom.instance SET id = gen_random_uuid()") // the tests copy one database
	handle(first, "h")
	handle(first, "g")
	handle(second, "h")
	first.accept("h", "e")
	first.run()
	first.eventually("a refused call", func() bool { return first.held("h")["/shop e"].Class == "error" })
	first.exec("UPDATE postroom.held SET revision = 1, next_at = now()")
	first.accept("h", "f")
	first.accept("g", "e")
	second.accept("h", "e")
	second.run()
	for _, b := range []*bench{first, second} {
		b.eventually("the events to be done", func() bool { return len(b.held("h"))+len(b.held("g")) == 0 })
	}
	calls := v.seen()
	for key, n := range calls {
		if n != 1 || !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(key) {
			t.Errorf("%d calls with key %s", n, key)
		}
	}
	if len(calls) != 9 {
		t.Errorf("%d keys, want 9: charge before the edit, and charge and mail of e after it, of f, of handler g and of the other database", len(calls))
	}
}

// If a vendor refuses a call now, an earlier call with an unknown outcome may still have
// happened.
func TestRefusalLeavesEarlierCallsUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor(t, lost, refuses)
	sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: 2, VendorWindow: time.Hour, Schedule: postroom.Backoff{10 * time.Millisecond}}
	b.in.HandleExternal(sub, charging(v))
	b.accept("h", "e")
	b.run()
	b.eventually("its death", func() bool { return b.dead("h") == 1 })
	rows := b.receipts("h")
	if len(rows) != 1 || rows[0].Done || rows[0].Unanswered != 1 || v.total() != 2 {
		t.Errorf("receipts %+v after %d calls, want one call without an answer", rows, v.total())
	}
}

// Another process records a step as done during a call or a lookup of the step. That result counts
// for everyone, even if it is null.
func TestFirstRecordedResultCounts(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"call", "lookup"} {
		for first, text := range map[string]string{`"first"`: "first", `null`: "", `"second"`: "second"} {
			t.Run(from+", "+first, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				record := func() json.RawMessage {
					b.exec("UPDATE postroom.receipt SET done_at = now(), result = $1", []byte(first))
					return json.RawMessage(`"second"`)
				}
				var got json.RawMessage
				b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1}, func(ctx context.Context, attempt *inbox.Attempt) (err error) {
					got, err = inbox.Step(ctx, attempt, "charge", func(context.Context, string) (json.RawMessage, error) { return record(), nil },
						postroom.Lookup(func(context.Context, string) (json.RawMessage, bool, error) { return record(), true, nil }))
					return err
				})
				b.accept("h", "e")
				if from == "lookup" {
					b.exec("INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key) SELECT handler, dedupe_key, 'charge', 0, 'k' FROM postroom.inbox")
				}
				stop := b.run()
				b.waitUntilNoneHeld("h")
				stop()
				if string(got) != first {
					t.Errorf("Step returned %q, want %q", got, first)
				}
				if rows := b.receipts("h"); len(rows) != 1 || rows[0].Result != text {
					t.Errorf("receipts %+v, want one with result %q", rows, text)
				}
			})
		}
	}
}

// Two owners begin a step at once, and one of them does not know yet that its claim is over.
// If the vendor recognises no keys, only one of them calls.
func TestOneOfTwoOwnersCallsAVendorWithoutKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.HandleExternal(inbox.Subscription{Name: "h"}, func(context.Context, *inbox.Attempt) error { return nil })
	text := devtest.SQL(t, "internal/ledger/sql/start.sql")
	begin := func(db interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}, key string, epoch int64, window time.Duration,
	) (verdict string) {
		t.Helper()
		var ignored any
		err := db.QueryRow(t.Context(), text, []string{"h"}, []string{key}, []string{"charge"}, []int32{0}, []string{"k"},
			[]time.Duration{window}, []int64{epoch}, []int64{epoch}, []string{uuid.NewString()}).Scan(&verdict, &ignored, &ignored, &ignored, &ignored, &ignored, &ignored)
		if err != nil {
			t.Error(err)
		}
		return verdict
	}
	for i, tt := range []struct {
		window time.Duration
		want   string
	}{{0, "again"}, {time.Hour, "call"}} {
		id := fmt.Sprint("e", i)
		b.accept("h", id)
		epoch := int64(i + 1) // and the row's id
		b.exec("UPDATE postroom.held SET epoch = id, claimed_by = 'a', attempts = 1 WHERE event_id = $1", id)
		first, err := b.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := begin(first, "/shop "+id, epoch, tt.window); got != "call" {
			t.Fatalf("first: %s, want call", got)
		}
		verdict := make(chan string, 1)
		go func() { verdict <- begin(b.pool, "/shop "+id, epoch, tt.window) }()
		b.eventually("the second to wait for the first", func() bool { return waits(t, b.pool) })
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-verdict; got != tt.want {
			t.Errorf("window %s: the second gets %q, want %q", tt.window, got, tt.want)
		}
	}
}

// waits reports whether a session of the pool's database waits for a lock.
func waits(t *testing.T, pool *pgxpool.Pool) (waiting bool) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waiting)
	if err != nil {
		t.Fatal(err)
	}
	return waiting
}
