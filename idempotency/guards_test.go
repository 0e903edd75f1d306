package idempotency_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
)

// These tests show what the conditions in the statements are for.

// between does something once, before a statement is sent.
type between struct {
	sql string
	do  func()
}

func (b *between) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if do := b.do; do != nil && data.SQL == b.sql {
		b.do = nil
		do()
	}
	return ctx
}

func (*between) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart does the same before a batch with the statement.
func (b *between) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		ctx = b.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: query.SQL})
	}
	return ctx
}

func (*between) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*between) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// rightBefore runs change once, just before the guard sends the statement.
func (r *rig) rightBefore(statement, change string) {
	r.Helper()
	others, cfg := r.pool, r.pool.Config()
	cfg.ConnConfig.Tracer = &between{idempotency.Statements()[statement], func() {
		if _, err := others.Exec(r.Context(), "UPDATE postroom.idempotency SET "+change); err != nil {
			r.Error(err)
		}
	}}
	pool, err := pgxpoolWith(r.T, cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.pool = pool
	r.reset()
}

const expiredClaim = "state = 'pending', owner = gen_random_uuid(), lease_until = now() - interval '1 s'"

// A claim takes over a row that was read before. If the row changed since then, the claim heeds the
// change.
func TestTakeSeesChangesOfTheRow(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tt := range []struct {
		name, was, becomes string
		input              int // the first was 1
		want               error
		outcome            idempotency.Outcome
	}{
		{"its holder has answered", expiredClaim, "state = 'complete', status = 200, body = '7', owner = NULL, lease_until = NULL", 1, nil, idempotency.Replayed},
		{"its holder has renewed the claim", expiredClaim, "lease_until = now() + interval '1 h'", 1, idempotency.ErrInProgress, idempotency.Fresh},
		{
			"the first request has taken it, and recorded more", "expires_at = now() - interval '1 s'",
			"fence = fence + 1, expires_at = now() + interval '1 h'", 2, idempotency.ErrMismatch, idempotency.Fresh,
		},
	} {
		r := newRig(t)
		ran := 0
		attempt := func(input int, end error) (int, idempotency.Outcome, error) {
			op := idempotency.Operation{Scope: "pay", Key: "k", Input: input}
			return idempotency.DoLease(t.Context(), r.guard, op, func(context.Context) (int, error) { ran++; return 8, end })
		}
		if _, _, err := attempt(1, broken); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		r.exec("UPDATE postroom.idempotency SET " + tt.was)
		r.rightBefore("take", tt.becomes)
		result, outcome, err := attempt(tt.input, nil)
		if !errors.Is(err, tt.want) || outcome != tt.outcome || outcome == idempotency.Replayed && result != 7 {
			t.Errorf("%s: %d, %s, %v", tt.name, result, outcome, err)
		}
		if ran != 1 {
			t.Errorf("%s: it ran %d times", tt.name, ran)
		}
	}
}

// A request in lease mode does not claim a row while a transaction runs the operation, because the
// transaction would take the row over.
func TestTakeWaitsForATransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rt := idempotency.Route{Scope: func(*http.Request) string { return "refund" }, Print: idempotency.PrintBody}
	ok := func(w http.ResponseWriter, _ *http.Request) { r.calls.Add(1); w.WriteHeader(http.StatusCreated) }
	g := newGate(ok)
	inTx := r.mount(rt, g.serve)
	rt.Mode = idempotency.LeaseMode
	fails := r.mount(rt, func(w http.ResponseWriter, _ *http.Request) {
		r.calls.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	})
	inLease := r.mount(rt, ok)
	r.want(r.post(fails, "k"), 500, "")
	answer := r.inside(g, inTx, sending{key: "k"})
	r.want(r.post(inLease, "k"), 409, "idempotency_in_progress")
	r.want(answer(), 201, "")
	r.wantCalls(2, 0)
}

