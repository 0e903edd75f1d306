package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbound"
	"github.com/postroom/postroom/schema"
)

var errLost = errors.New("no answer")

// bank is a vendor that a step calls. The test says what it does at each of the next calls. At all
// later calls it charges.
type bank struct {
	*rig
	keys    []string // of the calls
	answers []error
	asked   []string // keys that it was asked about
	meant   func()   // called in each call
}

func (b *bank) charge(_ context.Context, key string) (string, error) {
	b.keys = append(b.keys, key)
	if b.meant != nil {
		b.meant()
	}
	if len(b.answers) == 0 {
		return "ch_" + key, nil
	}
	err := b.answers[0]
	b.answers = b.answers[1:]
	return "", err
}

// lookupReturns answers whether a call happened.
func (b *bank) lookupReturns(found bool, err error) postroom.CallOption {
	return postroom.Lookup(func(_ context.Context, key string) (string, bool, error) {
		b.asked = append(b.asked, key)
		return "found_" + key, found, err
	})
}

const callTimeout = 10 * time.Minute // which is taken off a key's window

// pay is one attempt at an operation that charges once.
func (b *bank) pay(options ...postroom.CallOption) (string, error) {
	op := idempotency.Operation{Scope: "pay", Key: "k", Timeout: callTimeout}
	id, _, err := idempotency.DoLease(b.Context(), b.guard, op, func(ctx context.Context) (string, error) {
		return idempotency.Call(ctx, "charge", b.charge, options...)
	})
	return id, err
}

// begun returns how many calls are recorded as unanswered.
func (b *bank) begun() int {
	b.Helper()
	return one[int](b.rig, "SELECT coalesce((checkpoints->''->'charge'->>'calls')::int, 0) FROM postroom.idempotency")
}

// ago moves the first recorded call into the past, by the database's clock.
func (b *bank) ago(d time.Duration) {
	b.Helper()
	b.exec("UPDATE postroom.idempotency SET checkpoints = jsonb_set(checkpoints, '{\"\",charge,since}', to_jsonb(clock_timestamp() - $1::interval))", d)
}

// wantCharged checks how often the bank was called, and how often it was asked, and that each call
// had the same key.
func (b *bank) wantCharged(calls, asked int) {
	b.Helper()
	if len(b.keys) != calls || len(b.asked) != asked {
		b.Errorf("%d calls, and asked %d times; want %d and %d", len(b.keys), len(b.asked), calls, asked)
	}
	if all := append(slices.Clone(b.keys), b.asked...); len(slices.Compact(all)) != 1 || len(all[0]) != 32 {
		b.Errorf("keys were %v", all)
	}
}

func newBank(t *testing.T, answers ...error) *bank {
	t.Helper()
	return &bank{rig: newRig(t), answers: answers}
}

// The beginning of a call is recorded before the call, but only if its outcome may matter. A call
// that is done leaves no unknown outcome.
func TestBeginOfACallIsNoted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		option postroom.CallOption
		noted  int
	}{"none": {nil, 0}, "window": {postroom.VendorWindow(time.Hour), 1}, "no keys": {postroom.VendorWindow(0), 1}} {
		b := newBank(t)
		var options []postroom.CallOption
		if tt.option != nil {
			options = append(options, tt.option)
		}
		b.meant = func() {
			if got := b.begun(); got != tt.noted {
				t.Errorf("%s: %d are noted while it is called, want %d", name, got, tt.noted)
			}
		}
		id, err := b.pay(options...)
		if err != nil || id != "ch_"+b.keys[0] || b.begun() != 0 {
			t.Errorf("%s: %q, %v; %d are noted after it", name, id, err, b.begun())
		}
		b.wantCharged(1, 0)
	}
}

