package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/examples/internal/demotest"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/verdict"
)

func TestMain(m *testing.M) { devtest.Main(m) }

var lastLine = regexp.MustCompile(`^demo: orders=(\d+) rolled_back=([1-9]\d*) published=(\d+) charged=(\d+) counted=(\d+)` +
	` duplicates_suppressed=([1-9]\d*) lost=0 ghosts=0 double_effects=0$`)

func TestQuickstart(t *testing.T) {
	demotest.UseSharedServer(t)
	lines, err := demotest.Execute(t, t.Context(), command(), "--orders", "200", "--clients", "8")
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(lines, "\n"))
	}
	got := lastLine.FindStringSubmatch(lines[len(lines)-1])
	if got == nil {
		t.Fatalf("last line is %q", lines[len(lines)-1])
	}
	got[2] = "some" // the seed decides how many are rolled back
	if want := []string{"200", "some", "400", "200", "200", "20"}; !reflect.DeepEqual(got[1:], want) {
		t.Errorf("last line is %q, want %q", got[1:], want)
	}
	text := strings.Join(lines, "\n")
	if n := strings.Count(text, "  ok  "); n != 15 || strings.Contains(text, "FAILED") {
		t.Errorf("%d checks are ok, want 15:\n%s", n, text)
	}
	if !strings.Contains(text, "What limits the orders/s: ") {
		t.Errorf("the table does not say what limits the orders/s:\n%s", text)
	}
	if left := demotest.Databases(t, "postroom_demo_"); len(left) != 0 {
		t.Errorf("databases %v are left", left)
	}
}

