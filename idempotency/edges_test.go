package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/devtest"
)

// Of many requests with one key at the same time, one runs. The others get its answer.
func TestTwins(t *testing.T) { // E1, E2
	t.Parallel()
	r := newRig(t)
	for name, rt := range map[string]idempotency.Route{
		"refused": {}, "waiting": {Wait: patience}, "serializable": {Isolation: pgx.Serializable},
		"lease": {Mode: idempotency.LeaseMode}, "lease, waiting": {Mode: idempotency.LeaseMode, Wait: patience},
	} {
		r.calls.Store(0)
		path := r.mount(rt, func(w http.ResponseWriter, _ *http.Request) {
			r.calls.Add(1)
			w.WriteHeader(http.StatusCreated)
		})
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				switch w := r.post(path, "k"); {
				case w.Code == 201, w.Code == 409 && codeIn(w) == "idempotency_in_progress" && rt.Wait == 0:
				case w.Code == 503 && codeIn(w) == "transaction_conflict" && rt.Isolation != "":
				default:
					r.Errorf("%s: %d %s", name, w.Code, w.Body)
				}
			})
		}
		all.Wait()
		// Above read committed, a second request may run and be rolled back.
		if n := r.calls.Load(); n != 1 && rt.Isolation == "" {
			r.Errorf("%s: %d calls", name, n)
		}
		if w := r.post(path, "k"); w.Header().Get("Idempotent-Replayed") != "true" {
			r.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// While a request runs, no other request waits for its lock, and replays of other keys do not
// wait either.
func TestRequestsDoNotWaitForALock(t *testing.T) { // E1
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	first := r.post(path, "done")
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	lock := idempotency.Lock(idempotency.Key{Scope: "POST " + path, Principal: "ann", Value: "done"})
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", lock); err != nil {
		t.Fatal(err)
	}
	r.wantReplay(first, r.post(path, "done"))
	other := newRigOnTables(r) // this guard has not seen the key
	r.wantReplay(first, other.post(other.mountAt(path, idempotency.Route{}, other.refund), "done"))
	if one[int](r, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") != 0 {
		r.Error("a request waits")
	}
}

// newRigOnTables returns another guard on the same database, as if in another process.
func newRigOnTables(r *rig) *rig {
	other := &rig{T: r.T, pool: r.pool}
	other.reset()
	return other
}

func (r *rig) mountAt(path string, rt idempotency.Route, h http.HandlerFunc) string {
	r.mux.Handle(path, r.guard.Handler(rt, h))
	return path
}

// If the first request rolls back, the one that waited runs.
func TestWaitingRequestRunsAfterARollback(t *testing.T) { // E2
	t.Parallel()
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		r := newRig(t)
		g := newGate(nil)
		path := r.mount(idempotency.Route{Wait: patience, Mode: mode}, func(w http.ResponseWriter, req *http.Request) {
			if r.calls.Add(1) == 1 {
				g.then = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
				g.serve(w, req)
				return
			}
			w.WriteHeader(http.StatusCreated)
		})
		answer := r.inside(g, path, sending{key: "k"})
		time.AfterFunc(20*time.Millisecond, g.release)
		r.want(r.post(path, "k"), 201, "")
		r.want(answer(), 500, "")
		r.wantCalls(2, 0)
	}
}