// While the vendor recognises the key, the call is made again with it. The time counts by the
// database's clock, from the first call on, and leaves time for the handler.
func TestCallIsRepeatedWithinTheVendorsWindow(t *testing.T) {
	t.Parallel()
	for ago, again := range map[time.Duration]bool{0: true, 49 * time.Minute: true, 51 * time.Minute: false, 24 * time.Hour: false} {
		b := newBank(t, errLost, errLost)
		window := postroom.VendorWindow(time.Hour)
		if _, err := b.pay(window); !errors.Is(err, errLost) || errors.Is(err, idempotency.ErrOutcomeUnknown) {
			t.Errorf("the first attempt: %v", err)
		}
		b.ago(ago)
		since := one[time.Time](b.rig, "SELECT (checkpoints->''->'charge'->>'since')::timestamptz FROM postroom.idempotency")
		if !again {
			for range 2 { // now, and in every later attempt
				_, err := b.pay(window)
				if !errors.Is(err, idempotency.ErrOutcomeUnknown) {
					t.Errorf("after %s: %v", ago, err)
					continue
				}
				for _, part := range []string{"call charge", b.keys[0], since.UTC().Format(time.RFC3339), "Lookup"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %s", err, part)
					}
				}
			}
			b.wantCharged(1, 0)
			continue
		}
		if _, err := b.pay(window); !errors.Is(err, errLost) || b.begun() != 2 {
			t.Errorf("after %s: %v, %d are noted", ago, err, b.begun())
		}
		if now := one[time.Time](b.rig, "SELECT (checkpoints->''->'charge'->>'since')::timestamptz FROM postroom.idempotency"); !now.Equal(since) {
			t.Errorf("the window began at %s, and anew at %s", since, now)
		}
		if id, err := b.pay(window); err != nil || id != "ch_"+b.keys[0] {
			t.Errorf("the third attempt: %q, %v", id, err)
		}
		b.wantCharged(3, 0)
	}
}

// A vendor that accepts no keys is called once, and not again while the outcome is unknown.
func TestVendorWithoutKeysIsCalledOnce(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]postroom.CallOption{
		"0": postroom.VendorWindow(0), "less than 0": postroom.VendorWindow(-1), "less than the handler's time": postroom.VendorWindow(callTimeout),
	} {
		b := newBank(t, errLost)
		if _, err := b.pay(option); !errors.Is(err, errLost) || !errors.Is(err, idempotency.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want that its outcome is not known, and why", name, err)
		}
		if _, err := b.pay(option); !errors.Is(err, idempotency.ErrOutcomeUnknown) || errors.Is(err, errLost) {
			t.Errorf("%s, again: %v", name, err)
		}
		b.wantCharged(1, 0)
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	broken := errors.New("cannot ask")
	b := newBank(t, errLost)
	if _, err := b.pay(b.lookupReturns(true, nil)); !errors.Is(err, errLost) || errors.Is(err, idempotency.ErrOutcomeUnknown) {
		t.Errorf("the first attempt: %v", err)
	}
	b.wantCharged(1, 0)
	if _, err := b.pay(b.lookupReturns(true, broken)); !errors.Is(err, broken) || b.begun() != 1 {
		t.Errorf("cannot ask: %v, %d are noted", err, b.begun())
	}
	b.wantCharged(1, 1)
	if id, err := b.pay(b.lookupReturns(true, nil)); err != nil || id != "found_"+b.keys[0] {
		t.Errorf("found: %q, %v", id, err)
	}
	b.wantCharged(1, 2)

	b = newBank(t, errLost)
	_, _ = b.pay(b.lookupReturns(true, nil))
	b.ago(24 * time.Hour)
	b.meant = func() {
		if ago := one[time.Duration](b.rig, "SELECT clock_timestamp() - (checkpoints->''->'charge'->>'since')::timestamptz FROM postroom.idempotency"); ago > time.Hour || b.begun() != 1 {
			t.Errorf("made anew, it counts from %s ago, and %d are noted", ago, b.begun())
		}
	}
	if id, err := b.pay(b.lookupReturns(false, nil)); err != nil || id != "ch_"+b.keys[0] {
		t.Errorf("not found: %q, %v", id, err)
	}
	b.wantCharged(2, 1)

	// The vendor is not asked while it recognises the key.
	b = newBank(t, errLost)
	_, _ = b.pay(b.lookupReturns(true, nil), postroom.VendorWindow(time.Hour))
	if id, err := b.pay(postroom.VendorWindow(time.Hour), b.lookupReturns(true, nil)); err != nil || id != "ch_"+b.keys[0] {
		t.Errorf("within the window: %q, %v", id, err)
	}
	b.wantCharged(2, 0)
}

