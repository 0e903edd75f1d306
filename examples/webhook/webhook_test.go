package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/examples/internal/demotest"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/verdict"
	"github.com/postroom/postroom/postroomtest/webhooktest"
	"github.com/postroom/postroom/webhook"
)

func TestMain(m *testing.M) { devtest.Main(m) }

var lastLine = regexp.MustCompile(`^webhook: payments=80 webhooks=(\d+) requests=[1-9]\d* applied=(\d+) duplicates=[1-9]\d* conflicts=[1-9]\d*` +
	` refused=[1-9]\d* answered_503=[1-9]\d* sent_again=[1-9]\d* out_of_order=[1-9]\d* kept_cents=[1-9]\d* lost=0 ghosts=0 double_effects=0 wrong=0 verdict=ok$`)

func TestWebhook(t *testing.T) {
	demotest.UseSharedServer(t)
	lines, err := demotest.Execute(t, t.Context(), command(), "--payments", "80", "--senders", "8", "--seed", "7")
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(lines, "\n"))
	}
	if got := lastLine.FindStringSubmatch(lines[len(lines)-1]); got == nil || got[1] != got[2] {
		t.Fatalf("last line is %q", lines[len(lines)-1])
	}
	text := strings.Join(lines, "\n")
	if n := strings.Count(text, "  ok  "); n != 12 || strings.Contains(text, "FAILED") {
		t.Errorf("%d checks are ok, want 12:\n%s", n, text)
	}
	if left := demotest.Databases(t, "postroom_webhook_"); len(left) != 0 {
		t.Errorf("databases %v are left", left)
	}
}

