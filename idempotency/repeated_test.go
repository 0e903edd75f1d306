package idempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// The answer to the end of an attempt, or to a renewal of its claim, is lost. The guard does not
// repeat what ends an attempt, but says that the outcome is unknown. The caller repeats the call,
// and gets the stored answer; the work is done once.
func TestEndsWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	fails := errors.New("no")
	for name, tt := range map[string]struct {
		statement string
		lease     bool
		first     error // of the first call
		then      idempotency.Outcome
		runs      int
	}{
		"a transaction commits": {"COMMIT", false, idempotency.ErrOutcomeUnknown, idempotency.Replayed, 1},
		"an answer is kept":     {"complete", true, idempotency.ErrOutcomeUnknown, idempotency.Replayed, 1},
		"a claim is given back": {"fail", true, fails, idempotency.Fresh, 2},
		"a claim is renewed":    {"renew", true, nil, idempotency.Replayed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			losing := &devtest.Losing{Mark: tt.statement}
			if tt.statement != "COMMIT" {
				losing.Mark = firstLine(t, tt.statement)
			}
			losing.Lost.Store(!tt.lease) // of a transaction, only the commit after the work counts
			g := idempotency.New(losing.Pool(t, r.pool), idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
			op := idempotency.Operation{Scope: "s", Key: "k", Lease: time.Second}
			runs := 0
			work := func(ctx context.Context) (int, error) {
				runs++
				if !tt.lease {
					r.insert(ctx)
					losing.Lost.Store(false)
				}
				if tt.statement == "renew" {
					devtest.Eventually(t, patience, "a renewal", losing.Lost.Load)
				}
				if runs == 1 && errors.Is(tt.first, fails) {
					return 0, fails
				}
				return runs, context.Cause(ctx)
			}
			call := func() (n int, o idempotency.Outcome, err error) {
				if tt.lease {
					return idempotency.DoLease(t.Context(), g, op, work)
				}
				return idempotency.Do(t.Context(), g, op, func(ctx context.Context, _ pgx.Tx) (int, error) { return work(ctx) })
			}
			_, _, err := call()
			if !errors.Is(err, tt.first) || !losing.Lost.Load() {
				t.Fatalf("the first call: %v, want %v; an answer was lost: %t", err, tt.first, losing.Lost.Load())
			}
			n, outcome, err := call()
			if err != nil || n != tt.runs || outcome != tt.then || runs != tt.runs {
				t.Errorf("the second call = %d, %s, %v after %d runs; want %d, %s", n, outcome, err, runs, tt.runs, tt.then)
			}
			if n := r.effects(); !tt.lease && n != 1 {
				t.Errorf("%d effects, want one", n)
			}
		})
	}
}