func TestJSON(t *testing.T) {
	demotest.UseSharedServer(t)
	lines, err := demotest.Execute(t, t.Context(), command(), "--orders", "50", "--seed", "7", "--json")
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || !lastLine.MatchString(lines[1]) {
		t.Fatalf("printed %d lines, want 2:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	var r result
	if err := json.Unmarshal([]byte(lines[0]), &r); err != nil {
		t.Fatal(err)
	}
	if r.summary() != lines[1] || r.Seed != 7 || len(r.Checks) != 15 || r.P50 <= 0 || r.P99 < r.P50 {
		t.Errorf("JSON is %s", lines[0])
	}
}

func TestInterruptedRunIsBroughtToItsEnd(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	servers, d := opened(t, options{orders: 100_000, clients: 4, seed: 1, timeout: devtest.Patience(t, time.Minute)})
	played := make(chan error, 1)
	go func() { played <- d.play(ctx) }()
	devtest.Eventually(t, time.Minute, "100 orders", func() bool { return d.shop.placed.committed.Load() >= 100 })
	interrupt()
	if err := <-played; err != nil {
		t.Fatal(err)
	}
	r, err := d.judge(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(); err != nil || r.Orders < 100 || r.Orders >= 100_000 {
		t.Errorf("%s: %v", r.summary(), err)
	}
	if err := servers.Close(); err != nil {
		t.Error(err)
	}
}

func TestRunThatTakesTooLongSaysWhatIsMissing(t *testing.T) {
	_, d := opened(t, options{orders: 100_000, clients: 4, seed: 1, timeout: time.Second})
	running := d.play(t.Context())
	if running == nil || !strings.Contains(running.Error(), "not complete after 1s") {
		t.Errorf("error is %v", running)
	}
	r, err := d.judge(running)
	if err != nil {
		t.Fatal(err)
	}
	if !verdict.IsUndecided(errors.Join(running, r.verdict())) || r.Lost != 0 || !strings.HasSuffix(r.summary(), "verdict=undecided") {
		t.Errorf("%s: %v, %v", r.summary(), running, r.verdict())
	}
}

func TestFailingClientEndsTheRun(t *testing.T) {
	_, d := opened(t, options{orders: 100, clients: 4, seed: 1, timeout: devtest.Patience(t, time.Minute)})
	if _, err := d.Pool.Exec(t.Context(), "ALTER TABLE shop_order ADD CHECK (id <> 'order-0000050')"); err != nil {
		t.Fatal(err)
	}
	err := d.play(t.Context())
	if err == nil || !strings.Contains(err.Error(), "place order-0000050: insert order") {
		t.Errorf("error is %v", err)
	}
}

// opened returns a deployment that is ready to play.
func opened(t *testing.T, opt options) (*devstack.Stack, *deployment) {
	t.Helper()
	servers := demotest.Servers(t)
	d, err := open(t.Context(), servers, opt, demo.Log(io.Discard, slog.LevelWarn), demo.NewStory(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return servers, d
}

// A proof has to find violations. The test plants each violation in a transaction that is
// rolled back.
func TestProofFindsPlantedViolations(t *testing.T) {
	_, d := opened(t, options{orders: 200, clients: 8, seed: 1, timeout: devtest.Patience(t, time.Minute)})
	if err := d.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.gather(t.Context()); err != nil {
		t.Fatal(err)
	}
	const (
		order      = "(SELECT min(id) FROM shop_order)"
		rolledBack = "(SELECT min(order_id) FROM rolled_back)"
		writeEvent = "INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, data) VALUES (decode(repeat('00', 16), 'hex'), '/x', 'x', "
	)
	tests := []struct {
		name, sql             string
		lost, ghosts, doubles int64
	}{
		{"nothing", "SELECT", 0, 0, 0},
		{"second charge", "INSERT INTO charge (order_id, amount) SELECT id, amount FROM shop_order WHERE id = " + order, 0, 0, 1},
		{"charge gone", "DELETE FROM charge WHERE order_id = " + order, 1, 1, 0},
		{"charge of another amount", "UPDATE charge SET amount = amount + 1 WHERE order_id = " + order, 1, 0, 0},
		{"charge for a rolled-back order", "INSERT INTO charge (order_id, amount) VALUES (" + rolledBack + ", 1)", 0, 1, 0},
		{"order counted twice", "UPDATE customer_total SET orders = orders + 1, amount = amount + 100 WHERE customer = (SELECT min(customer) FROM shop_order)", 0, 0, 1},
		{"order not counted", "UPDATE customer_total SET orders = orders - 1, amount = amount - 100 WHERE customer = (SELECT min(customer) FROM shop_order)", 1, 0, 0},
		{"total gone", "DELETE FROM customer_total WHERE customer = (SELECT customer FROM shop_order GROUP BY 1 HAVING count(*) = 1 LIMIT 1)", 1, 0, 0},
		{"rolled-back order counted", "INSERT INTO customer_total SELECT customer, 1, 1 FROM rolled_back WHERE order_id = " + rolledBack, 0, 1, 0},
		{"rolled-back order in the log", writeEvent + "'order.placed', 'order.placed', " + rolledBack + ", '')", 0, 1, 0},
		{"rolled-back order in the stream", "INSERT INTO stream_message VALUES (0, 'x', 'order.placed', " + rolledBack + ", false)", 0, 2, 0},
		{"event not in the stream", "DELETE FROM stream_message WHERE type = 'order.placed' AND key = " + order, 1, 0, 0},
		{"charge not announced", "DELETE FROM stream_message WHERE type = 'order.charged' AND key = " + order, 1, 0, 0},
		{"charge announced by two events", writeEvent + "'order.charged', 'order.charged', " + order + ", '')", 0, 0, 1},
		{"charge announced and not made", writeEvent + "'order.charged', 'order.charged', 'order-none', '')", 0, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checks := demotest.Planted(t, d.Pool, tt.sql, d.prove)
			r := d.result(demo.Proof{Checks: checks}, findings{}, counts{charge: deliveryCounts{suppressed: 1}})
			if r.Lost != tt.lost || r.Ghosts != tt.ghosts || r.Doubles != tt.doubles {
				t.Errorf("found %d lost, %d ghosts, %d doubles, want %d, %d, %d: %v",
					r.Lost, r.Ghosts, r.Doubles, tt.lost, tt.ghosts, tt.doubles, checks)
			}
			if clean := tt.lost+tt.ghosts+tt.doubles == 0; (r.verdict() == nil) != clean {
				t.Errorf("verdict is %v", r.verdict())
			}
			want := fmt.Sprintf(" lost=%d ghosts=%d double_effects=%d", tt.lost, tt.ghosts, tt.doubles)
			if !strings.HasSuffix(r.summary(), want) {
				t.Errorf("last line is %q", r.summary())
			}
		})
	}
	t.Run("order gone", func(t *testing.T) {
		checks := demotest.Planted(t, d.Pool, "DELETE FROM shop_order WHERE id = "+order, d.prove)
		if p := (demo.Proof{Checks: checks}); p.Violations("lost") != 1 || p.Violations("ghost") == 0 {
			t.Errorf("found %v", checks)
		}
	})
	t.Run("rolled-back order there", func(t *testing.T) {
		checks := demotest.Planted(t, d.Pool, "INSERT INTO shop_order SELECT order_id, customer, 1, false FROM rolled_back WHERE order_id = "+rolledBack, d.prove)
		if p := (demo.Proof{Checks: checks}); p.Violations("ghost") == 0 {
			t.Errorf("found %v", checks)
		}
	})
}

func TestRunWithoutDuplicatesIsNoProof(t *testing.T) {
	if (&result{orders: orders{Orders: 1}}).verdict() == nil {
		t.Error("verdict is nil")
	}
}

func TestPlanIsTheSameForASeed(t *testing.T) {
	one, two, other := plan(1, 1000), plan(1, 1000), plan(2, 1000)
	if !reflect.DeepEqual(one, two) || reflect.DeepEqual(one, other) {
		t.Error("the plan does not follow from the seed")
	}
	committed, held := 0, 0
	for _, r := range one {
		if !r.declined {
			committed++
		}
		if r.hold > 0 {
			held++
		}
	}
	if rolledBack := len(one) - committed; committed != 1000 || rolledBack < 50 || rolledBack > 200 || held < 5 {
		t.Errorf("%d to commit, %d to roll back, %d to hold open", committed, rolledBack, held)
	}
}

// The last lines of the table say what limits the run.
func TestWhatLimitsTheRun(t *testing.T) {
	for _, tt := range []struct {
		seen waits
		says string
	}{
		{waits{Disk: 60, Running: 30, Program: 9, Other: 1, Busy: 30, Ticks: 100}, "orders/s: the disk"},
		{waits{Disk: 60, Running: 30, Program: 9, Other: 1, Busy: 95, Ticks: 100}, "orders/s: the processors"},
		{waits{Disk: 60, Running: 30, Program: 9, Other: 1, Busy: 95, Ticks: 100}, "60 % waited for the disk, 9 % for this program,\n  1 % for something else, and 30 % ran"},
		{waits{Disk: 10, Running: 60}, "orders/s: PostgreSQL"},
		{waits{Program: 60, Running: 30}, "orders/s: the clients"},
		{waits{}, "orders/s: not known"},
	} {
		if got := tt.seen.limit(); !strings.Contains(got, tt.says) {
			t.Errorf("%+v: %q, want %q", tt.seen, got, tt.says)
		}
	}
}

func TestFlagsAreChecked(t *testing.T) {
	demotest.RefusesFlags(t, command,
		[]string{"--orders", "0"},
		[]string{"--clients", "0"},
		[]string{"--timeout", "0s"},
		[]string{"--orders", "many"},
		[]string{"more"},
	)
}
