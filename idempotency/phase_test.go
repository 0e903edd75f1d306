package idempotency_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// told is a result that calls a function when it is encoded, just before the record of the phase
// and its commit.
type told struct{ then func() }

func (r told) MarshalJSON() ([]byte, error) {
	if r.then != nil {
		r.then()
	}
	return []byte("1"), nil
}

func (*told) UnmarshalJSON([]byte) error { return nil }

// If the answer to a phase's commit is lost, the handler runs the phase again. The phase has no
// second effect, and the next attempt gets the first result.
func TestPhaseRunsOnceIfItsCommitIsNotAnswered(t *testing.T) { // E7
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, net.JoinHostPort(cfg.ConnConfig.Host, strconv.Itoa(int(cfg.ConnConfig.Port))))
	cfg.ConnConfig.Host, cfg.ConnConfig.Port = "127.0.0.1", uint16(p.listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
	cfg.ConnConfig.Fallbacks, cfg.MaxConns = nil, 1
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	r := newRigOn(t, pool)
	lose := false
	var found []error
	book := func(ctx context.Context) error {
		_, err := idempotency.Phase(ctx, "book", func(ctx context.Context, tx pgx.Tx) (told, error) {
			_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
			return told{func() {
				if lose {
					lose = false
					p.skip.Store(2) // the answers to still.sql and to the record
					p.lose.Store(loseAnswer)
				}
			}}, err
		})
		found = append(found, err)
		return err
	}
	path := r.mount(leased, func(w http.ResponseWriter, req *http.Request) {
		if err := book(req.Context()); err != nil {
			err = book(req.Context())
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
		}
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(path, "first"), 201, "") // the statements are known to the connection
	found, lose = nil, true
	r.want(r.post(path, "k"), 502, "")
	if lose || len(found) != 2 || !errors.Is(found[0], idempotency.ErrOutcomeUnknown) || !errors.Is(found[1], idempotency.ErrOutcomeUnknown) {
		t.Errorf("the handler found %v", found)
	}
	r.want(r.post(path, "k"), 201, "")
	if n := r.effects(); n != 2 {
		t.Errorf("%d effects of two phases", n)
	}
}

// The guard ends a phase's transaction together with its record. The handler cannot end it.
func TestPhaseOwnsItsTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var kept pgx.Tx
	path := r.mount(leased, func(w http.ResponseWriter, req *http.Request) {
		_, err := idempotency.Phase(req.Context(), "book", func(ctx context.Context, tx pgx.Tx) (int, error) {
			kept = tx
			if _, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES"); err != nil {
				return 0, err
			}
			for _, end := range []func(context.Context) error{tx.Commit, tx.Rollback} {
				if err := end(ctx); !errors.Is(err, idempotency.ErrTxOwned) {
					t.Errorf("the handler ended it: %v", err)
				}
			}
			return 1, nil
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := kept.Exec(req.Context(), "INSERT INTO ledger DEFAULT VALUES"); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("used after its phase: %v", err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(path, "k"), 201, "")
	if n := r.effects(); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// If a phase ended its transaction and went on in another, it is not done.
func TestPhaseThatEndsItsTransactionIsNotDone(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"ROLLBACK AND CHAIN", "ROLLBACK; BEGIN", "COMMIT AND CHAIN"} {
		r := newRig(t)
		path := r.mount(leased, func(w http.ResponseWriter, req *http.Request) {
			_, err := idempotency.Phase(req.Context(), "book", func(ctx context.Context, tx pgx.Tx) (int, error) {
				if _, err := tx.Exec(ctx, end); err != nil {
					t.Error(err)
				}
				_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
				return 1, err
			})
			if !errors.Is(err, idempotency.ErrNotCommitted) {
				t.Errorf("%s: Phase = %v, want ErrNotCommitted", end, err)
			}
			w.WriteHeader(http.StatusInternalServerError)
		})
		r.post(path, "k")
		if n := r.effects(); n != 0 {
			t.Errorf("%s: %d effects, want none", end, n)
		}
	}
}

// Between look.sql and take.sql a key is deleted, and claimed for another request. The steps of
// that request do not count for the first request.
func TestTakeSeesTheRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, fence, checkpoints, point, expires_at)
		VALUES ('s', 'p', 'k', '\x02', 'failed', 1, '{"charge": 1}', 'charge', now() + interval '1 h')`)
	take := func(seen byte) bool {
		rows, err := r.pool.Query(t.Context(), idempotency.Statements()["take"], "s", "p", "k", []byte{1}, "00000000-0000-0000-0000-000000000001",
			time.Minute, int64(5), time.Hour, int64(1), []byte{seen}, time.Now(), "p2")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		return rows.Next()
	}
	if take(1) {
		t.Error("a claim read with another request took over the row, with its steps")
	}
	if !take(2) {
		t.Error("one that was seen with this request did not")
	}
}

// If the claim is lost during a step, the step's error says so, and not only that its context
// ended.
func TestStepReportsThatItsClaimIsLost(t *testing.T) { // E5
	t.Parallel()
	r := newRig(t)
	steps := map[string]func(ctx context.Context) error{
		"phase": func(ctx context.Context) error {
			_, err := idempotency.Phase(ctx, "s", func(ctx context.Context, tx pgx.Tx) (int, error) {
				_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
				return 0, err
			})
			return err
		},
		"call": func(ctx context.Context) error {
			_, err := idempotency.Call(ctx, "s", func(ctx context.Context, _ string) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
			return err
		},
		"noted call": func(ctx context.Context) error {
			_, err := idempotency.Call(ctx, "s", func(ctx context.Context, _ string) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
				postroom.VendorWindow(time.Hour))
			return err
		},
	}
	for what, step := range steps {
		var found error
		op := idempotency.Operation{Scope: what, Key: "k", Lease: 300 * time.Millisecond, Timeout: patience}
		_, _, err := idempotency.DoLease(t.Context(), r.guard, op, func(ctx context.Context) (int, error) {
			r.exec("UPDATE postroom.idempotency SET fence = fence + 1 WHERE scope = $1", what)
			found = step(ctx)
			return 0, found
		})
		if !errors.Is(found, idempotency.ErrLeaseLost) || !errors.Is(err, idempotency.ErrLeaseLost) {
			t.Errorf("%s: the handler found %v, and its caller %v", what, found, err)
		}
	}
}

// A step does not begin again while it runs, beside itself or within itself, whether it is a
// phase or a call, with options or without.
func TestStepDoesNotBeginWithinItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	phase := func(ctx context.Context, within func(ctx context.Context)) error {
		_, err := idempotency.Phase(ctx, "book", func(ctx context.Context, tx pgx.Tx) (int, error) {
			within(ctx)
			_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
			return 1, err
		})
		return err
	}
	call := func(options ...postroom.CallOption) func(ctx context.Context, within func(ctx context.Context)) error {
		return func(ctx context.Context, within func(ctx context.Context)) error {
			_, err := idempotency.Call(ctx, "book", func(ctx context.Context, _ string) (int, error) {
				within(ctx)
				r.exec("INSERT INTO ledger DEFAULT VALUES")
				return 1, nil
			}, options...)
			return err
		}
	}
	steps := map[string]func(ctx context.Context, within func(ctx context.Context)) error{
		"a phase": phase, "a call": call(), "a noted call": call(postroom.VendorWindow(time.Hour)),
	}
	for what, outer := range steps {
		for with, inner := range steps {
			r.exec("TRUNCATE ledger")
			_, _, err := idempotency.DoLease(t.Context(), r.guard, idempotency.Operation{Scope: what, Key: with}, func(ctx context.Context) (int, error) {
				err := outer(ctx, func(ctx context.Context) {
					if err := inner(ctx, func(context.Context) {}); err == nil || !strings.Contains(err.Error(), "is running") {
						t.Errorf("%s while %s is under way: %v", with, what, err)
					}
				})
				return 0, errors.Join(err, inner(ctx, func(context.Context) {})) // the step is done, and is not repeated
			})
			if n := r.effects(); err != nil || n != 1 {
				t.Errorf("%s with %s: %d effects, %v", what, with, n, err)
			}
		}
	}
}

// A phase that is recorded meanwhile does not commit a second time.
func TestARecordedPhaseIsNotCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	op := idempotency.Operation{Scope: "book", Key: "k", Lease: patience}
	_, _, err := idempotency.DoLease(t.Context(), r.guard, op, func(ctx context.Context) (int, error) {
		return idempotency.Phase(ctx, "book", func(ctx context.Context, tx pgx.Tx) (int, error) {
			r.exec(`UPDATE postroom.idempotency SET checkpoints = '{"book": 7}', point = 'book'`)
			_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
			return 1, err
		})
	})
	if n := r.effects(); n != 0 || !errors.Is(err, idempotency.ErrLeaseLost) {
		t.Errorf("%d effects, %v", n, err)
	}
}