// What a Lookup found is recorded as the result of the call: later attempts neither look it up
// nor call.
func TestLookupResultIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBank(t, errLost)
	broken := errors.New("broken")
	pay := func() error {
		_, _, err := idempotency.DoLease(t.Context(), b.guard, idempotency.Operation{Scope: "pay", Key: "k"}, func(ctx context.Context) (string, error) {
			id, err := idempotency.Call(ctx, "charge", b.charge, b.lookupReturns(true, nil))
			if err == nil && id != "found_"+b.keys[0] {
				t.Errorf("the result is %s", id)
			}
			return id, errors.Join(err, broken)
		})
		return err
	}
	for i := range 3 {
		if err := pay(); !errors.Is(err, broken) || errors.Is(err, errLost) != (i == 0) {
			t.Errorf("attempt %d: %v", i+1, err)
		}
	}
	b.wantCharged(1, 1)
}

// A client of package outbound says whether the vendor may have acted. The handler has not to pass
// this on.
func TestACallKnowsTheErrorsOfOutbound(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	client := outbound.NewClient(outbound.Config{Protocol: outbound.NoKeys(), Attempts: 1})
	post := func(url string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Fetch(req)
		return err
	}
	refused, unknown := post(gone.URL), post(server.URL)
	for name, tt := range map[string]struct {
		err     error
		unknown bool
	}{
		"refused": {refused, false}, "unknown": {unknown, true},
		"joined": {errors.Join(refused, unknown), true}, "joined, and said": {postroom.NotApplied(errors.Join(refused, unknown)), true},
		"unknown, and said": {postroom.NotApplied(unknown), false},
	} {
		b := newBank(t, tt.err)
		if _, err := b.pay(postroom.VendorWindow(0)); err == nil || errors.Is(err, idempotency.ErrOutcomeUnknown) != tt.unknown || (b.begun() == 1) != tt.unknown {
			t.Errorf("%s: %v, %d are noted", name, err, b.begun())
		}
		if _, err := b.pay(postroom.VendorWindow(0)); (err != nil) != tt.unknown {
			t.Errorf("%s, the next attempt: %v", name, err)
		}
	}
}

// A call that did not happen leaves no unknown outcome. The unknown outcome of an earlier call
// stays.
func TestNotApplied(t *testing.T) {
	t.Parallel()
	if postroom.NotApplied(nil) != nil {
		t.Error("no error became one")
	}
	refused := errors.New("refused")
	b := newBank(t, postroom.NotApplied(refused), postroom.NotApplied(refused))
	for range 2 {
		if _, err := b.pay(postroom.VendorWindow(0)); !errors.Is(err, refused) || errors.Is(err, idempotency.ErrOutcomeUnknown) || b.begun() != 0 {
			t.Errorf("%v, %d are noted", err, b.begun())
		}
	}
	if _, err := b.pay(postroom.VendorWindow(0)); err != nil {
		t.Error(err)
	}
	b.wantCharged(3, 0)

	b = newBank(t, errLost, postroom.NotApplied(refused))
	for range 2 {
		_, _ = b.pay(postroom.VendorWindow(time.Hour))
	}
	if b.begun() != 1 {
		t.Errorf("%d are noted, want the first call", b.begun())
	}
	b.ago(time.Hour)
	if _, err := b.pay(postroom.VendorWindow(time.Hour)); !errors.Is(err, idempotency.ErrOutcomeUnknown) {
		t.Errorf("the first call's outcome is not known: %v", err)
	}
	b.wantCharged(2, 0)
}