// An expired row begins anew in every respect when it is claimed. Another row continues.
func TestAClaimBeginsAnewOrGoesOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, expired := range map[string]bool{"expired": true, "failed": false} {
		r := newRig(t)
		var info idempotency.Info
		rounds := 0
		op := idempotency.Operation{Scope: "pay", Key: "k"}
		attempt := func() {
			_, _, err := idempotency.DoLease(t.Context(), r.guard, op, func(ctx context.Context) (int, error) {
				info, _ = idempotency.FromContext(ctx)
				_, err := idempotency.Phase(ctx, "reserve", func(context.Context, pgx.Tx) (int, error) { rounds++; return 1, nil })
				return 0, errors.Join(err, broken)
			})
			if !errors.Is(err, broken) {
				t.Fatal(err)
			}
		}
		attempt()
		// A claim begins without the parts of an old answer.
		r.exec("UPDATE postroom.idempotency SET created_at = now() - interval '1 d', status = 1, headers = '{}', body = '1', ref = 'r', dropped = true, completed_at = now()")
		if expired {
			r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 s'")
		}
		attempt()
		want := map[bool]string{true: "1 \"\" 2 1 true", false: "2 \"reserve\" 1 2 false"}[expired]
		got := fmt.Sprintf("%d %q %d %s", info.Attempt, info.Point, rounds,
			one[string](r, "SELECT attempts || ' ' || (created_at > now() - interval '1 h') FROM postroom.idempotency"))
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if one[int](r, "SELECT count(*) FROM postroom.idempotency WHERE num_nonnulls(status, headers, body, ref, completed_at) > 0 OR dropped") != 0 {
			t.Errorf("%s: a part of an answer is stored together with the claim", name)
		}
	}
}

// While an attempt of lease mode has the key, a transaction does not run beside it, even if the row
// expired meanwhile. Its request gets an answer that says so.
func TestTransactionDoesNotRunBesideALease(t *testing.T) {
	t.Parallel()
	for name, expires := range map[string]string{"live": "1 h", "expired": "-1 s"} {
		r := newRig(t)
		rt := idempotency.Route{Scope: func(*http.Request) string { return "refund" }, Print: idempotency.PrintBody}
		inTx := r.mount(rt, r.refund)
		rt.Mode = idempotency.LeaseMode
		g := newGate(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
		answer := r.inside(g, r.mount(rt, g.serve), sending{key: "k"})
		r.exec("UPDATE postroom.idempotency SET expires_at = now() + $1::text::interval", expires)
		r.want(r.post(inTx, "k"), 409, "idempotency_in_progress")
		r.want(r.send(inTx, sending{key: "k", body: "2"}), 422, "idempotency_key_payload_mismatch")
		k := idempotency.Key{Scope: "refund", Principal: "ann", Value: "k"}
		if rec, err := r.guard.Get(t.Context(), k); err != nil || rec.State != idempotency.StatePending {
			t.Errorf("%s: Get = %+v, %v", name, rec, err)
		}
		r.want(answer(), 201, "")
		r.wantCalls(0, 0)
	}
}

// A transaction takes over from a holder whose claim ran out. If that holder has recorded something
// meanwhile, the transaction commits nothing.
func TestTransactionYieldsToALateHolder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, does string
		status     int
		code       string
	}{
		{"answers", "state = 'complete', status = 202, owner = NULL, lease_until = NULL", 202, ""},
		{"renews its claim", "lease_until = now() + interval '1 h'", 409, "idempotency_in_progress"},
		{"records a step", `point = 'charge', checkpoints = '{"charge": 1}'`, 503, "idempotency_outcome_unknown"},
		{"begins a call", `checkpoints = '{"": {"charge": {"since": "2026-01-01", "key": "k", "calls": 1}}}'`, 503, "idempotency_outcome_unknown"},
		{"does nothing", "point = point", 201, ""},
		{"takes its call back", `checkpoints = '{"": {}}'`, 201, ""},
	} {
		r := newRig(t)
		rt := idempotency.Route{Scope: func(*http.Request) string { return "refund" }, Print: idempotency.PrintBody}
		g := newGate(r.refund)
		inTx := r.mount(rt, g.serve)
		rt.Mode = idempotency.LeaseMode
		r.want(r.post(r.mount(rt, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }), "k"), 500, "")
		r.exec("UPDATE postroom.idempotency SET " + expiredClaim)
		answer := r.inside(g, inTx, sending{key: "k"})
		r.exec("UPDATE postroom.idempotency SET " + tt.does)
		r.want(answer(), tt.status, tt.code)
		effects := 0
		if tt.status == 201 {
			effects = 1
		}
		if got := r.effects(); got != effects {
			t.Errorf("a late holder %s: %d effects, want %d", tt.name, got, effects)
		}
	}
}

