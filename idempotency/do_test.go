package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
)

type payout struct {
	ID     int64
	Amount int64
}

// A newer program has another type for a result. It gets an error, and not a result without values.
func TestDoWithAResultOfAnotherShape(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type receipt struct{ Number int }
	op := idempotency.Operation{Scope: "payout", Principal: "ann", Key: "k"}
	if _, _, err := idempotency.Do(t.Context(), r.guard, op, func(context.Context, pgx.Tx) (payout, error) { return payout{ID: 7}, nil }); err != nil {
		t.Fatal(err)
	}
	got, outcome, err := idempotency.Do(t.Context(), r.guard, op, func(context.Context, pgx.Tx) (receipt, error) {
		t.Error("it ran again")
		return receipt{}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "it has none of the fields") || outcome != idempotency.Replayed {
		t.Errorf("Do = %+v, %s, %v", got, outcome, err)
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pay := func(ctx context.Context, tx pgx.Tx) (p payout, err error) {
		r.calls.Add(1)
		p.Amount = 9007199254740993
		return p, tx.QueryRow(ctx, "INSERT INTO ledger DEFAULT VALUES RETURNING id").Scan(&p.ID)
	}
	op := idempotency.Operation{Scope: "payout", Principal: "ann", Key: "k", Input: map[string]int{"amount": 1000}}
	first, outcome, err := idempotency.Do(t.Context(), r.guard, op, pay)
	if err != nil || outcome != idempotency.Fresh {
		t.Fatalf("Do = %v, %s, %v", first, outcome, err)
	}
	second, outcome, err := idempotency.Do(t.Context(), r.guard, op, pay)
	if err != nil || outcome != idempotency.Replayed || second != first {
		t.Errorf("again = %v, %s, %v, want %v", second, outcome, err, first)
	}
	op.Input = map[string]int{"amount": 1001}
	if _, _, err := idempotency.Do(t.Context(), r.guard, op, pay); !errors.Is(err, idempotency.ErrMismatch) {
		t.Errorf("with another input: %v", err)
	}
	r.wantCalls(1, 1)

	op.Key = "fails"
	broken := errors.New("broken")
	fail := func(ctx context.Context, tx pgx.Tx) (payout, error) {
		_, _ = pay(ctx, tx)
		return payout{}, broken
	}
	if _, _, err := idempotency.Do(t.Context(), r.guard, op, fail); err != broken { //nolint:errorlint // it is returned as it is
		t.Errorf("a failure: %v", err)
	}
	r.wantCalls(2, 1)
	if _, outcome, err := idempotency.Do(t.Context(), r.guard, op, pay); err != nil || outcome != idempotency.Fresh {
		t.Errorf("after a failure: %s, %v", outcome, err)
	}
	for _, bad := range []idempotency.Operation{{}, {Scope: "a"}, {Scope: "a\x00", Key: "k"}, {Scope: "a", Key: "k", TTL: -1}, {Scope: "a", Key: "k", Input: func() {}}} {
		if _, _, err := idempotency.Do(t.Context(), r.guard, bad, pay); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	op.Key = "cancelled"
	_, _, err = idempotency.Do(ctx, r.guard, op, func(ctx context.Context, tx pgx.Tx) (payout, error) {
		p, err := pay(ctx, tx)
		cancel()
		return p, err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	r.wantCalls(4, 2)
}

// A repeated result contains nothing of a run that was rolled back.
func TestRepeatedResultHasNothingOfARunThatWasRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type note struct {
		ID   int    `json:"id"`
		Text string `json:"text,omitempty"`
	}
	do := func(key string, fn func() note) (note, idempotency.Outcome) {
		got, outcome, err := idempotency.Do(t.Context(), r.guard, idempotency.Operation{Scope: "note", Key: key}, func(context.Context, pgx.Tx) (note, error) { return fn(), nil })
		if err != nil {
			t.Fatal(err)
		}
		return got, outcome
	}
	do("a", func() note { return note{ID: 1} })
	got, outcome := do("b", func() note {
		r.exec(`INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, status, body, expires_at)
			SELECT scope, principal, 'b', fingerprint, state, status, body, expires_at FROM postroom.idempotency`)
		return note{ID: 2, Text: "rolled back"}
	})
	if outcome != idempotency.Replayed || got != (note{ID: 1}) {
		t.Errorf("Do = %+v, %s", got, outcome)
	}
}

// fn's error is returned unchanged, even if the context ends meanwhile.
func TestDoThatIsCanceled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	failure := errors.New("out of money")
	_, _, err := idempotency.Do(ctx, r.guard, idempotency.Operation{Scope: "s", Key: "k"}, func(context.Context, pgx.Tx) (int, error) {
		cancel()
		return 0, failure
	})
	if !errors.Is(err, failure) || errors.Is(err, context.Canceled) {
		t.Errorf("Do = %v", err)
	}
}

func TestDoTwins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, wait := range []time.Duration{0, patience} {
		op := idempotency.Operation{Scope: "twins", Key: wait.String(), Wait: wait}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, _, err := idempotency.Do(t.Context(), r.guard, op, func(ctx context.Context, tx pgx.Tx) (int, error) {
					r.calls.Add(1)
					_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
					return 1, err
				})
				if err != nil && (wait > 0 || !errors.Is(err, idempotency.ErrInProgress)) {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	r.wantCalls(2, 2)
}

func TestDoLease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	op := idempotency.Operation{Scope: "vendor", Key: "k"}
	var keys []string
	run := func(breaks bool) (string, idempotency.Outcome, error) {
		return idempotency.DoLease(t.Context(), r.guard, op, func(ctx context.Context) (string, error) {
			id, err := idempotency.Call(ctx, "pay", func(_ context.Context, key string) (string, error) {
				keys = append(keys, key)
				return "p1", nil
			})
			if breaks {
				return "", errors.New("broken")
			}
			return id, err
		})
	}
	if _, _, err := run(true); err == nil {
		t.Error("no error")
	}
	for _, want := range []idempotency.Outcome{idempotency.Fresh, idempotency.Replayed} {
		if got, outcome, err := run(false); got != "p1" || outcome != want || err != nil {
			t.Errorf("DoLease = %q, %s, %v, want %s", got, outcome, err, want)
		}
	}
	if len(keys) != 1 {
		t.Errorf("the vendor was called with %v", keys)
	}
}

// If a run has succeeded, another attempt at the same run does nothing. The next run works again.
func TestJob(t *testing.T) { // E63
	t.Parallel()
	r := newRig(t)
	due := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	run := func(at time.Time) idempotency.Outcome {
		outcome, err := idempotency.Job(t.Context(), r.guard, "interest", at, func(ctx context.Context, tx pgx.Tx) error {
			r.calls.Add(1)
			_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return outcome
	}
	if run(due) != idempotency.Fresh || run(due.In(time.FixedZone("", -7200))) != idempotency.Replayed || run(due.Add(time.Second)) != idempotency.Fresh {
		t.Error("runs are mixed up")
	}
	r.wantCalls(2, 2)
	rec, err := r.guard.Get(t.Context(), idempotency.Key{Scope: "job interest", Principal: "(none)", Value: "interest@2026-11-20T15:00:00Z"})
	if err != nil || rec.ExpiresAt.Sub(rec.CompletedAt).Round(time.Minute) != idempotency.TTLJobs {
		t.Errorf("Get = %+v, %v", rec, err)
	}
}

// A scheduler that calls over HTTP names the run in its own header.
func TestRunIDOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{Headers: []string{"Idempotency-Key", "X-Run-Id"}, TTL: idempotency.TTLJobs}, r.refund)
	again := sending{header: map[string]string{"X-Run-Id": "interest@2026-11-20T15:00:00Z"}}
	r.wantReplay(r.send(path, again), r.send(path, again))
	r.want(r.post(path, ""), 400, "missing_idempotency_key")
	r.wantCalls(1, 1)
}

// A call without HTTP has no Render, so its result is kept in spite of KeepRef.
func TestDoKeepsItsResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	op := idempotency.Operation{Scope: "s", Key: "k"}
	for _, want := range []idempotency.Outcome{idempotency.Fresh, idempotency.Replayed} {
		got, outcome, err := idempotency.Do(t.Context(), r.guard, op, func(ctx context.Context, _ pgx.Tx) (int, error) {
			idempotency.KeepRef(ctx, "refund 7")
			return 7, nil
		})
		if got != 7 || outcome != want || err != nil {
			t.Errorf("Do = %d, %s, %v, want 7, %s", got, outcome, err, want)
		}
	}
}
