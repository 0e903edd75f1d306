package idempotency_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/postroom/postroom/idempotency"
)

func hashing(on bool) func(*idempotency.Config) {
	return func(c *idempotency.Config) { c.HashPrincipal = on }
}

// A deployment may change HashPrincipal. Requests that came before are recognised, in both
// directions, and processes with the old and with the new setting exclude each other.
func TestHashPrincipalCanBeSwitched(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
			t.Run(fmt.Sprint("to ", on, " in mode ", mode), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, hashing(!on))
				calls := 0
				refund := func(w http.ResponseWriter, _ *http.Request) {
					calls++
					r.exec("INSERT INTO ledger DEFAULT VALUES")
					w.WriteHeader(http.StatusCreated)
				}
				mount := func(h http.HandlerFunc) {
					r.mux.Handle("/refund", r.guard.Handler(idempotency.Route{Mode: mode}, h))
				}
				gate := newGate(refund)
				mount(func(w http.ResponseWriter, req *http.Request) {
					if req.Header.Get("Idempotency-Key") == "k2" {
						gate.serve(w, req)
						return
					}
					refund(w, req)
				})
				first := r.post("/refund", "k1")
				answer := r.inside(gate, "/refund", sending{key: "k2"})

				r.reset(hashing(on))
				mount(refund)
				r.wantReplay(first, r.post("/refund", "k1"))
				r.want(r.send("/refund", sending{key: "k1", body: "2"}), 422, "idempotency_key_payload_mismatch")
				r.want(r.post("/refund", "k2"), 409, "idempotency_in_progress")
				r.wantReplay(answer(), r.post("/refund", "k2"))
				r.want(r.post("/refund", "k3"), 201, "")
				if got := r.effects(); got != 3 || calls != 3 {
					t.Errorf("%d effects of %d calls, want 3", got, calls)
				}
				if n := one[int](r, "SELECT count(*) FROM postroom.idempotency WHERE (principal = 'ann') = $1", on); n != 2 {
					t.Errorf("%d rows have the old form of the principal, want those of the first two requests", n)
				}
				for _, value := range []string{"k1", "k2", "k3"} {
					k := idempotency.Key{Scope: "POST /refund", Principal: "ann", Value: value}
					if _, err := r.guard.Get(t.Context(), k); err != nil {
						t.Errorf("Get %s = %v", value, err)
					}
					if err := r.guard.Delete(t.Context(), k); err != nil {
						t.Errorf("Delete %s = %v", value, err)
					}
				}
			})
		}
	}
}

// Each repetition extends the time of an answer whose principal has the old form.
func TestLastUseCountsAfterASwitchOfHashPrincipal(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
			r := newRig(t, hashing(!on))
			mount := func() {
				r.mux.Handle("/refund", r.guard.Handler(idempotency.Route{Mode: mode, From: idempotency.FromLastUse, TTL: time.Hour},
					http.HandlerFunc(func(http.ResponseWriter, *http.Request) { r.calls.Add(1) })))
			}
			mount()
			first := r.post("/refund", "k")
			r.reset(hashing(on))
			mount()
			for n := range 3 {
				r.exec("UPDATE postroom.idempotency SET expires_at = now() + interval '1 min'")
				r.wantReplay(first, r.post("/refund", "k"))
				if !one[bool](r, "SELECT expires_at > now() + interval '30 min' FROM postroom.idempotency") {
					t.Errorf("to %t in mode %d: repetition %d does not extend the time", on, mode, n+1)
				}
			}
			r.wantCalls(0, 0)
		}
	}
}

// In lease mode, an attempt with the new setting continues where one with the old setting stopped,
// and the vendor gets the same key.
func TestLeaseResumesAfterASwitchOfHashPrincipal(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		j := &threeSteps{rig: newRig(t, hashing(!on)), stop: "charge"}
		j.mux.Handle("/ship", j.guard.Handler(leased, http.HandlerFunc(j.serve)))
		j.want(j.post("/ship", "k"), 502, "")
		j.reset(hashing(on))
		j.mux.Handle("/ship", j.guard.Handler(leased, http.HandlerFunc(j.serve)))
		j.stop = ""
		first := j.post("/ship", "k")
		j.want(first, 201, "")
		j.wantReplay(first, j.post("/ship", "k"))
		if fmt.Sprint(j.steps) != "[reserve charge charge book]" || len(j.keys) != 2 || j.keys[0] != j.keys[1] {
			t.Errorf("to %t: steps %v, keys %v", on, j.steps, j.keys)
		}
	}
}

// An answer that has expired does not count in its old form either, and a new request stores the
// new form only. If there are rows of both forms, the one that counts is read, with either setting.
func TestAnExpiredRowOfTheOldFormDoesNotCount(t *testing.T) {
	t.Parallel()
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		r := newRig(t, hashing(false))
		done := func(w http.ResponseWriter, _ *http.Request) { r.calls.Add(1); w.WriteHeader(http.StatusCreated) }
		r.mux.Handle("/refund", r.guard.Handler(idempotency.Route{Mode: mode}, http.HandlerFunc(done)))
		r.post("/refund", "k")
		r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 s'")
		r.reset(hashing(true))
		r.mux.Handle("/refund", r.guard.Handler(idempotency.Route{Mode: mode}, http.HandlerFunc(done)))
		first := r.post("/refund", "k")
		r.wantReplay(first, r.post("/refund", "k"))
		r.wantCalls(1, 0)
		if n := one[int](r, "SELECT count(*) FROM postroom.idempotency WHERE principal <> 'ann' AND expires_at > now()"); n != 1 {
			t.Errorf("mode %d: %d rows have the new form, want one", mode, n)
		}
		for _, on := range []bool{false, true} {
			r.reset(hashing(on))
			r.mux.Handle("/refund", r.guard.Handler(idempotency.Route{Mode: mode}, http.HandlerFunc(done)))
			r.wantReplay(first, r.post("/refund", "k"))
			r.exec("UPDATE postroom.idempotency SET principal = left(principal, 3) || '-'") // the forms change places
			r.exec("UPDATE postroom.idempotency SET principal = CASE principal WHEN 'ann-' THEN $1 ELSE 'ann' END",
				fmt.Sprintf("%x", sha256.Sum256([]byte("ann"))))
		}
	}
}