// A Key that the guard gave to a handler, to StatusURL or with a Record works with Get and Delete,
// even if the principal is stored as a digest. A caller whose name is the digest of another caller's
// name does not get the other caller's row.
func TestReturnedKeysWorkWithGetAndDelete(t *testing.T) {
	t.Parallel()
	digest := func(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(name))) }
	for as, hash := range map[string]bool{"ann": true, "bob": false, strings.Repeat("long", 100): false, digest("eve"): false} {
		r := newRig(t, func(c *idempotency.Config) { c.HashPrincipal = hash })
		keys := make(map[string]idempotency.Key)
		g := newGate(func(_ http.ResponseWriter, req *http.Request) {
			info, _ := idempotency.FromContext(req.Context())
			keys["Info"] = info.Key
		})
		path := r.mount(idempotency.Route{StatusURL: func(_ *http.Request, k idempotency.Key) string { keys["StatusURL"] = k; return "/" }}, g.serve)
		answer := r.inside(g, path, sending{key: "k", as: as})
		r.want(r.send(path, sending{key: "k", as: as}), 202, "")
		r.want(answer(), 200, "")
		mine := idempotency.Key{Scope: one[string](r, "SELECT scope FROM postroom.idempotency"), Principal: as, Value: "k"}
		rec, err := r.guard.Get(t.Context(), mine)
		if err != nil {
			t.Fatalf("%.10s: %v", as, err)
		}
		keys["Record"] = rec.Key
		for from, k := range keys {
			if got, err := r.guard.Get(t.Context(), k); err != nil || got.Key != rec.Key {
				t.Errorf("%.10s: Get with the Key of %s: %v", as, from, err)
			}
		}
		other := idempotency.Key{Scope: mine.Scope, Principal: digest(as), Value: "k"}
		if _, err := r.guard.Get(t.Context(), other); !errors.Is(err, idempotency.ErrNotFound) {
			t.Errorf("%.10s: another caller gets the row: %v", as, err)
		}
		if err := r.guard.Delete(t.Context(), rec.Key); err != nil {
			t.Errorf("%.10s: Delete with the Key of a record: %v", as, err)
		}
	}
}

// Get and Delete: a key that an attempt has claimed is not deleted.
func TestDeleteRefusesAKeyWithAClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	k := idempotency.Key{Scope: "POST " + path, Principal: "ann", Value: "k"}
	for _, tt := range []struct {
		name, is string
		want     error
	}{
		{"an answer", "state = state", nil},
		{"a claim", "state = 'pending', owner = gen_random_uuid(), lease_until = now() + interval '1 h'", idempotency.ErrNotFound},
		{"a claim that ran out", expiredClaim, nil},
		{"a failure", "state = 'failed'", nil},
	} {
		r.exec("TRUNCATE postroom.idempotency")
		r.post(path, "k")
		r.exec("UPDATE postroom.idempotency SET " + tt.is)
		if err := r.guard.Delete(t.Context(), k); !errors.Is(err, tt.want) {
			t.Errorf("Delete of %s = %v, want %v", tt.name, err, tt.want)
		}
		left := 0
		if tt.want != nil {
			left = 1
		}
		if got := one[int](r, "SELECT count(*) FROM postroom.idempotency"); got != left {
			t.Errorf("after Delete of %s %d rows are left", tt.name, got)
		}
	}
}