// The options of two calls that run at the same time do not mix.
func TestOptionsOfConcurrentCallsDoNotMix(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	_, _, err := idempotency.DoLease(t.Context(), b.guard, idempotency.Operation{Scope: "pay", Key: "k"}, func(ctx context.Context) (string, error) {
		return idempotency.Call(ctx, "charge", func(ctx context.Context, key string) (string, error) {
			if _, err := idempotency.Call(ctx, "charge", b.charge, postroom.VendorWindow(0)); err == nil || !strings.Contains(err.Error(), "is running") {
				t.Errorf("the call within itself: %v", err)
			}
			return b.charge(ctx, key)
		}, postroom.VendorWindow(0))
	})
	if err != nil {
		t.Error(err)
	}
	b.wantCharged(1, 0)
}

// Each of several calls that run at the same time is recorded, even while the claim is renewed.
func TestConcurrentCallsAreEachNoted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, _, err := idempotency.DoLease(t.Context(), r.guard, idempotency.Operation{Scope: "pay", Key: "k"}, func(ctx context.Context) (int, error) {
		var all sync.WaitGroup
		all.Go(func() {
			for range 50 { // as renewals do
				if _, err := r.pool.Exec(ctx, "UPDATE postroom.idempotency SET lease_until = lease_until + interval '1 s'"); err != nil {
					t.Error(err)
				}
			}
		})
		for i := range 40 {
			all.Go(func() {
				_, err := idempotency.Call(ctx, fmt.Sprint("charge ", i), func(context.Context, string) (int, error) {
					if i%2 == 0 {
						return 0, errLost
					}
					return i, nil
				}, postroom.VendorWindow(time.Hour))
				if errors.Is(err, errLost) != (i%2 == 0) {
					t.Errorf("charge %d: %v", i, err)
				}
			})
		}
		all.Wait()
		return 0, errLost
	})
	if !errors.Is(err, errLost) {
		t.Error(err)
	}
	if got := one[string](r, `SELECT (SELECT count(*) FROM jsonb_object_keys(checkpoints->'')) || ' ' || (SELECT count(*) FROM jsonb_object_keys(checkpoints)) FROM postroom.idempotency`); got != "20 21" {
		t.Errorf("unanswered calls and checkpoints are %s, want 20 and as many done", got)
	}
}

func TestMisusedCalls(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	_, _, err := idempotency.DoLease(t.Context(), b.guard, idempotency.Operation{Scope: "pay", Key: "k"}, func(ctx context.Context) (string, error) {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "Lookup of call charge") {
					t.Errorf("a Lookup of another type: %q", text)
				}
			}()
			_, _ = idempotency.Call(ctx, "charge", b.charge, postroom.Lookup(func(context.Context, string) (int, bool, error) { return 0, false, nil }))
		}()
		if _, err := idempotency.Call(ctx, "", b.charge); err == nil {
			t.Error("a call without a name was made")
		}
		return idempotency.Phase(ctx, "", func(context.Context, pgx.Tx) (string, error) { return "", nil })
	})
	if err == nil || len(b.keys) != 0 {
		t.Errorf("a phase without a name: %v; %d calls", err, len(b.keys))
	}
}

// A newer program has another type for the result of a step. It gets an error, and makes no second call.
func TestACallWithAResultOfAnotherShape(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	type charge struct{ ID string }
	type receipt struct{ Number int }
	op := idempotency.Operation{Scope: "pay", Key: "k", Timeout: callTimeout}
	_, _, err := idempotency.DoLease(t.Context(), b.guard, op, func(ctx context.Context) (string, error) {
		if _, err := idempotency.Call(ctx, "charge", func(ctx context.Context, key string) (charge, error) {
			id, err := b.charge(ctx, key)
			return charge{ID: id}, err
		}); err != nil {
			return "", err
		}
		_, err := idempotency.Call(ctx, "charge", func(context.Context, string) (receipt, error) {
			t.Error("the call was made again")
			return receipt{}, nil
		})
		return "", err
	})
	if err == nil || !strings.Contains(err.Error(), "it has none of the fields") || len(b.keys) != 1 {
		t.Errorf("%v after %d calls", err, len(b.keys))
	}
}