// A claim takes over a row that has expired. If an attempt with the other setting has answered since
// the row was read, its answer counts.
func TestATakeOverLeavesTheRowOfTheOtherForm(t *testing.T) {
	t.Parallel()
	r := newRig(t, hashing(true))
	mount := func() {
		r.mux.Handle("/refund", r.guard.Handler(leased, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { r.calls.Add(1) })))
	}
	mount()
	first := r.post("/refund", "k")
	r.exec(`INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, expires_at)
		SELECT scope, 'ann', key, fingerprint, state, expires_at FROM postroom.idempotency`)
	r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 s'")
	r.rightBefore("take", "expires_at = now() + interval '1 h' WHERE principal <> 'ann'")
	mount()
	r.wantReplay(first, r.post("/refund", "k"))
	r.wantCalls(0, 0)
}

// A claim needs the lock before it looks at the rows. If the lock becomes free only after that, the
// claim may have missed the row of its last holder.
func TestAClaimSeesWhatTheLastHolderDid(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, fence, expires_at)
		VALUES ('s', 'p', 'k2', '\x02', 'failed', 1, now() + interval '1 h')`)
	const owner, lock = "00000000-0000-0000-0000-000000000001", int64(5)
	for name, args := range map[string][]any{
		"claim": {"s", "p", "k1", []byte{1}, owner, time.Minute, lock, time.Hour, "p", time.Now()},
		"take":  {"s", "p", "k2", []byte{1}, owner, time.Minute, lock, time.Hour, int64(1), []byte{2}, time.Now(), "p"},
	} {
		for _, held := range []bool{true, false} {
			holder, err := r.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := holder.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1) WHERE $2", lock, held); err != nil {
				t.Fatal(err)
			}
			tx, err := r.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), idempotency.Statements()["hold"], lock); err != nil {
				t.Fatal(err)
			}
			if err := holder.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			tag, err := tx.Exec(t.Context(), idempotency.Statements()[name], args...)
			if err != nil || (tag.RowsAffected() == 1) == held {
				t.Errorf("%s after the lock was held: %t: %s, %v", name, held, tag, err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Attempts with the old and with the new setting that claim a key at the same time do not both run.
func TestBothSettingsClaimAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, hashing(false))
	other := secondRig(r, hashing(true))
	for _, mode := range []idempotency.Mode{idempotency.TxMode, idempotency.LeaseMode} {
		rt := idempotency.Route{Mode: mode}
		path := fmt.Sprint("/both", mode)
		for _, g := range []*rig{r, other} {
			g.mux.Handle(path, g.guard.Handler(rt, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, err := r.pool.Exec(req.Context(), "INSERT INTO ledger (note) VALUES ($1)", path+req.Header.Get("Idempotency-Key"))
				if err != nil {
					w.WriteHeader(http.StatusInternalServerError)
					r.Errorf("a second effect: %v", err)
				}
			})))
		}
		for n := range 50 {
			answered := make(chan struct{}, 2)
			for _, g := range []*rig{r, other} {
				go func() {
					g.post(path, fmt.Sprint("k", n))
					answered <- struct{}{}
				}()
			}
			<-answered
			<-answered
		}
	}
	if n := one[int](r, "SELECT count(*) FROM postroom.idempotency"); n != 100 {
		t.Errorf("%d rows for 100 keys", n)
	}
}

// secondRig is a second process with the database of r.
func secondRig(r *rig, set ...func(*idempotency.Config)) *rig {
	other := &rig{T: r.T, pool: r.pool}
	other.reset(set...)
	return other
}

// The names of a pattern's wildcards are no part of the scope, so they can be changed.
func TestWildcardsCanBeRenamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for pattern, renamed := range map[string]string{
		"POST /orders/{id}/pay":      "POST /orders/{order}/pay",
		"POST /files/{path...}":      "POST /files/{rest...}",
		"POST a.example/{x}/{y}/{$}": "POST a.example/{shop}/{item}/{$}",
	} {
		path := map[string]string{"POST /orders/{id}/pay": "/orders/1/pay", "POST /files/{path...}": "/files/a/b"}[pattern]
		if path == "" {
			path = "http://a.example/1/2/"
		}
		r.reset()
		r.mux.Handle(pattern, r.guard.Handler(idempotency.Route{}, http.HandlerFunc(r.refund)))
		first := r.post(path, "k")
		r.want(first, 201, "")
		r.reset()
		r.mux.Handle(renamed, r.guard.Handler(idempotency.Route{}, http.HandlerFunc(r.refund)))
		r.wantReplay(first, r.post(path, "k"))
	}
	if got := one[int](r, "SELECT count(*) FROM postroom.idempotency WHERE scope IN ('POST /orders/{}/pay', 'POST /files/{...}', 'POST a.example/{}/{}/{$}')"); got != 3 {
		t.Errorf("%d rows have the scopes that the reference describes, want 3", got)
	}
}
