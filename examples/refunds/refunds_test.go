package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/examples/internal/demotest"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

// The tests also start the test binary as processes of the service.
func TestMain(m *testing.M) {
	if served, err := childproc.Serve(roles); served {
		demo.Exit("refunds", err)
		return
	}
	// Otherwise a process with the race detector waits for a second when it ends.
	if err := os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0")); err != nil {
		demo.Exit("refunds", err)
	}
	devtest.Main(m)
}

// patience is how long a test waits for something that has to come.
const patience = 30 * time.Second

var lastLine = regexp.MustCompile(`\nrefunds: keys=13 requests=\d+ replayed=\d+ in_progress=\d+ mismatches=1 crashes=2 charges=4 refunds=4 entries=8 events=8` +
	` provider_calls=17 provider_effects=8 balance_cents=14500 lost=0 ghosts=0 double_effects=0 wrong=0 verdict=ok$`)

func TestRefunds(t *testing.T) {
	demotest.UseSharedServer(t)
	lines, err := demotest.Execute(t, t.Context(), command(), "--twins", "20")
	text := strings.Join(lines, "\n")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !lastLine.MatchString(text) {
		t.Errorf("it ends otherwise:\n%s", text)
	}
	if n := strings.Count(text, "  ok  "); n != 20 {
		t.Errorf("%d checks are ok, want 20:\n%s", n, text)
	}
}

// rig is the deployment with a test around it.
type rig struct {
	*testing.T
	*deployment
}

// newRig returns processes of the service on a new database of the shared server.
func newRig(t *testing.T, processes int) *rig {
	t.Helper()
	return newRigOn(t, demotest.Servers(t), processes)
}

func newRigOn(t *testing.T, servers *devstack.Stack, processes int) *rig {
	t.Helper()
	addresses := make([]string, processes)
	for n := range addresses {
		addresses[n] = "127.0.0.1:0"
	}
	opt := options{addresses: addresses, twins: 100, timeout: devtest.Patience(t, time.Minute)}
	d, err := open(t.Context(), servers, opt, io.Discard, demo.NewStory(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.startAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &rig{t, d}
}

// must sends a request until it gets a final answer, which must have the given status.
func (r *rig) must(process int, q ask, status int) answer {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), devtest.Patience(r, patience))
	defer cancel()
	a, err := r.clients.insist(ctx, r.url(process), q)
	if err != nil {
		r.Fatal(err)
	}
	if a.status != status {
		r.Fatalf("%s %s with key %s: %s, want %d", q.kind.path, q.body, q.key, a, status)
	}
	return a
}

// charge makes a charge for ann.
func (r *rig) charge(key string, amount int64) Movement {
	r.Helper()
	return movementOf(r, r.must(0, ask{merchant: "ann", kind: charge, key: key, body: charged(amount)}, 201))
}

func movementOf(r *rig, a answer) (m Movement) {
	r.Helper()
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		r.Fatal(err)
	}
	return m
}

// effects are what a key left: rows, entries, events, calls at the provider, and how often the
// provider moved money.
type effects struct{ rows, entries, events, calls, moved int }

// effectsOf counts them. The provider's name for the movement identifies its calls.
func (r *rig) effectsOf(k kind, key string) (e effects) {
	r.Helper()
	sql := fmt.Sprintf(`SELECT count(*), min(provider_ref),
		coalesce(sum((SELECT count(*) FROM ledger l WHERE l.movement_id = m.id)), 0)::int,
		coalesce(sum((SELECT count(*) FROM postroom.outbox o WHERE convert_from(o.data, 'UTF8')::jsonb ->> 'id' = m.id)), 0)::int
		FROM %s m WHERE request_key = $1 AND merchant = 'ann'`, k.name)
	var ref *string
	if err := r.Pool.QueryRow(r.Context(), sql, key).Scan(&e.rows, &ref, &e.entries, &e.events); err != nil {
		r.Fatal(err)
	}
	r.provider.mu.Lock()
	defer r.provider.mu.Unlock()
	for _, p := range r.provider.kept {
		if ref != nil && p.answer.Ref == *ref {
			e.calls, e.moved = e.calls+p.calls, e.moved+p.effects
		}
	}
	return e
}

// checks gathers the evidence and runs the proof.
func (r *rig) checks() []demo.Check {
	r.Helper()
	if err := r.published(r.Context()); err != nil {
		r.Fatal(err)
	}
	if err := r.gather(r.Context()); err != nil {
		r.Fatal(err)
	}
	checks, err := prove(r.Context(), r.Pool)
	if err != nil {
		r.Fatal(err)
	}
	return checks
}

// wantChecksPass fails the test if the proof fails.
func (r *rig) wantChecksPass() {
	r.Helper()
	for _, c := range r.checks() {
		if c.Violations != 0 {
			r.Errorf("%s: %d %s", c.Name, c.Violations, c.Violation)
		}
	}
}