// A pool of one connection is enough for a request that waits and the one that it waits for.
func TestWaitingRequestHoldsNoConnection(t *testing.T) { // E3
	t.Parallel()
	r := newRig(t)
	cfg := r.pool.Config()
	cfg.MaxConns = 2 // one that runs, and one for all that wait
	small, err := pgxpoolWith(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.pool = small
	r.reset()
	g := newGate(r.refund)
	path := r.mount(idempotency.Route{Wait: patience}, g.serve)
	answer := r.inside(g, path, sending{key: "k"})
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { r.want(r.post(path, "k"), 201, "") })
	}
	quick := r.mount(idempotency.Route{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	r.want(r.post(quick, "other"), 200, "")
	r.want(answer(), 201, "")
	all.Wait()
	r.wantCalls(1, 1)
	if n := one[int](r, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 0 {
		r.Errorf("%d advisory locks are left", n)
	}
}

// A serialization failure is answered with 503. With TxRetries the handler runs again instead.
func TestContention(t *testing.T) { // E8
	t.Parallel()
	r := newRig(t)
	r.exec("INSERT INTO ledger (note) VALUES ('x')")
	h := func(w http.ResponseWriter, req *http.Request) {
		first := r.calls.Add(1) == 1
		tx, ctx := idempotency.Tx(req.Context()), req.Context()
		var n int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM ledger").Scan(&n); err != nil {
			r.Error(err)
		}
		if first {
			r.exec("UPDATE ledger SET note = note || 'y'")
		}
		if _, err := tx.Exec(ctx, "UPDATE ledger SET note = note || 'z'"); err != nil {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	path := r.mount(idempotency.Route{Isolation: pgx.RepeatableRead}, h)
	w := r.post(path, "k")
	r.want(w, 503, "transaction_conflict")
	if w.Header().Get("Retry-After") == "" {
		r.Error("no Retry-After")
	}
	r.want(r.post(path, "k"), 201, "")
	r.calls.Store(0)
	path = r.mount(idempotency.Route{Isolation: pgx.RepeatableRead, TxRetries: 1}, h)
	r.want(r.post(path, "k"), 201, "")
	r.wantCalls(2, 1)
}

func TestExpiredKeyIsNew(t *testing.T) { // E9
	t.Parallel()
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		r := newRig(t)
		path := r.mount(idempotency.Route{Mode: mode}, func(w http.ResponseWriter, _ *http.Request) { r.calls.Add(1); w.WriteHeader(http.StatusCreated) })
		r.post(path, "k")
		r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 s'")
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { // even for a different request, as if the first had never come
				if w := r.send(path, sending{key: "k", body: "2"}); w.Code != 201 && w.Code != 409 {
					r.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		all.Wait()
		r.wantCalls(2, 0)
		w := r.send(path, sending{key: "k", body: "2"})
		if w.Header().Get("Idempotent-Replayed") != "true" {
			r.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// An answer expires by the database's clock, and no earlier than its TTL: then a repeated request
// runs again, and a purge removes what nobody asked for.
func TestAnswerExpiresByTheClock(t *testing.T) { // E9
	t.Parallel()
	const ttl = time.Second
	for name, mode := range map[string]idempotency.Mode{"tx": idempotency.TxMode, "lease": idempotency.LeaseMode} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			path := r.mount(idempotency.Route{Mode: mode, TTL: ttl}, func(w http.ResponseWriter, _ *http.Request) { r.calls.Add(1); w.WriteHeader(http.StatusCreated) })
			r.post(path, "repeated")
			r.post(path, "left")
			stored := one[time.Time](r, "SELECT min(completed_at) FROM postroom.idempotency")
			wantAge := func(what string) {
				if age := one[time.Duration](r, "SELECT clock_timestamp() - $1", stored); age < ttl {
					t.Errorf("%s %s after its answer was stored, want %s", what, age, ttl)
				}
			}
			devtest.Eventually(t, patience, "the request to run again", func() bool { r.post(path, "repeated"); return r.calls.Load() == 3 })
			wantAge("the request ran again")
			devtest.Eventually(t, patience, "the other answer to be removed", func() bool {
				if _, err := r.guard.Purge(t.Context(), 10); err != nil {
					t.Fatal(err)
				}
				return one[int](r, "SELECT count(*) FROM postroom.idempotency WHERE key = 'left'") == 0
			})
			wantAge("the other answer was removed")
		})
	}
}

func TestPurge(t *testing.T) { // E9, E10
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{}, r.refund)
	for _, key := range []string{"a", "b", "c", "live", "locked", "held"} {
		r.post(path, key)
	}
	r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 h' WHERE key <> 'live'")
	r.exec("UPDATE postroom.idempotency SET state = 'pending', owner = gen_random_uuid(), lease_until = now() + interval '1 h' WHERE key = 'held'")
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var pid int
	if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM postroom.idempotency WHERE key = 'locked' FOR UPDATE").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 1, 0} {
		purged := make(chan error, 1)
		go func() {
			n, err := r.guard.Purge(t.Context(), 2)
			if n != want {
				err = errors.Join(err, fmt.Errorf("Purge = %d, want %d", n, want))
			}
			purged <- err
		}()
		devtest.Eventually(t, patience, "a purge ends, or waits", func() bool { return len(purged) == 1 || r.waitsFor(pid) })
		if len(purged) == 0 {
			r.Fatal("a purge waits for a locked row")
		}
		if err := <-purged; err != nil {
			r.Error(err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := one[string](r, "SELECT string_agg(key::text, ' ' ORDER BY key) FROM postroom.idempotency"); got != "held live locked" {
		r.Errorf("left: %s", got)
	}

	var gone []idempotency.Record
	r.reset(func(c *idempotency.Config) {
		c.Archive = func(_ context.Context, _ pgx.Tx, recs []idempotency.Record) error {
			gone = append(gone, recs...)
			return nil
		}
		c.PurgeEvery = 5 * time.Millisecond
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.guard.Run(ctx) }()
	// Run is stopped only after it knows of its commit. Before that, it cannot report what it
	// removed.
	devtest.Eventually(t, patience, "Run removes what has expired", func() bool { return r.counts()["postroom.rows.removed"] > 0 })
	stop()
	if err := <-done; err != nil {
		r.Errorf("Run = %v", err)
	}
	if len(gone) != 1 || gone[0].Value != "locked" || gone[0].Response.Status != 201 || len(gone[0].Response.Body) == 0 {
		r.Errorf("archived: %+v", gone)
	}
	if left, said := one[int](r, "SELECT count(*) FROM postroom.idempotency"), r.counts()["postroom.rows.removed"]; left != 2 || said != 1 {
		r.Errorf("%d rows are left and %d said to be removed, want 2 and 1", left, said)
	}
}

// A purge gives the archive a few MiB of answers at a time, and at least one answer of any size.
func TestArchiveIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var steps []string
	r.reset(func(c *idempotency.Config) {
		c.Archive = func(_ context.Context, _ pgx.Tx, gone []idempotency.Record) error {
			size := 0
			for _, rec := range gone {
				size += len(rec.Response.Body)
			}
			steps = append(steps, fmt.Sprintf("%d with %d MiB", len(gone), size>>20))
			return nil
		}
	})
	r.exec(`INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, status, body, expires_at)
		SELECT 's', 'p', n::text, '', 'complete', 200, convert_to(repeat('x', CASE n WHEN 1 THEN 9 ELSE 1 END << 20), 'UTF8'), now() - make_interval(hours => 20 - n)
		FROM generate_series(1, 12) n`)
	for _, want := range []int{10, 2, 0} {
		if n, err := r.guard.Purge(t.Context(), 10); n != want || err != nil {
			t.Errorf("Purge = %d, %v, want %d", n, err, want)
		}
	}
	if got := fmt.Sprint(steps); got != "[1 with 9 MiB 4 with 4 MiB 4 with 4 MiB 1 with 1 MiB 2 with 2 MiB]" {
		t.Errorf("archived: %s", got)
	}
}

// failingCodec cannot decode the answer of one key.
type failingCodec struct{ err error }

func (*failingCodec) Encode(_ context.Context, _ idempotency.Key, body []byte) ([]byte, error) {
	return body, nil
}

func (c *failingCodec) Decode(_ context.Context, k idempotency.Key, kept []byte) ([]byte, error) {
	if k.Value == "odd" {
		return nil, c.err
	}
	return []byte("decoded"), nil
}

// If an answer cannot be decoded, it is archived as it is stored, and other answers are
// archived too. If there was no time to decode it, it stays.
func TestArchiveGetsAnAnswerThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	codec := &failingCodec{err: context.DeadlineExceeded}
	var gone []string
	r.reset(func(c *idempotency.Config) {
		c.Codec = codec
		c.Archive = func(_ context.Context, _ pgx.Tx, recs []idempotency.Record) error {
			for _, rec := range recs {
				gone = append(gone, fmt.Sprintf("%s %s %t", rec.Value, rec.Response.Body, rec.Undecoded))
			}
			return nil
		}
	})
	r.exec(`INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, status, body, expires_at)
		SELECT 's', 'p', k, '', 'complete', 200, 'stored'::bytea, now() - interval '1 h' FROM unnest(ARRAY['odd', 'a', 'b']) k`)
	if n, err := r.guard.Purge(t.Context(), 10); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Purge = %d, %v, want the time limit of the codec", n, err)
	}
	codec.err = errors.New("its secret was destroyed")
	if n, err := r.guard.Purge(t.Context(), 10); n != 3 || err != nil {
		t.Errorf("Purge = %d, %v, want 3", n, err)
	}
	slices.Sort(gone)
	if got := fmt.Sprint(gone); got != "[a decoded false b decoded false odd stored true]" {
		t.Errorf("archived: %s", got)
	}
	if text := r.log.String(); !strings.Contains(text, "its secret was destroyed") {
		t.Errorf("not logged: %s", text)
	}
}

// A database clock that is ahead for a moment lets no answer and no claim end. The test is not
// parallel, because it changes the clock of the process.
func TestDatabaseClockThatIsAheadEndsNothing(t *testing.T) {
	defer clock.OverrideLatest(40 * 24 * time.Hour)()
	for name, mode := range map[string]idempotency.Mode{"tx": idempotency.TxMode, "lease": idempotency.LeaseMode} {
		t.Run(name, func(t *testing.T) {
			defer clock.OverrideLatest(40 * 24 * time.Hour)()
			r := newRig(t)
			path := r.mount(idempotency.Route{Mode: mode, TTL: time.Hour}, func(w http.ResponseWriter, _ *http.Request) { r.calls.Add(1); w.WriteHeader(http.StatusCreated) })
			first := r.post(path, "k")
			r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 h'")
			r.wantReplay(first, r.post(path, "k"))
			purge := func(want int) {
				t.Helper()
				if n, err := r.guard.Purge(t.Context(), 10); err != nil || n != want {
					t.Errorf("%d rows removed, %v; want %d", n, err, want)
				}
			}
			purge(0)
			if mode == idempotency.LeaseMode {
				r.exec("UPDATE postroom.idempotency SET state = 'pending', owner = gen_random_uuid(), lease_until = now() - interval '1 s', completed_at = NULL")
				r.want(r.post(path, "k"), 409, "idempotency_in_progress")
				purge(0)
			}
			r.wantCalls(1, 0)
			clock.OverrideLatest(0)
			r.want(r.post(path, "k"), 201, "")
			r.wantCalls(2, 0)
			r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 h'")
			purge(1)
		})
	}
}

// A guard with an Archive removes no answer either.
func TestDatabaseClockThatIsAheadArchivesNothing(t *testing.T) {
	defer clock.OverrideLatest(40 * 24 * time.Hour)()
	r := newRig(t, func(c *idempotency.Config) {
		c.Archive = func(context.Context, pgx.Tx, []idempotency.Record) error { return nil }
	})
	r.post(r.mount(idempotency.Route{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }), "k")
	r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 h'")
	for _, want := range []int{0, 1} {
		if n, err := r.guard.Purge(t.Context(), 10); err != nil || n != want {
			t.Errorf("%d rows archived, %v; want %d", n, err, want)
		}
		clock.OverrideLatest(0)
	}
}
