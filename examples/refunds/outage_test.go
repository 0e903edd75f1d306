package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

// hold stops each call of the provider until release is called. arrived is closed when the
// first call is there.
func (r *rig) hold() (arrived <-chan struct{}, release func()) {
	came, gate := make(chan struct{}), make(chan struct{})
	var first sync.Once
	r.provider.onCall(func(string) {
		first.Do(func() { close(came) })
		<-gate
	})
	release = sync.OnceFunc(func() {
		r.provider.onCall(nil)
		close(gate)
	})
	r.Cleanup(release)
	return came, release
}

// The client disconnects during its request. The work is finished, and the retry finds it.
func TestAnswerIsLost(t *testing.T) {
	r := newRig(t, 1).stopFailing()
	q := ask{merchant: "ann", kind: charge, key: "k", body: charged(4200)}
	arrived, release := r.hold()
	ctx, hangUp := context.WithCancel(t.Context())
	sent := make(chan answer, 1)
	go func() { sent <- r.clients.send(ctx, r.url(0), q) }()
	<-arrived
	hangUp()
	if a := <-sent; a.err == nil {
		t.Fatalf("the client had an answer: %s", a)
	}
	release()
	if a := r.must(0, q, http.StatusCreated); !a.replayed() {
		t.Errorf("the retry is answered %s, want a replay", a)
	}
	if got := r.effectsOf(charge, "k"); got != one {
		t.Errorf("effects: %+v, want %+v", got, one)
	}
	r.wantChecksPass()
}

// The database goes away while the provider is called, and comes back. Meanwhile no work
// begins; then the request goes on where it stopped.
func TestDatabaseIsAway(t *testing.T) {
	db := devtest.OwnPostgres(t, devstack.Config{Durable: true}) // a commit that was answered survives
	r := newRigOn(t, &devstack.Stack{Postgres: db, NATS: devtest.OwnNATS(t)}, 1).stopFailing()
	under := ask{merchant: "ann", kind: charge, key: "under-way", body: charged(4200)}
	arrived, release := r.hold()
	sent := make(chan answer, 1)
	go func() { sent <- r.clients.send(t.Context(), r.url(0), under) }()
	<-arrived
	if err := db.Kill(); err != nil {
		t.Fatal(err)
	}
	r.waitUntilUnavailable()
	meanwhile := under
	meanwhile.key = "meanwhile"
	if a := r.clients.send(t.Context(), r.url(0), meanwhile); a.status != http.StatusServiceUnavailable || a.code() != "idempotency_store_unavailable" {
		t.Errorf("during the outage of the database: %s", a)
	}
	release()
	// On a slow machine the claim may have expired by now. Then the answer is
	// idempotency_in_progress.
	if a := <-sent; a.code() != "service_unavailable" && a.code() != "idempotency_in_progress" || a.header.Get("Retry-After") == "" {
		t.Errorf("the request that was under way is answered %s", a)
	}
	if err := db.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Pool.Reset() // the auditor's connections are gone, too
	for _, q := range []ask{under, meanwhile} {
		r.must(0, q, http.StatusCreated)
	}
	want := one
	want.calls = 2 // the first call could not be recorded
	if got := r.effectsOf(charge, under.key); got != want {
		t.Errorf("effects: %+v, want %+v", got, want)
	}
	if got := r.effectsOf(charge, meanwhile.key); got != one {
		t.Errorf("effects of the refused request: %+v, want %+v", got, one)
	}
	r.wantChecksPass()
}

// waitUntilUnavailable returns when none of the service's connections to the database works. The server's
// other processes live a moment longer than the first one.
func (r *rig) waitUntilUnavailable() {
	r.Helper()
	for range connections + 1 { // the pool closes each that fails
		devtest.Eventually(r.T, patience, "the database is away", func() bool {
			status, _ := r.ledgerOf("ann-token")
			return status == http.StatusServiceUnavailable
		})
	}
}

// ledgerOf requests the ledger.
func (r *rig) ledgerOf(token string) (status int, body string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.url(0)+"/ledger", nil)
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := r.clients.http.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// The provider does not come back in time. The client is asked to come again, and is not
// charged twice.
func TestProviderIsAway(t *testing.T) {
	r := newRig(t, 1).stopFailing()
	of := r.charge("c", 1000)
	q := ask{merchant: "ann", kind: refund, key: "r", body: refunded(of.ID, 1000)}
	r.provider.onCall(func(string) { panic(http.ErrAbortHandler) })
	if a := r.clients.send(t.Context(), r.url(0), q); a.status != http.StatusServiceUnavailable || a.code() != "provider_unavailable" {
		t.Errorf("without the provider: %s", a)
	}
	r.provider.onCall(nil)
	other := q
	other.key = "other"
	r.must(0, other, http.StatusUnprocessableEntity) // the amount is reserved for the first
	r.must(0, q, http.StatusCreated)
	if got := r.effectsOf(refund, "r"); got != one {
		t.Errorf("effects: %+v, want %+v", got, one)
	}
	r.wantChecksPass()
}