// opened returns a deployment that is ready to play.
func opened(t *testing.T, opt options) *deployment {
	t.Helper()
	d, err := open(t.Context(), demotest.Postgres(t), opt, slog.New(slog.DiscardHandler), demo.NewStory(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

func TestInterruptedRunIsBroughtToItsEnd(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	d := opened(t, options{payments: 50_000, senders: 8, seed: 1, timeout: devtest.Patience(t, time.Minute)})
	played := make(chan error, 1)
	go func() { played <- d.play(ctx) }()
	devtest.Eventually(t, time.Minute, "100 deliveries", func() bool { return d.provider.finished.Load() >= 100 })
	interrupt()
	r, err := d.judge(<-played)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(); err != nil || r.Webhooks < 50 || r.Webhooks > 50_000 {
		t.Errorf("%s: %v", r.summary(), err)
	}
}

func TestRunThatTakesTooLongIsUndecided(t *testing.T) {
	d := opened(t, options{payments: 50_000, senders: 4, seed: 1, timeout: time.Second})
	running := d.play(t.Context())
	if running == nil || !strings.Contains(running.Error(), "not complete after 1s") {
		t.Errorf("error is %v", running)
	}
	r, err := d.judge(running)
	if err != nil {
		t.Fatal(err)
	}
	if !verdict.IsUndecided(r.verdict()) || !strings.Contains(r.summary(), " lost=0 ") || !strings.HasSuffix(r.summary(), "verdict=undecided") {
		t.Errorf("last line is %q", r.summary())
	}
}

// A proof has to find violations. The test plants each violation in a transaction that is
// rolled back.
func TestProofFindsPlantedViolations(t *testing.T) {
	d := opened(t, options{payments: 60, senders: 8, seed: 1, timeout: devtest.Patience(t, time.Minute)})
	r, err := d.judge(d.play(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(); err != nil {
		t.Fatal(err)
	}
	const (
		hook    = "(SELECT min(webhook_id) FROM sent)"
		its     = " WHERE webhook_id = " + hook
		payment = "(SELECT payment FROM sent" + its + ")"
		held    = "INSERT INTO postroom.held (handler, dedupe_key, next_at, dead_at, class, logged_at, source, event_id, type, subject, content_type, data) SELECT handler, dedupe_key, "
	)
	type found struct{ lost, ghosts, doubles, wrong int64 }
	for _, tt := range []struct {
		name, sql string
		want      found
	}{
		{"nothing", "SELECT 1", found{}},
		{"second effect", "INSERT INTO movement (webhook_id, payment, type, amount) SELECT webhook_id, payment, type, amount FROM sent" + its, found{doubles: 1}},
		{"effect gone", "DELETE FROM movement" + its, found{lost: 1}},
		{"effect of another amount", "UPDATE movement SET amount = amount + 1" + its, found{ghosts: 1}},
		{"effect of a forged one", "INSERT INTO movement (webhook_id, payment, type, amount) SELECT webhook_id, " + payment + ", 'payment.captured', 1 FROM answer WHERE kind = 'forged' LIMIT 1", found{ghosts: 1}},
		{"forged one in the inbox", "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'payments.apply', '/webhooks/acme-pay ' || webhook_id FROM answer WHERE kind = 'forged' LIMIT 1", found{ghosts: 1}},
		{"forged one taken", "UPDATE answer SET status = 200 WHERE ctid = (SELECT min(ctid) FROM answer WHERE kind = 'forged')", found{ghosts: 1}},
		{"never answered", "DELETE FROM answer" + its, found{lost: 1}},
		{"inbox row gone", "DELETE FROM postroom.inbox WHERE dedupe_key = '/webhooks/acme-pay ' || " + hook, found{lost: 1}},
		{"payment adds up to more", "UPDATE payment SET authorized = authorized + 1 WHERE id = (SELECT min(id) FROM payment WHERE captured = 0)", found{wrong: 1}},
		{"payment gone", "DELETE FROM payment WHERE id = " + payment, found{wrong: 2}},
		{"payment in another state", "ALTER TABLE payment ALTER state DROP EXPRESSION; UPDATE payment SET state = 'incomplete' WHERE id = " + payment, found{wrong: 1}},
		{"conflict gone", "DELETE FROM postroom.held WHERE id = (SELECT min(id) FROM postroom.held WHERE class = 'conflict')", found{lost: 1}},
		{"conflict of nothing", "DELETE FROM answer WHERE kind = 'changed' AND webhook_id = (SELECT min(webhook_id) FROM answer WHERE kind = 'changed')", found{ghosts: 1}},
		{"still owed", held + "now(), NULL, NULL, now(), '/webhooks/acme-pay', " + hook + ", 'payment.captured', 'payment.captured', 'application/json', '' FROM postroom.inbox" +
			" WHERE NOT EXISTS (SELECT FROM postroom.held h WHERE h.handler = inbox.handler AND h.dedupe_key = inbox.dedupe_key) LIMIT 1", found{lost: 1}},
		{"dead", "UPDATE postroom.held SET class = 'permanent' WHERE id = (SELECT min(id) FROM postroom.held WHERE class = 'conflict')", found{lost: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &result{demo.Proof{Checks: proveWith(t, d, tt.sql)}, r.findings, d.provider}
			if got := (found{r.Violations("lost"), r.Violations("ghost"), r.Violations("double"), r.Violations("wrong")}); got != tt.want {
				t.Errorf("found %+v, want %+v: %v", got, tt.want, r.Checks)
			}
			verdict := "ok"
			if tt.want != (found{}) {
				verdict = "FAILED"
			}
			want := fmt.Sprintf(" lost=%d ghosts=%d double_effects=%d wrong=%d verdict=%s", tt.want.lost, tt.want.ghosts, tt.want.doubles, tt.want.wrong, verdict)
			if !strings.HasSuffix(r.summary(), want) || (r.verdict() == nil) != (verdict == "ok") {
				t.Errorf("last line is %q, verdict %v", r.summary(), r.verdict())
			}
		})
	}
}

// proveWith runs the proof after a statement that changes one thing.
func proveWith(t *testing.T, d *deployment, sql string) (checks []demo.Check) {
	t.Helper()
	err := demo.Session(t.Context(), d.db.URL, func(conn *pgx.Conn) error {
		checks = demotest.Planted(t, conn, sql, prove)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

func TestRunThatMetNothingIsNoProof(t *testing.T) {
	if (&result{findings: findings{Applied: 1}, provider: newProvider("", nil)}).verdict() == nil {
		t.Error("verdict is nil")
	}
	if err := (&result{provider: newProvider("", plan(1, 50))}).verdict(); err != nil {
		t.Errorf("verdict of an interrupted run is %v", err)
	}
}

func TestPlanIsTheSameForASeed(t *testing.T) {
	one, two, other := plan(1, 200), plan(1, 200), plan(2, 200)
	if !reflect.DeepEqual(one, two) || reflect.DeepEqual(one, other) {
		t.Error("the plan does not follow from the seed")
	}
}

// The endpoint has two secrets. It keeps to all rules when a hostile sender calls it.
func TestEndpointConforms(t *testing.T) {
	d := opened(t, options{payments: 50, senders: 8, seed: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- d.inbox.Run(ctx) }()
	sign := func(s webhook.Scheme) webhooktest.Sign {
		return func(h http.Header, id string, at time.Time, body []byte) error {
			return webhook.Sign(s, h, webhook.Message{ID: id, Time: at}, body)
		}
	}
	webhooktest.Test(t, webhooktest.Endpoint{
		URL: d.provider.url, Sign: sign(d.signers[2]), SignOld: sign(d.signers[0]),
		Body: func(string) string { return `{"type":"payment.captured","data":{"payment":"pay_1","amount":1}}` },
		Effects: func() (n int, err error) {
			return n, d.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM movement").Scan(&n)
		},
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFlagsAreChecked(t *testing.T) {
	demotest.RefusesFlags(t, command,
		[]string{"--payments", "1"},
		[]string{"--senders", "0"},
		[]string{"--timeout", "0s"},
		[]string{"--payments", "many"},
		[]string{"more"},
	)
}