// A request without its optional key has no row, but its calls can still have unknown outcomes.
func TestCallsOfARequestWithoutKey(t *testing.T) {
	t.Parallel()
	b := newBank(t, errLost, postroom.NotApplied(errLost))
	var got []error
	path := b.mount(leased, func(_ http.ResponseWriter, req *http.Request) {
		for range 3 {
			_, err := idempotency.Call(req.Context(), "charge", b.charge, postroom.VendorWindow(0))
			got = append(got, err)
		}
	})
	b.send(path, sending{method: http.MethodPut})
	if !errors.Is(got[0], idempotency.ErrOutcomeUnknown) || !errors.Is(got[1], errLost) || errors.Is(got[1], idempotency.ErrOutcomeUnknown) || got[2] != nil {
		t.Errorf("calls ended with %v", got)
	}
}

// A handler answers with a failure, because the outcome of its call is unknown. The answer is not
// kept, so the request can be sent again. If the handler then has a Lookup, it continues.
func TestAnswersAfterAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	b := newBank(t, errLost)
	option := postroom.VendorWindow(0)
	path := b.mount(leased, func(w http.ResponseWriter, req *http.Request) {
		id, err := idempotency.Call(req.Context(), "charge", b.charge, option)
		if errors.Is(err, idempotency.ErrOutcomeUnknown) {
			http.Error(w, "we are finding out", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(id))
	})
	for range 3 {
		w := b.post(path, "k")
		b.want(w, 500, "")
		if got := w.Header().Get("Idempotency-Status"); got != "" {
			t.Errorf("the failure is %s", got)
		}
	}
	b.want(b.send(path, sending{key: "k", body: "2"}), 422, "idempotency_key_payload_mismatch")
	option = b.lookupReturns(true, nil)
	w := b.post(path, "k")
	b.want(w, 201, "")
	b.wantReplay(w, b.post(path, "k"))
	b.wantCharged(1, 1)
}