// A repeated answer is kept for longer, and never for a shorter time. A row that expired or was
// claimed meanwhile is not changed.
func TestLastUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rt := idempotency.Route{From: idempotency.FromLastUse, TTL: time.Hour}
	path := r.mount(rt, r.refund)
	r.post(path, "k")
	const until = "SELECT expires_at::text FROM postroom.idempotency"
	r.exec("UPDATE postroom.idempotency SET expires_at = now() + interval '2 h'")
	was := one[string](r, until)
	r.want(r.post(path, "k"), 201, "")
	if got := one[string](r, until); got != was {
		t.Errorf("a replay has what is kept until %s be kept until %s", was, got)
	}
	for name, becomes := range map[string]string{
		"expired": "expires_at = now() - interval '1 s'",
		"claimed": "state = 'pending', owner = gen_random_uuid(), lease_until = now() + interval '1 h', expires_at = now() + interval '1 s'",
	} {
		r := newRig(t)
		r.rightBefore("touch", becomes)
		path := r.mount(rt, r.refund)
		r.post(path, "k")
		r.want(r.post(path, "k"), 201, "")
		if one[bool](r, "SELECT expires_at > now() + interval '1 min' FROM postroom.idempotency") {
			t.Errorf("a row that became %s meanwhile is stored for longer", name)
		}
	}
}

// A transaction counts as committed if the server says so. After a failure the server answers
// COMMIT with ROLLBACK, and no error.
func TestCommitAnsweredWithRollbackIsNoCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	err := idempotency.CommitAfterAFailure(t.Context(), r.guard)
	if !errors.Is(err, idempotency.ErrNotCommitted) || !strings.Contains(err.Error(), "ROLLBACK") {
		t.Errorf("COMMIT after a failure = %v", err)
	}
}

// No statement touches the row of another operation, another caller or another key.
func TestStatementsKeepToTheirKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const owner = "00000000-0000-0000-0000-000000000001"
	print := []byte{1}
	own := func(more ...any) []any { return append([]any{"s", "p", "k"}, more...) }
	held := func(more ...any) []any { return own(append([]any{owner, int64(1)}, more...)...) }
	ranOut, expired := "lease_until = now() - interval '1 s'", "expires_at = now() - interval '1 s'"
	for name, tt := range map[string]struct {
		is   string
		args []any
	}{
		"clear":    {ranOut, own(time.Now())},
		"delete":   {ranOut, own(time.Now(), "p2")},
		"touch":    {"state = 'complete', expires_at = now() + interval '1 s'", own(time.Hour)},
		"take":     {expired + ", " + ranOut, own(print, owner, time.Minute, int64(5), time.Hour, int64(1), print, time.Now(), "p2")},
		"renew":    {"state = state", held(2*time.Hour, time.Hour)},
		"advance":  {"state = state", held("a", "1", true)},
		"begin":    {"state = state", held("a", "key", time.Hour, "call")},
		"undo":     {`checkpoints = '{"": {"a": {"calls": 1, "call": "call"}}}'`, held("a", "call")},
		"fail":     {"state = state", held(time.Hour)},
		"complete": {"state = state", held(200, nil, nil, nil, false, time.Hour, false)},
		"present":  {"state = state", own("p2")},
		"look":     {"state = state", own(time.Now(), "p2")},
		"mine":     {"state = state", own(owner)},
	} {
		r.exec("TRUNCATE postroom.idempotency")
		r.exec(`INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, owner, fence, lease_until, expires_at)
			SELECT s, p, k, '\x01', 'pending', '` + owner + `', 1, now() + interval '1 h', now() + interval '1 h'
			FROM (VALUES ('s', 'p', 'k'), ('another', 'p', 'k'), ('s', 'another', 'k'), ('s', 'p', 'another')) v (s, p, k)`)
		r.exec("UPDATE postroom.idempotency SET " + tt.is)
		const others = "SELECT string_agg(to_jsonb(i)::text, ' ' ORDER BY scope, principal, key) FROM postroom.idempotency i WHERE 'another' IN (scope, principal, key)"
		const its = "SELECT coalesce(max(to_jsonb(i)::text), '') FROM postroom.idempotency i WHERE 'another' NOT IN (scope, principal, key)"
		was, mine := one[string](r, others), one[string](r, its)
		tag, err := r.pool.Exec(t.Context(), idempotency.Statements()[name], tt.args...)
		if err != nil || tag.RowsAffected() != 1 {
			t.Errorf("%s: %s, %v", name, tag, err)
		}
		if one[string](r, others) != was {
			t.Errorf("%s changes the rows of others", name)
		}
		if reads := name == "present" || name == "look" || name == "mine"; (one[string](r, its) == mine) != reads {
			t.Errorf("%s does nothing to the row, or is no statement that only reads", name)
		}
	}
}
