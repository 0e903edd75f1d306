package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

var leased = idempotency.Route{Mode: idempotency.LeaseMode}

// threeSteps is a handler of lease mode with three steps. It fails at a given step.
type threeSteps struct {
	*rig
	steps []string
	keys  []string
	stop  string // the step that fails
}

func (j *threeSteps) serve(w http.ResponseWriter, req *http.Request) {
	ctx := req.Context()
	j.calls.Add(1)
	reserved, err := idempotency.Phase(ctx, "reserve", func(ctx context.Context, tx pgx.Tx) (int64, error) {
		var id int64
		return id, j.step("reserve", tx.QueryRow(ctx, "INSERT INTO ledger DEFAULT VALUES RETURNING id").Scan(&id), &id)
	})
	if err == nil {
		_, err = idempotency.Call(ctx, "charge", func(_ context.Context, key string) (string, error) {
			j.keys = append(j.keys, key)
			return "ch_1", j.step("charge", nil, nil)
		})
	}
	if err == nil {
		_, err = idempotency.Phase(ctx, "book", func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			_, err := tx.Exec(ctx, "UPDATE ledger SET note = 'booked ' || id WHERE id = $1", reserved)
			return struct{}{}, j.step("book", err, nil)
		})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (j *threeSteps) step(name string, err error, _ *int64) error {
	j.steps = append(j.steps, name)
	if err == nil && j.stop == name {
		return errors.New(name + " broke")
	}
	return err
}

// No completed step is repeated. An attempt continues where the previous one stopped, and a
// repeated call has the same key.
func TestLeaseResumes(t *testing.T) { // C4, E6
	t.Parallel()
	for stop, want := range map[string][]string{
		"reserve": {"reserve", "reserve", "charge", "book"},
		"charge":  {"reserve", "charge", "charge", "book"},
		"book":    {"reserve", "charge", "book", "book"},
	} {
		j := &threeSteps{rig: newRig(t), stop: stop}
		path := j.mount(leased, j.serve)
		j.want(j.post(path, "k"), 502, "")
		j.want(j.send(path, sending{key: "k", body: "2"}), 422, "idempotency_key_payload_mismatch") // a changed request is still refused
		j.stop = ""
		j.want(j.post(path, "k"), 201, "")
		if !slices.Equal(j.steps, want) {
			j.Errorf("%s broke: steps were %v, want %v", stop, j.steps, want)
		}
		if len(j.keys) == 2 && j.keys[0] != j.keys[1] {
			j.Errorf("the vendor had two keys: %v", j.keys)
		}
		j.wantReplay(j.post(path, "k"), j.post(path, "k"))
		if got := one[string](j.rig, "SELECT state || ' ' || attempts || ' ' || point FROM postroom.idempotency"); got != "complete 2 book" {
			j.Errorf("row is %s", got)
		}
		j.wantCalls(2, 1)
	}
}

// overrideStateAndLease leaves a claim behind as a process does that dies, and returns the path.
func (r *rig) overrideStateAndLease(rt idempotency.Route, h http.HandlerFunc) string {
	path := r.mount(rt, h)
	func() {
		defer func() { _ = recover() }()
		r.post(path, "k")
	}()
	r.exec("UPDATE postroom.idempotency SET state = 'pending', owner = gen_random_uuid(), lease_until = now() + interval '1 h', fence = fence + 1, completed_at = NULL")
	return path
}

func TestNextAttemptTakesAClaimThatRanOut(t *testing.T) { // E4, E6
	t.Parallel()
	r := newRig(t)
	path := r.overrideStateAndLease(leased, func(w http.ResponseWriter, req *http.Request) {
		info, _ := idempotency.FromContext(req.Context())
		if want := int(r.calls.Add(1)); info.Attempt != want {
			r.Errorf("attempt %d, want %d", info.Attempt, want)
		}
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(path, "k"), 409, "idempotency_in_progress")
	r.exec("UPDATE postroom.idempotency SET lease_until = now() - interval '1 s'")
	r.want(r.post(path, "k"), 201, "")
	r.wantCalls(2, 0)
	if n := r.counts()["idempotent.takeover"]; n != 1 {
		r.Errorf("%d take-overs", n)
	}
}

// A claim that is held is renewed, for as long as its handler works.
func TestClaimIsRenewed(t *testing.T) { // E4
	t.Parallel()
	r := newRig(t)
	g := newGate(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	path := r.mount(idempotency.Route{Mode: idempotency.LeaseMode, Lease: 15 * time.Second}, g.serve)
	answer := r.inside(g, path, sending{key: "k"})
	const until = "SELECT lease_until::text FROM postroom.idempotency"
	was := one[string](r, until)
	devtest.Eventually(t, patience, "the claim is renewed", func() bool { return one[string](r, until) != was })
	r.exec("UPDATE postroom.idempotency SET lease_until = now() + interval '1 h'") // so that it does not run out on a busy machine
	r.want(r.post(path, "k"), 409, "idempotency_in_progress")
	answer()
	if n := r.counts()["idempotent.takeover"]; n != 0 {
		r.Errorf("%d take-overs", n)
	}
}

// If the database does not answer a renewal, the claim is lost when it runs out, not when the
// renewal gives up: another attempt may run by then.
func TestClaimIsLostWhenItRunsOutDuringARenewal(t *testing.T) { // E4
	t.Parallel()
	r := newRig(t)
	begun, ended := make(chan struct{}), make(chan error, 1)
	path := r.mount(idempotency.Route{Mode: idempotency.LeaseMode, Lease: 2 * time.Second}, func(w http.ResponseWriter, req *http.Request) {
		close(begun)
		<-req.Context().Done()
		ended <- context.Cause(req.Context())
		w.WriteHeader(http.StatusCreated)
	})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		r.post(path, "k")
	}()
	<-begun
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM postroom.idempotency FOR UPDATE"); err != nil { // a renewal waits for it
		t.Fatal(err)
	}
	select {
	case cause := <-ended:
		if !errors.Is(cause, idempotency.ErrLeaseLost) {
			t.Errorf("the handler's context ended with %v, want ErrLeaseLost", cause)
		}
	case <-time.After(patience / 2):
		t.Error("the handler continues with an expired claim")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	<-answered
}

// A claim counts from before its statement was sent. If the statement waited for longer than a
// claim lasts, there is no claim.
func TestClaimCountsFromBeforeItsStatement(t *testing.T) { // E4
	t.Parallel()
	r := newRig(t)
	r.exec("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1.5); RETURN NEW; END $$")
	r.exec("CREATE TRIGGER slow AFTER INSERT ON postroom.idempotency FOR EACH ROW EXECUTE FUNCTION slow()")
	var cause error
	path := r.mount(idempotency.Route{Mode: idempotency.LeaseMode, Lease: time.Second}, func(w http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		cause = context.Cause(req.Context())
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(path, "k"), 201, "") // storing the answer finds that no other attempt has taken over
	if !errors.Is(cause, idempotency.ErrLeaseLost) {
		t.Errorf("the handler's context ended with %v, want ErrLeaseLost", cause)
	}
}

// A stalled holder wakes up after another attempt has taken over. It records nothing, and its
// answer is not kept.
func TestStalledHolder(t *testing.T) { // E5
	t.Parallel()
	r := newRig(t)
	g := newGate(nil)
	var late error
	var cause error
	g.then = func(w http.ResponseWriter, req *http.Request) {
		_, late = idempotency.Phase(req.Context(), "late", func(ctx context.Context, tx pgx.Tx) (int, error) {
			_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
			return 1, err
		})
		cause = context.Cause(req.Context())
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("late"))
	}
	path := r.mount(leased, func(w http.ResponseWriter, req *http.Request) {
		if r.calls.Add(1) == 1 {
			g.serve(w, req)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("taken over"))
	})
	answer := r.inside(g, path, sending{key: "k"})
	r.exec("UPDATE postroom.idempotency SET lease_until = now() - interval '1 s'")
	second := r.post(path, "k")
	r.want(second, 201, "")
	r.want(answer(), 409, "idempotency_in_progress")
	if !errors.Is(late, idempotency.ErrLeaseLost) || !errors.Is(cause, idempotency.ErrLeaseLost) {
		r.Errorf("the stalled one found %v, and its context ended with %v", late, cause)
	}
	if w := r.post(path, "k"); w.Body.String() != "taken over" {
		r.Errorf("the stored answer is %s", w.Body)
	}
	r.wantCalls(2, 0)
}

// The same holds if the stalled holder only answers.
func TestStalledHolderAnswers(t *testing.T) { // E5
	t.Parallel()
	for _, status := range []int{201, 500} {
		r := newRig(t)
		g := newGate(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		path := r.mount(leased, g.serve)
		answer := r.inside(g, path, sending{key: "k"})
		r.exec("UPDATE postroom.idempotency SET fence = fence + 1, owner = gen_random_uuid()")
		r.want(answer(), 409, "idempotency_in_progress")
		if got := one[string](r, "SELECT state::text FROM postroom.idempotency"); got != "pending" {
			r.Errorf("the other's claim is %s", got)
		}
	}
}

// A holder that lost its claim writes nothing, in whatever way it tries to write, and however it
// learns of the loss. Meanwhile the next holder is at work.
func TestHolderThatLostItsClaimWritesNothing(t *testing.T) { // E5
	t.Parallel()
	r, broken := newRig(t), errors.New("broken")
	const row = "SELECT (to_jsonb(i) - 'ctid')::text FROM postroom.idempotency i"
	var was string // the row, when the claim was lost
	writes := map[string]func(ctx context.Context) error{
		"a phase": func(ctx context.Context) error {
			_, err := idempotency.Phase(ctx, "late", func(ctx context.Context, tx pgx.Tx) (int, error) {
				_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
				return 1, err
			})
			return err
		},
		"a call": func(ctx context.Context) error {
			_, err := idempotency.Call(ctx, "late", func(context.Context, string) (int, error) { return 1, nil })
			return err
		},
		"an answer": func(context.Context) error { return nil },
		"a failure": func(context.Context) error { return broken },
		"a longer lease": func(ctx context.Context) error {
			devtest.Eventually(t, patience, "it hears that its claim is lost, or renews it", func() bool {
				return ctx.Err() != nil || one[string](r, row) != was
			})
			return context.Cause(ctx)
		},
	}
	for sign, lose := range map[string]string{
		"its fence": "fence = fence + 1", "its owner": "owner = gen_random_uuid()", "an answer": "state = 'complete', lease_until = NULL",
	} {
		for what, write := range writes {
			r.exec("TRUNCATE postroom.idempotency")
			op := idempotency.Operation{Scope: "pay", Key: "k", Lease: 300 * time.Millisecond}
			if what != "a longer lease" {
				op.Lease = time.Hour
			}
			_, _, err := idempotency.DoLease(t.Context(), r.guard, op, func(ctx context.Context) (int, error) {
				r.exec("UPDATE postroom.idempotency SET " + lose)
				was = one[string](r, row)
				return 1, write(ctx)
			})
			if want := map[bool]error{true: broken, false: idempotency.ErrLeaseLost}[what == "a failure"]; !errors.Is(err, want) {
				t.Errorf("%s after it lost %s: %v", what, sign, err)
			}
			if now := one[string](r, row); now != was || r.effects() != 0 {
				t.Errorf("%s after it lost %s: the row was\n%s and is\n%s, with %d effects", what, sign, was, now, r.effects())
			}
		}
	}
}

// An attempt runs for longer than the TTL, and then its process dies. The next attempt finds the
// steps that are done.
func TestStepsOutliveAnAttemptThatRunsForLongerThanTheTTL(t *testing.T) { // E6
	t.Parallel()
	r := newRig(t)
	runs, longer := 0, true
	op := idempotency.Operation{Scope: "pay", Key: "k", TTL: time.Hour, Lease: time.Second, Timeout: 6 * time.Hour}
	pay := func(ctx context.Context) (int, error) {
		_, err := idempotency.Phase(ctx, "charge", func(ctx context.Context, tx pgx.Tx) (int, error) {
			runs++
			_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
			return 0, err
		})
		if longer {
			r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 h'") // as if two hours had passed
			const until = "SELECT lease_until::text FROM postroom.idempotency"
			was := one[string](r, until)
			devtest.Eventually(t, patience, "the claim is renewed", func() bool { return one[string](r, until) != was })
			r.exec("UPDATE postroom.idempotency SET owner = gen_random_uuid(), lease_until = now() - interval '1 s'") // a process that died
		}
		return 0, err
	}
	if _, _, err := idempotency.DoLease(t.Context(), r.guard, op, pay); !errors.Is(err, idempotency.ErrLeaseLost) {
		t.Error(err)
	}
	longer = false
	if n, err := r.guard.Purge(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("the purge removed %d rows of a claim that has just ended: %v", n, err)
	}
	if _, _, err := idempotency.DoLease(t.Context(), r.guard, op, pay); err != nil {
		t.Error(err)
	}
	if runs != 1 || r.effects() != 1 {
		t.Errorf("the phase ran %d times and has %d effects, want one", runs, r.effects())
	}
}

// The row of a claim outlives the claim by one TTL, even if the claim is longer than the TTL. The
// answer expires one TTL after it was stored.
func TestRowOutlivesItsClaimByTheTTL(t *testing.T) { // C5, E6
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{Mode: idempotency.LeaseMode, TTL: time.Minute, Lease: time.Hour}, func(w http.ResponseWriter, _ *http.Request) {
		r.calls.Add(1)
		if !one[bool](r, "SELECT abs(extract(epoch FROM expires_at - lease_until - interval '1 min')) < 0.1 FROM postroom.idempotency") {
			t.Errorf("in attempt %d the row outlives the claim by %s", r.calls.Load(), one[string](r, "SELECT (expires_at - lease_until)::text FROM postroom.idempotency"))
		}
		w.WriteHeader(map[int64]int{1: http.StatusBadGateway, 2: http.StatusOK}[r.calls.Load()])
	})
	r.want(r.post(path, "k"), 502, "")
	r.want(r.post(path, "k"), 200, "")
	if !one[bool](r, "SELECT abs(extract(epoch FROM expires_at - completed_at - interval '1 min')) < 0.1 FROM postroom.idempotency") {
		t.Errorf("the answer is kept for %s", one[string](r, "SELECT (expires_at - completed_at)::text FROM postroom.idempotency"))
	}
}

// A key that expired while it was claimed begins anew, and its fence goes on.
func TestClaimOfAnExpiredKeyBeginsAnew(t *testing.T) {
	t.Parallel()
	j := &threeSteps{rig: newRig(t), stop: "book"}
	path := j.mount(leased, j.serve)
	j.want(j.post(path, "k"), 502, "")
	fence := one[int64](j.rig, "SELECT fence FROM postroom.idempotency")
	j.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 s'")
	j.stop, j.steps = "", nil
	j.want(j.post(path, "k"), 201, "")
	if want := []string{"reserve", "charge", "book"}; !slices.Equal(j.steps, want) {
		j.Errorf("steps were %v", j.steps)
	}
	if got := one[int64](j.rig, "SELECT fence FROM postroom.idempotency"); got <= fence {
		j.Errorf("the fence changed from %d to %d", fence, got)
	}
}

// An operation that changes its mode keeps its keys.
func TestChangeOfMode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ok := func(w http.ResponseWriter, _ *http.Request) { r.calls.Add(1); w.WriteHeader(http.StatusCreated) }
	shared := func(*http.Request) string { return "refund" }
	tx := r.mount(idempotency.Route{Scope: shared, Print: idempotency.PrintBody}, ok)
	lease := r.mount(idempotency.Route{Scope: shared, Print: idempotency.PrintBody, Mode: idempotency.LeaseMode}, ok)
	r.wantReplay(r.post(tx, "a"), r.post(lease, "a"))
	r.wantReplay(r.post(lease, "b"), r.post(tx, "b"))
	r.wantCalls(2, 0)

	g := newGate(ok)
	slowTx := r.mount(idempotency.Route{Scope: shared, Print: idempotency.PrintBody}, g.serve)
	answer := r.inside(g, slowTx, sending{key: "c"})
	r.want(r.post(lease, "c"), 409, "")
	r.want(answer(), 201, "")
	g = newGate(ok)
	slowLease := r.mount(idempotency.Route{Scope: shared, Print: idempotency.PrintBody, Mode: idempotency.LeaseMode}, g.serve)
	answer = r.inside(g, slowLease, sending{key: "d"})
	r.want(r.post(tx, "d"), 409, "")
	r.want(answer(), 201, "")

	// A claim that ran out is taken over in a transaction.
	r.exec("UPDATE postroom.idempotency SET state = 'pending', owner = gen_random_uuid(), lease_until = now() - interval '1 s' WHERE key = 'd'")
	r.want(r.send(tx, sending{key: "d", body: "2"}), 422, "")
	r.want(r.post(tx, "d"), 201, "")
	if got := one[string](r, "SELECT state || ' ' || attempts FROM postroom.idempotency WHERE key = 'd'"); got != "complete 2" {
		r.Errorf("row is %s", got)
	}
}

// A request of lease mode without its optional key runs as usual.
func TestLeaseWithoutKey(t *testing.T) {
	t.Parallel()
	j := &threeSteps{rig: newRig(t)}
	path := j.mount(leased, j.serve)
	j.want(j.send(path, sending{method: "PUT"}), 201, "")
	j.want(j.send(path, sending{method: "PUT"}), 201, "")
	j.wantCalls(2, 2)
	if len(j.keys) != 2 || j.keys[0] == j.keys[1] {
		j.Errorf("keys were %v", j.keys)
	}
}

func TestOutsideOfLeaseMode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, call := range map[string]func(ctx context.Context){
		"Phase": func(ctx context.Context) {
			_, _ = idempotency.Phase(ctx, "a", func(context.Context, pgx.Tx) (int, error) { return 0, nil })
		},
		"Call": func(ctx context.Context) {
			_, _ = idempotency.Call(ctx, "a", func(context.Context, string) (int, error) { return 0, nil })
		},
		"KeepRef": func(ctx context.Context) { idempotency.KeepRef(ctx, "a") },
	} {
		func() {
			defer func() {
				if v, _ := recover().(string); !strings.Contains(v, name) {
					r.Errorf("%s did not panic, or with %q", name, v)
				}
			}()
			call(t.Context())
		}()
	}
	path := r.mount(leased, func(_ http.ResponseWriter, req *http.Request) {
		defer func() {
			if recover() == nil {
				r.Error("Tx in lease mode did not panic")
			}
		}()
		idempotency.Tx(req.Context())
	})
	r.post(path, "k")
}

