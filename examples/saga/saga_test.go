package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/examples/internal/demotest"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/verdict"
)

// programVariable makes the test binary run as the program itself.
const programVariable = "POSTROOM_SAGA_TEST_PROGRAM"

// The example also starts the test binary as services.
func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	if served, err := childproc.Serve(roles); served {
		demo.Exit("saga", err)
		return
	}
	devtest.Main(m)
}

// few are the arguments of a short run.
var few = []string{"--orders", "150", "--rate", "150", "--kills", "4", "--patience", "3s"}

var lastLine = regexp.MustCompile(`^saga: orders=150 confirmed=[1-9]\d* cancelled=[1-9]\d* declined=[1-9]\d* out_of_stock=[1-9]\d* out_of_time=[1-9]\d*` +
	` undone=[1-9]\d* stuck=0 killed=4 events=[1-9]\d* redelivered=\d+ charged_cents=[1-9]\d* refunded_cents=[1-9]\d* lost=0 ghosts=0 double_effects=0 wrong=0 verdict=ok$`)

func TestSaga(t *testing.T) {
	demotest.UseSharedServer(t)
	lines, err := demotest.Execute(t, t.Context(), command(), few...)
	text := strings.Join(lines, "\n")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !lastLine.MatchString(lines[len(lines)-1]) {
		t.Fatalf("last line is %q", lines[len(lines)-1])
	}
	if n := strings.Count(text, "  ok  "); n != 22 || strings.Contains(text, "FAILED") {
		t.Errorf("%d checks are ok, want 22:\n%s", n, text)
	}
	for _, part := range []string{"which is undone", "stock.short", "payment.refunded"} {
		if !strings.Contains(text, part) {
			t.Errorf("the story does not say %q:\n%s", part, text)
		}
	}
	if left := demotest.Databases(t, "postroom_saga_"); len(left) != 0 {
		t.Errorf("databases %v are left", left)
	}
}

