package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/postroom/postroom/examples/internal/demotest"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postroomtest/idempotencytest"
)

// one is what a key leaves if the provider was called once for it.
var one = effects{rows: 1, entries: 1, events: 1, calls: 1, moved: 1}

// A hundred requests with one key come at once, at two processes, and have one effect. Then
// come a hundred replays, which are equal to the byte.
func TestTwoProcesses(t *testing.T) {
	r := newRig(t, 2)
	q := ask{merchant: "ann", kind: charge, key: "k", body: charged(4200)}
	var all sync.WaitGroup
	answers := make([]answer, 100)
	for n := range answers {
		all.Go(func() { answers[n] = r.clients.send(t.Context(), r.url(n%2), q) })
	}
	all.Wait()
	var fresh answer
	made := 0
	for _, a := range answers {
		switch {
		case a.status == http.StatusCreated && !a.replayed():
			fresh, made = a, made+1
		case a.status != http.StatusCreated && (a.status != http.StatusConflict || a.header.Get("Retry-After") != "1"):
			t.Errorf("a twin is answered %s", a)
		}
	}
	if made != 1 {
		t.Fatalf("%d requests were carried out, want 1", made)
	}
	for n := range answers {
		all.Go(func() { answers[n] = r.clients.send(t.Context(), r.url(n%2), q) })
	}
	all.Wait()
	for _, a := range answers {
		if !a.replayed() || a.status != fresh.status || a.body != fresh.body {
			t.Errorf("a replay is %s, want %s", a, fresh)
		}
		for _, name := range []string{"Content-Type", "Content-Length", referenceHeader} {
			if a.header.Get(name) == "" || a.header.Get(name) != fresh.header.Get(name) {
				t.Errorf("a replay has %s %q, want %q", name, a.header.Get(name), fresh.header.Get(name))
			}
		}
	}
	want := one
	want.calls = 2 // the first was answered 503
	if got := r.effectsOf(charge, "k"); got != want {
		t.Errorf("effects: %+v, want %+v", got, want)
	}
	r.wantChecksPass()
}

// Many refunds of one charge come at once, each with a key of its own, at two processes. No
// more is refunded than was charged.
func TestRefundsOfOneChargeTogether(t *testing.T) {
	r := newRig(t, 2).stopFailing()
	of := r.charge("c", 1000)
	var all sync.WaitGroup
	answers := make([]answer, 20)
	for n := range answers {
		all.Go(func() {
			answers[n] = r.clients.send(t.Context(), r.url(n%2), ask{merchant: "ann", kind: refund, key: fmt.Sprint("r", n), body: refunded(of.ID, 300)})
		})
	}
	all.Wait()
	made := 0
	for _, a := range answers {
		if a.status == http.StatusCreated {
			made++
		} else if a.code() != "refund_exceeds_charge" {
			t.Errorf("a refund is answered %s", a)
		}
	}
	if made != 3 {
		t.Errorf("%d refunds of 300 were made of a charge of 1000, want 3", made)
	}
	r.wantChecksPass()
}

// A process is killed at every point of a request. When the claim has run out, the other
// process goes on, and repeats no recorded step.
func TestKilledAtEveryPoint(t *testing.T) {
	r := newRig(t, 2).stopFailing()
	of := r.charge("c", 100_000)
	for _, k := range []kind{charge, refund} {
		for _, p := range points {
			t.Run(k.name+" "+p.at, func(t *testing.T) {
				q := ask{merchant: "ann", kind: k, key: p.at, body: charged(500)}
				if k.undoes {
					q.body = refunded(of.ID, 500)
				}
				r := &rig{t, r.deployment}
				r.killAt(p, q)
				r.retryAfter(p, q)
			})
		}
	}
	r.wantChecksPass()
}

// point is a point at which a process is killed, with the state after the kill and in the end.
type point struct {
	at       string
	left     int  // rows after the kill
	moved    bool // whether the provider has moved the money after the kill
	calls    int  // of the provider, in the end
	answered bool // the answer was stored
}

var points = []point{
	{beforeCall, 0, false, 1, false},
	{afterCall, 0, true, 2, false},
	{beforeCommit, 0, true, 1, false},
	{afterCommit, 1, true, 1, false},
	{beforeAnswer, 1, true, 1, true},
}

// killAt kills the second process with a request.
func (r *rig) killAt(p point, q ask) {
	r.Helper()
	q.crash = p.at
	moved := r.moved()
	if a := r.clients.send(r.Context(), r.url(1), q); a.err == nil {
		r.Fatalf("the process was not killed: %s", a)
	}
	if err := r.restart(r.Context(), 1); err != nil {
		r.Fatal(err)
	}
	if got := r.effectsOf(q.kind, q.key).rows; got != p.left {
		r.Errorf("%d rows are left, want %d", got, p.left)
	}
	if got := r.moved() > moved; got != p.moved {
		r.Errorf("the provider moved money: %t", got)
	}
}