// Two tenants share an account at the vendor, and each has its own Postroom. They pay with the same
// key, and the vendor gets different keys. The same holds for two services with their own
// databases, and for a copy of a schema with the same identity.
func TestVendorKeysOfTwoPostrooms(t *testing.T) {
	t.Parallel()
	keys := make(map[string]string)
	pay := func(r *rig, name, tenant string) {
		t.Helper()
		g := idempotency.New(r.pool, idempotency.Config{Schema: tenant})
		for range 2 { // the second attempt has the key of the first
			_, _, err := idempotency.DoLease(t.Context(), g, idempotency.Operation{Scope: "payout", Key: "2026-11"}, func(ctx context.Context) (string, error) {
				return idempotency.Call(ctx, "pay", func(_ context.Context, key string) (string, error) {
					if was := keys[key]; was != "" && was != name {
						t.Errorf("%s and %s gave the vendor one key", was, name)
					}
					keys[key] = name
					return "", errLost
				}, postroom.VendorWindow(time.Hour))
			})
			if !errors.Is(err, errLost) {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	first, second := newRig(t), newRig(t)
	for _, tenant := range []string{"tenant_a", "tenant_b", "tenant_c"} {
		if _, err := schema.Migrate(t.Context(), first.pool, tenant); err != nil {
			t.Fatal(err)
		}
	}
	second.exec("UPDATE postroom.instance SET id = gen_random_uuid()") // the tests copy one database
	first.exec("UPDATE tenant_c.instance SET id = (SELECT id FROM tenant_b.instance)")
	pay(first, "the service", "postroom")
	pay(first, "tenant a", "tenant_a")
	pay(first, "tenant b", "tenant_b")
	pay(first, "a copy of tenant b", "tenant_c")
	pay(second, "the other service", "postroom")
	if len(keys) != 5 {
		t.Errorf("the vendor got %d keys of 5 operations: %v", len(keys), keys)
	}
}

// failUpdates makes the database refuse the next changes of the key's row, except claims, with
// an error.
func (b *bank) failUpdates(code string, times int) {
	b.exec(`CREATE SEQUENCE hiccups`)
	b.exec(fmt.Sprintf(`CREATE FUNCTION hiccup() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.fence = OLD.fence AND NEW.lease_until = OLD.lease_until AND nextval('hiccups') <= %d THEN RAISE 'hiccup' USING ERRCODE = '%s'; END IF;
		RETURN NEW; END $$`, times, code))
	b.exec("CREATE TRIGGER hiccup BEFORE UPDATE ON postroom.idempotency FOR EACH ROW EXECUTE FUNCTION hiccup()")
}

// The vendor has answered, and the database first refuses to record that. The outcome is known, and
// is recorded later.
func TestKnownOutcomesAreRecorded(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for _, code := range []string{"40001", "55P03", "53100", "57P03", "42501"} {
		b := newBank(t)
		b.meant = func() { b.failUpdates(code, 2) }
		for range 2 {
			if _, err := b.pay(postroom.VendorWindow(0)); err != nil {
				t.Errorf("%s: %v", code, err)
			}
			b.meant = nil
		}
		b.wantCharged(1, 0)

		b = newBank(t, postroom.NotApplied(refused))
		b.meant = func() { b.failUpdates(code, 2) }
		if _, err := b.pay(postroom.VendorWindow(0)); !errors.Is(err, refused) || b.begun() != 0 {
			t.Errorf("%s: %v, %d are noted", code, err, b.begun())
		}
	}
	b := newBank(t)
	b.meant = func() { b.failUpdates("23514", 1) } // the row is refused, and would be again
	if _, err := b.pay(postroom.VendorWindow(0)); err == nil {
		t.Error("a refused record was repeated")
	}
}

// A call that did not happen is taken back once, however often that is recorded. An earlier call
// with an unknown outcome still counts.
func TestCallThatDidNotHappenIsCountedBackOnce(t *testing.T) {
	t.Parallel()
	b := newBank(t, errLost, postroom.NotApplied(errors.New("refused")))
	_, _ = b.pay(postroom.VendorWindow(time.Hour))
	b.meant = func() { // the record of it was committed, but its answer was lost
		b.exec(`UPDATE postroom.idempotency SET checkpoints = jsonb_set(checkpoints #- '{"",charge,call}', '{"",charge,calls}', '1')`)
	}
	_, _ = b.pay(postroom.VendorWindow(time.Hour))
	if b.begun() != 1 {
		t.Errorf("%d are noted, want the first call", b.begun())
	}
}

// The answer to a statement of a call is lost, and the statement is repeated. No call was made, or
// its outcome is known, so nobody has to ask the vendor, who knows no keys. If the database cannot be
// reached until the time of the attempt is up, the next attempt makes the call.
func TestCallsWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	refused := postroom.NotApplied(errors.New("refused"))
	for name, tt := range map[string]struct {
		statement string
		answers   []error
		window    time.Duration
		begun     int // how many calls have no known outcome afterwards
		fails     bool
	}{
		"it begins":               {"begin", nil, 0, 0, false},
		"it begins again":         {"begin", []error{errLost}, time.Hour, 1, true},
		"it is done":              {"advance", nil, 0, 0, false},
		"it did not happen":       {"undo", []error{refused}, 0, 0, true},
		"it did not happen again": {"undo", []error{errLost, refused}, time.Hour, 1, true},
		"the key is claimed":      {"claim", nil, 0, 0, false},
		"the claim is taken over": {"take", []error{refused}, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, tt.answers...)
			losing := &devtest.Losing{Mark: firstLine(t, tt.statement)}
			b.guard = idempotency.New(losing.Pool(t, b.pool), idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
			for n := range max(len(tt.answers), 1) {
				_, err := b.pay(postroom.VendorWindow(tt.window))
				if (err != nil) != tt.fails || errors.Is(err, idempotency.ErrOutcomeUnknown) {
					t.Errorf("attempt %d: %v", n+1, err)
				}
			}
			if tt.statement == "take" {
				if _, err := b.pay(postroom.VendorWindow(0)); err != nil {
					t.Errorf("the next attempt: %v", err)
				}
			}
			if !losing.Lost.Load() {
				t.Fatal("no answer was lost")
			}
			if got := b.begun(); got != tt.begun {
				t.Errorf("%d calls are noted, want %d", got, tt.begun)
			}
		})
	}
}

// The answer to the beginning of a call is lost, and the database cannot be reached until the time of
// the attempt is up. The attempt takes the beginning back, and the next one makes the call.
func TestBeginInDoubtIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	losing := &devtest.Losing{Mark: firstLine(t, "begin")}
	losing.Down.Store(true)
	b.guard = idempotency.New(losing.Pool(t, b.pool), idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
	op := idempotency.Operation{Scope: "pay", Key: "k"}
	_, _, err := idempotency.DoLease(t.Context(), b.guard, op, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithCancel(ctx)
		go func() {
			for !losing.Lost.Load() {
				runtime.Gosched()
			}
			losing.Down.Store(false)
			cancel()
		}()
		return idempotency.Call(ctx, "charge", b.charge, postroom.VendorWindow(0))
	})
	if err == nil || b.begun() != 0 {
		t.Errorf("%v, and %d calls are noted, want none", err, b.begun())
	}
	if _, err := b.pay(postroom.VendorWindow(0)); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
	b.wantCharged(1, 0)
}