// A fingerprint of another kind is made again for the comparison.
func TestUpgradeOfTheFingerprint(t *testing.T) { // 2.3
	t.Parallel()
	r := newRig(t)
	shared := func(*http.Request) string { return "refund" }
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		r.exec("TRUNCATE postroom.idempotency")
		r.reset()
		h := func(w http.ResponseWriter, _ *http.Request) { r.calls.Add(1); w.WriteHeader(http.StatusCreated) }
		r.mux.Handle("/old", r.guard.Handler(idempotency.Route{Scope: shared, Mode: mode, Print: idempotency.PrintBody}, http.HandlerFunc(h)))
		r.mux.Handle("/new", r.guard.Handler(idempotency.Route{Scope: shared, Mode: mode, PrintHeaders: []string{"Api-Version"}}, http.HandlerFunc(h)))
		r.mux.Handle("/raw", r.guard.Handler(idempotency.Route{Scope: shared, Mode: mode, Print: idempotency.PrintRaw}, http.HandlerFunc(h)))
		first := r.post("/old", "k")
		r.wantReplay(first, r.post("/new", "k"))
		r.wantReplay(first, r.send("/raw", sending{key: "k", body: ` {"amount":1e3}`}))
		r.want(r.send("/new", sending{key: "k", body: "2"}), 422, "")
		// If the kind of a fingerprint is unknown, the requests cannot be compared, and nothing
		// runs.
		r.exec(`UPDATE postroom.idempotency SET fingerprint = set_byte(fingerprint, 0, 30)`)
		r.want(r.post("/new", "k"), 503, "idempotency_outcome_unknown")
		if n := r.calls.Load(); n != 1 {
			r.Errorf("%d calls", n)
		}
	}
}