// retryAfter sends the request again, to the first process.
func (r *rig) retryAfter(p point, q ask) {
	r.Helper()
	if !p.answered {
		if a := r.clients.send(r.Context(), r.url(0), q); a.code() != "idempotency_in_progress" {
			r.Errorf("while the claim holds: %s", a)
		}
		r.overrideLease(q.key)
	}
	a := r.must(0, q, http.StatusCreated)
	if m := movementOf(r, a); m.Amount != 500 || a.replayed() != p.answered {
		r.Errorf("the retry is answered %s", a)
	}
	want := one
	want.calls = p.calls
	if got := r.effectsOf(q.kind, q.key); got != want {
		r.Errorf("effects: %+v, want %+v", got, want)
	}
	if again := r.must(1, q, http.StatusCreated); !again.replayed() || again.body != a.body {
		r.Errorf("it is repeated as %s, want %s", again, a)
	}
}

// moved is how often the provider moved money.
func (r *rig) moved() (n int) {
	r.provider.mu.Lock()
	defer r.provider.mu.Unlock()
	for _, p := range r.provider.kept {
		n += p.effects
	}
	return n
}

// overrideLease ends the claim of a key, so that the test does not wait for it. TestRefunds waits.
func (r *rig) overrideLease(key string) {
	r.Helper()
	tag, err := r.Pool.Exec(r.Context(), "UPDATE postroom.idempotency SET lease_until = now() WHERE key = $1 AND state = 'pending'", key)
	if err != nil || tag.RowsAffected() != 1 {
		r.Fatalf("%s claims ended: %v", tag, err)
	}
}

// Both endpoints keep the whole contract of package idempotency.
func TestConformance(t *testing.T) {
	r := newRig(t, 2).stopFailing()
	of := r.charge("c", 1_000_000)
	count := func(table string) func() (int, error) {
		return func() (n int, err error) {
			return n, r.Pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n)
		}
	}
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	idempotencytest.Test(t, idempotencytest.Endpoint{
		URL: r.url(0) + charge.path, Body: charged(100), Changed: charged(200),
		Header: bearer("ann-token"), Other: bearer("bob-token"), Effects: count("charge"), Client: r.clients.http,
	})
	idempotencytest.Test(t, idempotencytest.Endpoint{
		URL: r.url(1) + refund.path, Body: refunded(of.ID, 1), Changed: refunded(of.ID, 2),
		Header: bearer("ann-token"), Effects: count("refund"), Client: r.clients.http,
	})
}

// Without a token a request is refused. The ledger shows only the merchant's own entries.
func TestLedger(t *testing.T) {
	r := newRig(t, 1).stopFailing()
	m := r.charge("k", 4200)
	for token, want := range map[string]string{
		"bob-token": `{"balance":0,"entries":[]}`,
		"ann-token": fmt.Sprintf(`{"balance":4200,"entries":[{"movement":%q,"debit":"provider","credit":"ann","amount":4200}]}`, m.ID),
	} {
		if status, body := r.ledgerOf(token); status != http.StatusOK || body != want {
			t.Errorf("with %s: %d %s, want %s", token, status, body, want)
		}
	}
	for _, token := range []string{"", "eve-token"} {
		if status, _ := r.ledgerOf(token); status != http.StatusUnauthorized {
			t.Errorf("with token %q: %d, want 401", token, status)
		}
	}
}

// With --addr it serves all requests, and starts a process again that was killed.
func TestServe(t *testing.T) {
	demotest.UseSharedServer(t)
	ports, err := devstack.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprint("127.0.0.1:", ports[0])
	ctx, interrupt := context.WithTimeout(t.Context(), devtest.Patience(t, patience))
	defer interrupt()
	cmd := command()
	cmd.SetArgs([]string{"--addr", address})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	served := make(chan error, 1)
	go func() { served <- cmd.ExecuteContext(ctx) }()
	c := newClients()
	q := ask{merchant: "ann", kind: charge, key: "k", body: charged(100), crash: beforeAnswer}
	devtest.Eventually(t, patience, "the service serves, and is killed", func() bool {
		resp, err := c.http.Get("http://" + address + "/ledger")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return c.send(ctx, "http://"+address, q).err != nil
	})
	q.crash = ""
	if a, err := c.insist(ctx, "http://"+address, q); err != nil || a.status != http.StatusCreated || !a.replayed() {
		t.Errorf("the retry is answered %s (%v)", a, err)
	}
	c.http.CloseIdleConnections()
	interrupt()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