// stopFailing makes the provider reliable.
func (r *rig) stopFailing() *rig {
	r.provider.mu.Lock()
	defer r.provider.mu.Unlock()
	r.provider.calm = true
	return r
}

// A proof has to find violations. The test plants each violation in a transaction that is
// rolled back.
func TestProofFindsPlantedViolations(t *testing.T) {
	r := newRig(t, 1).stopFailing()
	first := r.charge("c", 4200)
	r.charge("d", 100)
	r.must(0, ask{merchant: "ann", kind: refund, key: "r", body: refunded(first.ID, 1000)}, 201)
	r.wantChecksPass()
	const event = "INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, data) " +
		"SELECT decode(repeat('00', 16), 'hex'), source, 'planted', type, subject, key, "
	for _, tt := range []struct {
		sql  string
		want []int // the checks that find it
	}{
		{"SELECT 1", nil},
		{"DELETE FROM refund", []int{1, 5, 8, 11, 14, 16}},
		{"INSERT INTO refund SELECT 'x', charge_id, merchant, amount, provider_ref, request_key FROM refund", []int{2, 6, 9, 16}},
		{"UPDATE refund SET request_key = 'other'", []int{1, 3, 5}},
		{"UPDATE refund SET amount = 1001", []int{5, 6, 12, 16}},
		{"UPDATE refund SET amount = 5000", []int{5, 6, 12, 15, 16}},
		{"INSERT INTO told SELECT merchant, kind, key, 402, body FROM told LIMIT 1", []int{4}},
		{"UPDATE told SET body = replace(body, '1000', '1') WHERE kind = 'refund'", []int{5}},
		{"DELETE FROM ledger WHERE credit = 'provider'", []int{6, 16, 17}},
		{"INSERT INTO ledger (movement_id, debit, credit, amount) SELECT movement_id, debit, credit, amount FROM ledger", []int{7, 16, 17}},
		{"INSERT INTO ledger (movement_id, debit, credit, amount) VALUES ('x', 'ann', 'provider', 1)", []int{8, 16, 17}},
		{"UPDATE ledger SET debit = credit, credit = debit WHERE credit = 'provider'", []int{6, 16, 17}},
		{"DELETE FROM postroom.outbox WHERE type = 'payment.refunded'", []int{9, 20}},
		{"UPDATE postroom.outbox SET type = 'payment.charged' WHERE type = 'payment.refunded'", []int{9}},
		{event + "data FROM postroom.outbox WHERE type = 'payment.refunded'", []int{10, 19}},
		{event + `convert_to('{"id":"x"}', 'UTF8') FROM postroom.outbox LIMIT 1`, []int{11, 19}},
		{"DELETE FROM provided WHERE kind = 'refund'", []int{12, 17}},
		{"UPDATE provided SET effects = 0 WHERE kind = 'refund'", []int{12, 17}},
		{"UPDATE provided SET effects = 2 WHERE kind = 'refund'", []int{13, 17}},
		{"INSERT INTO provided VALUES ('x', 'charge', 'pp_x', 5, 1, 1)", []int{14, 17}},
		{"INSERT INTO reservation VALUES ('x', 'charge', 'x', 'ann', 1, 'k')", []int{18}},
		{"UPDATE postroom.idempotency SET state = 'pending' WHERE key = 'c'", []int{18}},
		{"DELETE FROM published WHERE ctid = (SELECT min(ctid) FROM published)", []int{19}},
		{"INSERT INTO published VALUES ('x')", []int{20}},
	} {
		t.Run(tt.sql, func(t *testing.T) {
			var got []int
			for _, c := range demotest.Planted(t, r.Pool, tt.sql, prove) {
				if c.Violations > 0 {
					got = append(got, c.N)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("checks %v found it, want %v", got, tt.want)
			}
		})
	}
}

func TestRunThatMetNothingIsNoProof(t *testing.T) {
	whole := result{findings: findings{Charges: 1, Refunds: 1, Calls: 2, Effects: 1}, replayed: 1, inProgress: 1, mismatches: 1, crashes: 1}
	if err := whole.verdict(); err != nil {
		t.Error(err)
	}
	for what, r := range map[string]func(*result){
		"crashes": func(r *result) { r.crashes = 0 }, "twins": func(r *result) { r.inProgress = 0 },
		"repeated calls": func(r *result) { r.Calls = 1 }, "a good end": func(r *result) { r.Running = pgx.ErrTxClosed },
	} {
		less := whole
		r(&less)
		verdict := "verdict=undecided" // nothing is wrong, and nothing is shown
		if less.Running != nil {
			verdict = "verdict=FAILED"
		}
		if less.verdict() == nil || !strings.HasSuffix(less.summary(), verdict) {
			t.Errorf("without %s: %s", what, less.summary())
		}
	}
}

func TestFlagsAreChecked(t *testing.T) {
	demotest.RefusesFlags(t, command,
		[]string{"--twins", "1"},
		[]string{"--timeout", "0s"},
		[]string{"more"},
	)
}
