package main

import (
	"context"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/examples/internal/demotest"
	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

var lastLine = regexp.MustCompile(`\nreplay: orders=300 died=102 replayed=101 edited=2 discarded=1 violations=0 verdict=ok\n$`)

func TestReplay(t *testing.T) {
	demotest.UseSharedServer(t)
	lines, err := demotest.Execute(t, t.Context(), command(), "--orders", "300")
	text := strings.Join(lines, "\n") + "\n"
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !lastLine.MatchString(text) {
		t.Errorf("it ends otherwise:\n%s", text)
	}
	if n := strings.Count(text, " ok\n"); n != 8 {
		t.Errorf("%d checks are ok, want 8:\n%s", n, text)
	}
}

// The proof finds the violations for which it is there.
func TestProofFindsViolations(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, time.Minute))
	defer cancel()
	s, err := open(ctx, demotest.Servers(t), options{orders: 100, seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	night := &night{shop: s, out: io.Discard}
	if err := s.during(ctx, night.pass); err != nil {
		t.Fatal(err)
	}
	plants := map[int]string{
		1: "DELETE FROM charge WHERE id = (SELECT min(id) FROM charge)",
		2: "INSERT INTO charge (order_id, cents) SELECT key, 1 FROM postroom.archive",
		3: "DELETE FROM postroom.archive",
		4: "INSERT INTO charge (order_id, cents) VALUES ('ghost', 1)",
		5: "INSERT INTO thanks (order_id) SELECT min(id) FROM shop_order",
		6: `INSERT INTO postroom.held (handler, pos, next_at, logged_at, source, event_id, type, subject, content_type, data)
			VALUES ('outbox', 1, now(), now(), '/s', 'e', 't', 't', 'c', '')`,
		7: "INSERT INTO postroom.audit (actor, action, events, event_id) VALUES ('ann', 'edit', 1, 'e')", // an edit without the old content
		8: "DELETE FROM postroom.audit WHERE action = 'replay'",
	}
	for n, sql := range plants {
		checks := demotest.Planted(t, s.Pool, sql, func(ctx context.Context, db demo.Querier) ([]demo.Check, error) {
			return prove(ctx, db, night.discarded)
		})
		if checks[n-1].Violations == 0 {
			t.Errorf("planted and not found: %s", checks[n-1].Name)
		}
	}
	checks, err := prove(ctx, s.Pool, night.discarded)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if c.Violations != 0 {
			t.Errorf("found and not planted: %s: %d", c.Name, c.Violations)
		}
	}
}
