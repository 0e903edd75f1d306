package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// withPool gives the rig's guard its own pool.
func (r *rig) withPool(most int32, mode pgx.QueryExecMode) {
	r.Helper()
	cfg := r.pool.Config()
	cfg.MaxConns, cfg.ConnConfig.DefaultQueryExecMode = most, mode
	pool, err := pgxpoolWith(r.T, cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.pool = pool
	r.reset()
}

// serialize makes a transaction fail as if it conflicted with another one.
const serialize = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$"

// If a goroutine of a handler keeps a nested transaction, it cannot reach the next transaction
// of the connection.
func TestNestedTransactionDoesNotReachTheNextOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.withPool(1, pgx.QueryExecModeCacheStatement)
	var left []pgx.Tx
	path := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
		tx := idempotency.Tx(req.Context())
		for range 2 { // the second is nested in the first
			nested, err := tx.Begin(req.Context())
			if err != nil {
				t.Error(err)
				return
			}
			left, tx = append(left, nested), nested
		}
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(path, "k"), 201, "")
	other := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
		for _, tx := range left {
			if _, err := tx.Exec(req.Context(), "INSERT INTO ledger DEFAULT VALUES"); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("Exec after the end = %v", err)
			}
			if err := tx.Commit(req.Context()); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("Commit after the end = %v", err)
			}
		}
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(other, "k"), 201, "")
	if n := r.effects(); n != 0 {
		t.Errorf("%d effects in another's transaction", n)
	}
}

// If a nested transaction conflicts with another one, that is contention as well.
func TestContentionOfANestedTransaction(t *testing.T) { // E8
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{TxRetries: 1}, func(w http.ResponseWriter, req *http.Request) {
		ctx, first := req.Context(), r.calls.Add(1) == 1
		err := pgx.BeginFunc(ctx, idempotency.Tx(ctx), func(tx pgx.Tx) error {
			if !first {
				return nil
			}
			_, err := tx.Exec(ctx, serialize)
			return err
		})
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(path, "k"), 201, "")
	r.wantCalls(2, 0)
}

// A statement fails, and the handler's answer is kept without its effects. The server would refuse
// a statement that pgx prepares first in a failed transaction.
func TestAnswerAfterAFailedStatementIsKept(t *testing.T) { // E31
	t.Parallel()
	r := newRig(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		r.withPool(1, mode)
		path := r.mount(idempotency.Route{Store: idempotency.StoreFinal}, func(w http.ResponseWriter, req *http.Request) {
			r.calls.Add(1)
			r.insert(req.Context())
			if _, err := idempotency.Tx(req.Context()).Exec(req.Context(), "SELECT 1/0"); err != nil {
				http.Error(w, "no", http.StatusUnprocessableEntity)
			}
		})
		first := r.post(path, "k")
		r.want(first, 422, "")
		r.wantReplay(first, r.post(path, "k"))
		r.wantCalls(1, 0)
		r.exec("TRUNCATE postroom.idempotency")
	}
}

// If a transaction cannot be committed, the answer says that nothing was done.
func TestFailedCommitIsReportedAsNotCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
		rows, err := idempotency.Tx(req.Context()).Query(req.Context(), "SELECT generate_series(1, 100000)")
		if err != nil || !rows.Next() {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated) // with the rows left open
	})
	r.want(r.post(path, "k"), 500, "transaction_failed")
	path = r.mount(idempotency.Route{Timeout: 10 * time.Millisecond, Store: idempotency.StoreAll}, func(w http.ResponseWriter, req *http.Request) {
		if _, err := idempotency.Tx(req.Context()).Exec(req.Context(), "SELECT pg_sleep(60)"); err != nil {
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	})
	r.want(r.post(path, "k"), 503, "request_interrupted")
	devtest.Eventually(t, patience, "the connections are given back", func() bool { return r.pool.Stat().AcquiredConns() == 0 })
}

// Steps that lease mode has recorded are not done again by a transaction.
func TestChangeOfModeAfterAStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rt := idempotency.Route{Scope: func(*http.Request) string { return "refund" }, Print: idempotency.PrintBody}
	inTx := r.mount(rt, r.refund)
	fails := true
	rt.Mode = idempotency.LeaseMode
	inSteps := r.mount(rt, func(w http.ResponseWriter, req *http.Request) {
		_, err := idempotency.Phase(req.Context(), "charge", func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
			return struct{}{}, err
		})
		if fails || err != nil {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	r.want(r.post(inSteps, "k"), 502, "")
	r.want(r.post(inTx, "k"), 503, "idempotency_outcome_unknown")
	fails = false
	r.want(r.post(inSteps, "k"), 200, "")
	r.want(r.post(inTx, "k"), 200, "")
	r.wantCalls(0, 1)

	// A call that began and whose outcome is unknown is not repeated either. A call that did not
	// begin is not a step.
	var failure error
	calls := r.mount(rt, func(w http.ResponseWriter, req *http.Request) {
		_, _ = idempotency.Call(req.Context(), "charge", func(context.Context, string) (int, error) { return 0, failure }, postroom.VendorWindow(0))
		w.WriteHeader(http.StatusBadGateway)
	})
	failure = errors.New("no answer")
	r.want(r.post(calls, "begun"), 502, "")
	r.want(r.post(inTx, "begun"), 503, "idempotency_outcome_unknown")
	failure = postroom.NotApplied(failure)
	r.want(r.post(calls, "not-begun"), 502, "")
	r.want(r.post(inTx, "not-begun"), 201, "")
	r.wantCalls(1, 2)
}

// queries records the statements that are sent outside of batches.
type queries struct{ sent []string }

func (q *queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	q.sent = append(q.sent, data.SQL)
	return ctx
}

func (*queries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// If a request has no key, the guard looks up nothing.
func TestNoKeyIsNotLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sent, cfg := new(queries), r.pool.Config()
	cfg.ConnConfig.Tracer = sent
	pool, err := pgxpoolWith(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.pool = pool
	r.reset()
	path := r.mount(idempotency.Route{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	r.want(r.send(path, sending{method: "PUT"}), 204, "")
	if len(sent.sent) != 0 {
		t.Errorf("statements outside the batches that begin and end: %q", sent.sent)
	}
}