// firstLine returns the first line of a statement, which is a comment.
func firstLine(t *testing.T, statement string) string {
	t.Helper()
	line, _, _ := strings.Cut(devtest.SQL(t, "internal/claim/sql/"+statement+".sql"), "\n")
	return line
}

// The error of another call can be the cause for which the context of a call ends. A client that
// returns the cause says nothing about its own call.
func TestTheCauseOfAContextSaysNothingAboutACall(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	op := idempotency.Operation{Scope: "pay", Key: "k", Timeout: callTimeout}
	_, _, err := idempotency.DoLease(t.Context(), b.guard, op, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		return idempotency.Call(ctx, "charge", func(ctx context.Context, key string) (string, error) {
			_, _ = b.charge(ctx, key)
			cancel(postroom.NotApplied(errors.New("another call was refused")))
			return "", context.Cause(ctx)
		}, postroom.VendorWindow(0))
	})
	if !errors.Is(err, idempotency.ErrOutcomeUnknown) || b.begun() != 1 {
		t.Errorf("%v, and %d calls have an unknown outcome, want one", err, b.begun())
	}
	b.wantCharged(1, 0)
}

// A call has no function. Nothing is called, so no outcome is unknown.
func TestACallWithoutAFunction(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	op := idempotency.Operation{Scope: "pay", Key: "k", Timeout: callTimeout}
	_, _, err := idempotency.DoLease(t.Context(), b.guard, op, func(ctx context.Context) (result string, err error) {
		defer func() {
			said := fmt.Sprint(recover())
			if n := b.begun(); !strings.Contains(said, "call charge has no function") || n != 0 {
				t.Errorf("%s, and %d calls have an unknown outcome, want none", said, n)
			}
		}()
		return idempotency.Call[string](ctx, "charge", nil, postroom.VendorWindow(0))
	})
	if err != nil {
		t.Error(err)
	}
}

// sly is a result that does not encode. Its error says that a call had no effect.
type sly struct{}

func (sly) MarshalJSON() ([]byte, error) { return nil, postroom.NotApplied(errors.New("no form")) }

// The result of a call does not encode. The call was made, and no vendor recognises its key.
func TestAResultThatDoesNotEncodeIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	op := idempotency.Operation{Scope: "pay", Key: "k", Timeout: callTimeout}
	for range 2 {
		_, _, err := idempotency.DoLease(t.Context(), b.guard, op, func(ctx context.Context) (string, error) {
			_, err := idempotency.Call(ctx, "charge", func(ctx context.Context, key string) (sly, error) {
				_, err := b.charge(ctx, key)
				return sly{}, err
			}, postroom.VendorWindow(0))
			return "", err
		})
		if !errors.Is(err, idempotency.ErrOutcomeUnknown) || b.begun() != 1 {
			t.Errorf("%v, and %d calls have an unknown outcome, want one", err, b.begun())
		}
	}
	b.wantCharged(1, 0)
}