// opened returns a deployment that is ready to play.
func opened(t *testing.T, opt options) *deployment {
	t.Helper()
	d, err := open(t.Context(), demotest.Servers(t), opt, io.Discard, demo.NewStory(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestInterruptedRunIsBroughtToItsEnd(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	d := opened(t, options{orders: 5000, rate: 100, kills: 500, seed: 1, patience: time.Second, timeout: devtest.Patience(t, time.Minute)})
	played := make(chan error, 1)
	go func() { played <- d.play(ctx) }()
	devtest.Eventually(t, time.Minute, "30 orders, and a kill", func() bool {
		now, err := d.books.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return now.Placed >= 30
	})
	interrupt()
	r, err := d.judge(<-played, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(); err != nil || r.Orders < 30 || r.Orders >= 5000 || r.killed == 0 {
		t.Errorf("%s: %v", r.summary(), err)
	}
}

func TestRunThatTakesTooLongIsUndecided(t *testing.T) {
	d := opened(t, options{orders: 5000, rate: 100, seed: 1, patience: time.Second, timeout: 2 * time.Second})
	running := d.play(t.Context())
	if running == nil || !strings.Contains(running.Error(), "not complete after 2s") {
		t.Errorf("error is %v", running)
	}
	r, err := d.judge(running, false)
	if err != nil {
		t.Fatal(err)
	}
	if !verdict.IsUndecided(r.verdict()) || !strings.Contains(r.summary(), " lost=0 ") || !strings.HasSuffix(r.summary(), "verdict=undecided") {
		t.Errorf("last line is %q", r.summary())
	}
}

// If a service cannot run, it ends the run and the other services, and says why.
func TestServiceThatFailsEndsTheRun(t *testing.T) {
	d := opened(t, options{orders: 5000, rate: 100, seed: 1, patience: time.Second, timeout: devtest.Patience(t, time.Minute)})
	js := devtest.JetStream(t, d.nc)
	if err := js.DeleteStream(t.Context(), "PAYMENT"); err != nil {
		t.Fatal(err)
	}
	err := d.play(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ended by itself") || !strings.Contains(err.Error(), "stream PAYMENT of handler") {
		t.Errorf("error is %v", err)
	}
	if n := len(d.staff.children); n != 0 {
		t.Errorf("%d services are left", n)
	}
}

// A proof has to find violations. The test plants each violation in a service's database, in a
// transaction that is rolled back when the auditor has read it.
func TestProofFindsPlantedViolations(t *testing.T) {
	opt := options{orders: 150, rate: 300, kills: 0, seed: 1, patience: 4 * time.Second, timeout: devtest.Patience(t, time.Minute)}
	d := opened(t, opt)
	whole, err := d.judge(d.play(t.Context()), false)
	if err == nil && verdict.IsUndecided(whole.verdict()) { // all orders ran out of time; the program tries again, too
		opt.patience *= 3
		d = opened(t, opt)
		whole, err = d.judge(d.play(t.Context()), false)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.verdict(); err != nil {
		t.Fatal(err)
	}
	var good, short string // a confirmed order, and one that was refunded
	err = d.books[order].Pool.QueryRow(t.Context(),
		"SELECT min(id) FILTER (WHERE state = 'confirmed'), min(id) FILTER (WHERE reason = 'out of stock') FROM orders").Scan(&good, &short)
	if err != nil {
		t.Fatal(err)
	}
	const (
		outbox = "INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, correlation_id, causation_id, data) " +
			"SELECT decode(repeat('00', 16), 'hex'), source, 'planted', $$, $$, key, correlation_id, causation_id, '' FROM postroom.outbox WHERE key = '?' AND type = "
		held = "INSERT INTO postroom.held (handler, dedupe_key, next_at, dead_at, class, logged_at, source, event_id, type, subject, content_type, data) " +
			"SELECT handler, dedupe_key, $$, now(), '/x', 'x', 'x.y', 'x.y', 'application/json', '' FROM postroom.inbox LIMIT 1"
	)
	fill := func(sql, order, value string) string {
		return strings.ReplaceAll(strings.ReplaceAll(sql, "?", order), "$$", value)
	}
	for _, tt := range []struct {
		name, service, sql string
		want               []int // the checks that find it
	}{
		{"nothing", order, "SELECT 1", nil},
		{"order gone", order, fill("DELETE FROM orders WHERE id = '?'", good, ""), []int{1, 7, 8, 9, 12, 13, 21}},
		{"order pending", order, fill("UPDATE orders SET state = 'pending', reason = '' WHERE id = '?'", short, ""), []int{2, 4, 21}},
		{"announced as both", order, fill(outbox+"'order.confirmed'", good, "'order.cancelled'"), []int{3, 15}},
		{"announced twice", order, fill(outbox+"'order.confirmed'", good, "'order.confirmed'"), []int{3, 15}},
		{"not announced", order, fill("DELETE FROM postroom.outbox WHERE key = '?' AND type = 'order.confirmed'", good, ""), []int{4, 16}},
		{"confirmed and cancelled", order, fill("UPDATE orders SET state = 'cancelled' WHERE id = '?'", good, ""), []int{4, 6, 8, 9, 11, 13, 21}},
		{"charged twice", payment, fill("INSERT INTO movement (order_id, customer, kind, amount) SELECT order_id, customer, kind, amount FROM movement WHERE order_id = '?'", good, ""), []int{5, 6, 9}},
		{"refunded twice", payment, fill("INSERT INTO movement (order_id, customer, kind, amount) SELECT order_id, customer, kind, amount FROM movement WHERE order_id = '?' AND kind = 'refund'", short, ""), []int{5, 6, 9}},
		{"not refunded", payment, fill("DELETE FROM movement WHERE order_id = '?' AND kind = 'refund'", short, ""), []int{6, 9}},
		{"charged for nothing", payment, "INSERT INTO movement (order_id, customer, kind, amount) VALUES ('none', 1, 'charge', 1)", []int{7, 9}},
		{"credit is less", payment, "UPDATE account SET credit = credit - 1 WHERE customer = 1", []int{8}},
		{"reserved twice", stock, fill("INSERT INTO movement (order_id, sku, quantity) SELECT order_id, sku, quantity FROM movement WHERE order_id = '?'", good, ""), []int{10, 11}},
		{"reserved for a cancelled order", stock, fill("INSERT INTO movement (order_id, sku, quantity) VALUES ('?', 'item-01', 1)", short, ""), []int{11}},
		{"other goods", stock, fill("UPDATE movement SET sku = 'other' WHERE order_id = '?'", good, ""), []int{11}},
		{"not reserved", stock, fill("DELETE FROM movement WHERE order_id = '?'", good, ""), []int{11}},
		{"reserved for nothing", stock, "INSERT INTO movement (order_id, sku, quantity) VALUES ('none', 'item-01', 1)", []int{12}},
		{"less in stock", stock, "UPDATE item SET available = available - 1 WHERE sku = 'item-01' AND available > 0 OR sku = (SELECT min(sku) FROM item WHERE available > 0)", []int{13}},
		{"was below none", stock, "UPDATE item SET lowest = -1 WHERE sku = 'item-01'", []int{14}},
		{"not published, not decided", payment, fill(outbox+"'payment.charged'", good, "'payment.charged'"), []int{15, 17}},
		{"published and not written", payment, fill("DELETE FROM postroom.outbox WHERE key = '?' AND type = 'payment.charged'", good, ""), []int{16, 18, 20}},
		{"not decided", stock, "DELETE FROM postroom.inbox WHERE ctid = (SELECT min(ctid) FROM postroom.inbox)", []int{17}},
		{"decided and not written", stock, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('stock', '/order none')", []int{18}},
		{"dead", stock, fill(held, "", "NULL, now(), 'error'"), []int{19}},
		{"owed", stock, fill(held, "", "now(), NULL, NULL"), []int{19}},
		{"without a cause", payment, fill("UPDATE postroom.outbox SET causation_id = NULL WHERE key = '?' AND type = 'payment.charged'", good, ""), []int{20}},
		{"saga gone", order, fill("DELETE FROM postroom.saga WHERE key = '?'", good, ""), []int{21}},
		{"saga undone", order, fill("UPDATE postroom.saga SET state = 'undone' WHERE key = '?'", good, ""), []int{21}},
		{"undone in another order", order, "UPDATE postroom.outbox SET created_at = '2000-01-01' WHERE type = 'payment.refund'", []int{22}},
		{"of another saga", payment, fill("UPDATE postroom.outbox SET correlation_id = 'other' WHERE key = '?' AND type = 'payment.charged'", good, ""), []int{20}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := *whole
			r.Checks = proveWith(t, d, tt.service, tt.sql)
			var got []int
			for _, c := range r.Checks {
				if c.Violations > 0 {
					got = append(got, c.N)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("checks %v found it, want %v: %v", got, tt.want, r.Checks)
			}
			verdict := "verdict=ok"
			if len(tt.want) > 0 {
				verdict = "verdict=FAILED"
			}
			if !strings.HasSuffix(r.summary(), verdict) || (r.verdict() == nil) != (len(tt.want) == 0) {
				t.Errorf("last line is %q, verdict %v", r.summary(), r.verdict())
			}
		})
	}
}

// proveWith gathers the evidence and runs the proof after a statement that changes one thing
// in a service's database.
func proveWith(t *testing.T, d *deployment, service, sql string) []demo.Check {
	t.Helper()
	return demotest.Planted(t, d.books[service].Pool, sql, func(ctx context.Context, changed demo.Querier) ([]demo.Check, error) {
		from := map[string]demo.Querier{order: d.books[order].Pool, payment: d.books[payment].Pool, stock: d.books[stock].Pool}
		from[service] = changed
		if err := d.books.gather(ctx, d.nc, from); err != nil {
			return nil, err
		}
		return prove(ctx, d.books[audit].Pool, int64(d.opt.orders))
	})
}

func TestRunThatMetNothingIsNoProof(t *testing.T) {
	if (&result{findings: findings{Confirmed: 1, Declined: 1, Short: 1}}).verdict() == nil {
		t.Error("verdict is nil although no order was out of time")
	}
	if (&result{findings: findings{Confirmed: 1, Declined: 1, Short: 1, Expired: 1}, kills: 1}).verdict() == nil {
		t.Error("verdict is nil although no process was killed")
	}
}

func TestPlanIsTheSameForASeed(t *testing.T) {
	one, two, other := plan(1, 200), plan(1, 200), plan(2, 200)
	if !reflect.DeepEqual(one, two) || reflect.DeepEqual(one, other) {
		t.Error("the plan does not follow from the seed")
	}
	refused, supplies := 0, 0
	for _, o := range one {
		if isRefused(o.Customer) {
			refused++
		}
		if o.SKU == supplied {
			supplies++
		}
	}
	if refused < 5 || refused > 50 || supplies != 8 {
		t.Errorf("%d payments will be declined, %d orders go to the supplier", refused, supplies)
	}
}

func TestFlagsAreChecked(t *testing.T) {
	demotest.RefusesFlags(t, command,
		[]string{"--orders", "1"},
		[]string{"--rate", "0"},
		[]string{"--kills", "-1"},
		[]string{"--patience", "1ms"},
		[]string{"--timeout", "0s"},
		[]string{"more"},
	)
}
