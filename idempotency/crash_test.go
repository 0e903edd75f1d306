package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// A process dies, or stalls, between the begin and the record of a call. The next attempt, in
// another process, knows that the call was begun. If the first process wakes up, its result is
// not recorded.
func TestNextAttemptKnowsOfACallThatDied(t *testing.T) { // E5, E6
	t.Parallel()
	for name, tt := range map[string]struct {
		options func(b *bank) []postroom.CallOption
		status  int
		calls   int
		body    string
	}{
		"window open": {func(*bank) []postroom.CallOption {
			return []postroom.CallOption{postroom.VendorWindow(time.Hour)}
		}, 201, 2, "ch_"},
		"no keys":   {func(*bank) []postroom.CallOption { return []postroom.CallOption{postroom.VendorWindow(0)} }, 502, 1, "it is not known"},
		"found":     {func(b *bank) []postroom.CallOption { return []postroom.CallOption{b.lookupReturns(true, nil)} }, 201, 1, "found_"},
		"not found": {func(b *bank) []postroom.CallOption { return []postroom.CallOption{b.lookupReturns(false, nil)} }, 201, 2, "ch_"},
	} {
		b := newBank(t)
		var late error
		g := newGate(nil)
		serve := func(w http.ResponseWriter, req *http.Request) {
			first := b.calls.Add(1) == 1
			id, err := idempotency.Call(req.Context(), "charge", func(ctx context.Context, key string) (string, error) {
				id, err := b.charge(ctx, key)
				if first {
					g.entered <- struct{}{}
					<-g.open
				}
				return id, err
			}, tt.options(b)...)
			if first {
				late = err
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(id))
		}
		path := b.mount(leased, serve)
		answer := b.inside(g, path, sending{key: "k"})
		b.exec("UPDATE postroom.idempotency SET lease_until = now() - interval '1 s'")
		other := newRigOnTables(b.rig)
		other.mux.Handle(path, other.guard.Handler(leased, http.HandlerFunc(serve)))
		w := other.post(path, "k")
		b.want(w, tt.status, "")
		if !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s: answered %s", name, w.Body)
		}
		answer()
		if !errors.Is(late, idempotency.ErrLeaseLost) {
			t.Errorf("%s: the late holder got %v", name, late)
		}
		if got := b.begun(); (got == 1) != (tt.status == 502) {
			t.Errorf("%s: %d are noted at the end", name, got)
		}
		if tt.status == 201 {
			b.wantReplay(w, b.post(path, "k"))
		} else {
			b.want(b.post(path, "k"), tt.status, "") // without a call
		}
		if len(b.keys) != tt.calls {
			t.Errorf("%s: %d calls, want %d", name, len(b.keys), tt.calls)
		}
	}
}

// A holder that lost its claim records no beginning of a call, so it makes no call.
func TestHolderWithoutAClaimDoesNotCall(t *testing.T) { // E5
	t.Parallel()
	b := newBank(t)
	for name, take := range map[string]string{
		"by its fence": "fence = fence + 1", "by its owner": "owner = gen_random_uuid()", "by an answer": "state = 'complete'",
	} {
		b.exec("TRUNCATE postroom.idempotency")
		var cause error
		_, _, err := idempotency.DoLease(t.Context(), b.guard, idempotency.Operation{Scope: "pay", Key: "k"}, func(ctx context.Context) (string, error) {
			b.exec("UPDATE postroom.idempotency SET " + take)
			id, err := idempotency.Call(ctx, "charge", b.charge, postroom.VendorWindow(0))
			cause = context.Cause(ctx)
			return id, err
		})
		if !errors.Is(err, idempotency.ErrLeaseLost) || !errors.Is(cause, idempotency.ErrLeaseLost) || len(b.keys) != 0 || b.begun() != 0 {
			t.Errorf("%s: %v, and the context ended with %v; %d calls, %d noted", name, err, cause, len(b.keys), b.begun())
		}
	}
}

// A holder that lost its claim does not take back the record that a call began.
func TestHolderWithoutAClaimTakesNoBeginBack(t *testing.T) { // E5
	t.Parallel()
	refused := errors.New("refused")
	b := newBank(t, postroom.NotApplied(refused))
	b.meant = func() { b.exec("UPDATE postroom.idempotency SET fence = fence + 1") }
	if _, err := b.pay(postroom.VendorWindow(0)); !errors.Is(err, idempotency.ErrLeaseLost) || !errors.Is(err, refused) || b.begun() != 1 {
		t.Errorf("%v; %d are noted", err, b.begun())
	}
}

// If an attempt ends while the beginning of a call is recorded, it makes no call.
func TestAnEndedAttemptDoesNotCall(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	cause := errors.New("went home")
	_, _, err := idempotency.DoLease(t.Context(), b.guard, idempotency.Operation{Scope: "pay", Key: "k"}, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(cause)
		return idempotency.Call(ctx, "charge", b.charge, postroom.VendorWindow(0))
	})
	if !errors.Is(err, cause) || len(b.keys) != 0 || b.begun() != 0 {
		t.Errorf("%v; %d calls, %d noted", err, len(b.keys), b.begun())
	}
}

// If a lease has run out, its holder may still record a step until another attempt takes the
// claim. The other attempt knows of that step.
func TestNextHolderKnowsTheLastStep(t *testing.T) { // E5
	t.Parallel()
	r := newRig(t)
	broken := errors.New("broken")
	ran := 0
	attempt := func(end error) error {
		op := idempotency.Operation{Scope: "pay", Key: "k"}
		_, _, err := idempotency.DoLease(t.Context(), r.guard, op, func(ctx context.Context) (int, error) {
			if end != nil {
				return 0, end
			}
			if info, _ := idempotency.FromContext(ctx); info.Point != "reserve" {
				t.Errorf("the attempt began at %q", info.Point)
			}
			return idempotency.Phase(ctx, "reserve", func(context.Context, pgx.Tx) (int, error) {
				ran++
				return 8, nil
			})
		})
		return err
	}
	if err := attempt(broken); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	r.exec("UPDATE postroom.idempotency SET state = 'pending', owner = gen_random_uuid(), lease_until = now() - interval '1 s'")

	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var pid int
	if err := tx.QueryRow(t.Context(), `UPDATE postroom.idempotency SET point = 'reserve', checkpoints = '{"reserve": 7}' RETURNING pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- attempt(nil) }()
	devtest.Eventually(t, patience, "the other one waits to take over", func() bool {
		return r.waitsFor(pid)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil || ran != 0 {
		t.Errorf("%v; the step ran %d times more", err, ran)
	}
}

// waitsFor reports whether a session waits for a lock of the given session.
func (r *rig) waitsFor(pid int) bool {
	return one[bool](r, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid)))", pid)
}

// If the function of a call panics, the outcome of the call is unknown.
func TestPanicInACallLeavesItsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.meant = func() { b.meant = nil; panic("oh") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = b.pay(postroom.VendorWindow(0))
	}()
	if _, err := b.pay(postroom.VendorWindow(0)); !errors.Is(err, idempotency.ErrOutcomeUnknown) {
		t.Errorf("after it: %v", err)
	}
	b.wantCharged(1, 0)
}
