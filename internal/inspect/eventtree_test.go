package inspect_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/inspect"
)

// put adds an event to the log that was written the given number of minutes ago.
func (p *rig) put(ago int, source, id, cause, correlation string) {
	p.Helper()
	p.exec(`INSERT INTO postroom.outbox (source, event_id, digest, type, subject, causation_id, correlation_id, data, checked, created_at)
		VALUES ($1, $2, '', 'a.b', 'a.b', nullif($3, ''), nullif($4, ''), 'c4nary', true, date_trunc('minute', now()) - $5 * interval '1 minute')`, source, id, cause, correlation, ago)
}

// withProcess returns the databases of two services. The event o1 of /shop caused p1 of /billing.
// p1 caused s1 of /shop, and s1 caused m1. x1 belongs to a third service, and is held. n1 has the
// same correlation id, and no cause.
func withProcess(t *testing.T) (shop, billing *rig) {
	t.Helper()
	shop, billing = newRig(t), newRig(t)
	shop.put(90, "/shop", "o1", "", "")
	for _, p := range []*rig{shop, billing} {
		p.put(85, "/shop", "other", "", "")
		p.put(83, "/shop", "others", "other", "other")
	}
	billing.put(80, "/billing", "p1", "o1", "o1")
	shop.put(70, "/shop", "s1", "p1", "o1")
	shop.put(60, "/shop", "m1", "s1", "o1")
	billing.put(50, "/billing", "n1", "", "o1")
	billing.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('billing.charge', '/shop o1')")
	shop.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('shop.ship', '/billing p1'), ('shop.mail', '/billing p1'), ('shop.mail', '/stock x1')")
	shop.exec(`INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, correlation_id, causation_id, content_type, data)
		SELECT 'shop.mail', source || ' ' || id, now(), 'error', now() - interval '40 minutes', source, id, 'a.b', 'a.b', 'o1', 'o1', 'text/plain', 'c4nary'
		FROM (VALUES ('/billing', 'p1'), ('/stock', 'x1')) v (source, id)`)
	return shop, billing
}

func (p *rig) tree(q inspect.TreeQuery, others ...*rig) *inspect.EventTree {
	p.Helper()
	of := []*inspect.Inspector{p.alone()}
	for _, o := range others {
		of = append(of, o.alone())
	}
	tree, err := inspect.Tree(p.Context(), q, of...)
	if err != nil {
		p.Fatal(err)
	}
	return tree
}

// drawn returns a tree as a text: a(b c(d)). The event that was asked for has a *, and a missing
// event has a ?.
func drawn(events []*inspect.TreeEvent) string {
	var all []string
	for _, e := range events {
		text := e.EventID
		if e.Missing {
			text += "?"
		}
		if e.Asked {
			text += "*"
		}
		if len(e.Effects) > 0 {
			text += "(" + drawn(e.Effects) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func countTree(events []*inspect.TreeEvent) (n int) {
	for _, e := range events {
		n += 1 + countTree(e.Effects)
	}
	return n
}

func TestTree(t *testing.T) {
	t.Parallel()
	shop, billing := withProcess(t)
	whole := "o1(p1(s1(m1)) x1) n1"
	for _, id := range []string{"o1", "p1", "s1", "m1", "x1", "n1"} { // the tree is the same from each of its events
		tree := shop.tree(inspect.TreeQuery{ID: id}, billing)
		if got, want := drawn(tree.Roots), strings.Replace(whole, id, id+"*", 1); got != want || tree.Events != 6 || len(tree.Notes) != 0 {
			t.Errorf("of %s: %s, %d events, notes %q; want %s", id, got, tree.Events, tree.Notes, want)
		}
	}
	states := func(e *inspect.TreeEvent) string {
		all := []string{string(e.Published), fmt.Sprint(e.Databases)}
		for _, h := range e.Handlers {
			all = append(all, fmt.Sprintf("%s %s %d", h.Handler, h.State, h.Database))
		}
		return strings.Join(all, ", ")
	}
	root := billing.tree(inspect.TreeQuery{ID: "o1"}, shop).Roots[0]
	if got := states(root); got != "unpublished, [1], billing.charge done 0" {
		t.Errorf("o1 is %s", got)
	}
	paid := root.Effects[slices.IndexFunc(root.Effects, func(e *inspect.TreeEvent) bool { return e.EventID == "p1" })]
	if got := states(paid); got != "unpublished, [0 1], shop.mail dead 1, shop.ship done 1" {
		t.Errorf("p1 is %s", got)
	}
	// With only one database, events of the other one are missing.
	if got := drawn(shop.tree(inspect.TreeQuery{ID: "s1"}).Roots); got != "o1(p1(s1*(m1)) x1)" { // held has p1
		t.Errorf("in the shop's: %s", got)
	}
	if got := drawn(billing.tree(inspect.TreeQuery{ID: "o1"}).Roots); got != "o1?*(p1) n1" {
		t.Errorf("in billing's: %s", got)
	}
	// Retention removes the first event, but not the events that it caused.
	shop.exec("DELETE FROM postroom.outbox WHERE event_id = 'o1'")
	for id, want := range map[string]string{"o1": "o1?*(p1(s1(m1)) x1) n1", "m1": "o1?(p1(s1(m1*)) x1) n1"} {
		if got := drawn(shop.tree(inspect.TreeQuery{ID: id}, billing).Roots); got != want {
			t.Errorf("of %s, without o1: %s, want %s", id, got, want)
		}
	}
	_, err := inspect.Tree(t.Context(), inspect.TreeQuery{ID: "none"}, shop.alone(), billing.alone())
	if !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	if _, err := inspect.Tree(t.Context(), inspect.TreeQuery{ID: "o1", Source: "/other"}, billing.alone()); err != nil {
		t.Errorf("of another source, with effects: %v", err)
	}
	billing.exec("ALTER TABLE postroom.archive RENAME TO gone")
	if _, err := inspect.Tree(t.Context(), inspect.TreeQuery{ID: "o1"}, shop.alone(), billing.alone()); err == nil || !strings.Contains(err.Error(), "database 2") {
		t.Errorf("in a broken database: %v", err)
	}
}

// Some producers set their own correlation id, and no cause.
func TestTreeOfACorrelationID(t *testing.T) {
	t.Parallel()
	p, q := newRig(t), newRig(t)
	p.put(9, "/a", "1", "", "proc-9")
	q.put(8, "/b", "1", "", "proc-9")
	q.put(7, "/b", "2", "1", "proc-9") // events of both sources have the id of its cause
	p.put(6, "/a", "3", "", "proc-8")
	tree := p.tree(inspect.TreeQuery{ID: "proc-9"}, q)
	if tree.Events != 3 || countTree(tree.Roots) != 3 || strings.Contains(drawn(tree.Roots), "3") {
		t.Errorf("of a correlation id: %s", drawn(tree.Roots))
	}
	if tree := p.tree(inspect.TreeQuery{ID: "2"}, q); tree.Events != 3 {
		t.Errorf("of one of its events: %s", drawn(tree.Roots))
	}
	if tree := p.tree(inspect.TreeQuery{ID: "1", Source: "/a"}, q); tree.Events != 3 || strings.Count(drawn(tree.Roots), "*") != 1 {
		t.Errorf("of one source: %s", drawn(tree.Roots))
	}
	// These events cause each other, which can happen only by mistake.
	p.put(5, "/a", "c1", "c2", "c")
	p.put(4, "/a", "c2", "c1", "c")
	p.put(3, "/a", "c3", "c3", "")
	if got := drawn(p.tree(inspect.TreeQuery{ID: "c1"}).Roots); got != "c2(c1*)" && got != "c1*(c2)" {
		t.Errorf("of a circle: %s", got)
	}
	if got := drawn(p.tree(inspect.TreeQuery{ID: "c3"}).Roots); got != "c3*" {
		t.Errorf("of its own cause: %s", got)
	}
}

// A tree stops at its limits, and says so.
func TestTreeStops(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.exec(`INSERT INTO postroom.outbox (source, event_id, digest, type, subject, causation_id, data, checked, created_at)
		SELECT '/shop', 'd' || n, '', 'a.b', 'a.b', CASE WHEN n > 1 THEN 'd' || n - 1 END, '', true, now() - (100 - n) * interval '1 s' FROM generate_series(1, 40) n`)
	p.exec(`INSERT INTO postroom.outbox (source, event_id, digest, type, subject, causation_id, correlation_id, data, checked)
		SELECT '/shop', 'w' || n, '', 'a.b', 'a.b', CASE WHEN n > 1 THEN 'w1' END, 'w', '', true FROM generate_series(1, 1500) n`)

	deep := p.tree(inspect.TreeQuery{ID: "d20", Depth: 3})
	if got := drawn(deep.Roots); got != "d16?(d17(d18(d19(d20*(d21(d22(d23)))))))" || deep.Events != 7 || len(deep.Notes) != 2 ||
		!strings.Contains(strings.Join(deep.Notes, " "), "more causes: the limit is 3 levels") || !strings.Contains(strings.Join(deep.Notes, " "), "more effects: the limit is 3 levels") {
		t.Errorf("deep: %s, %d events, %q", got, deep.Events, deep.Notes)
	}
	if all := p.tree(inspect.TreeQuery{ID: "d20", Depth: 30}); all.Events != 40 || len(all.Notes) != 0 {
		t.Errorf("deep enough: %d events, %q", all.Events, all.Notes)
	}
	for limit, want := range map[int]int{0: 200, 50: 50, 5000: 1000} {
		wide := p.tree(inspect.TreeQuery{ID: "w1", Limit: limit})
		if wide.Events != want || countTree(wide.Roots) != want || !slices.Contains(wide.Notes, fmt.Sprintf("there are more events: the limit is %d", want)) {
			t.Errorf("wide, %d at most: %d events, %q", limit, wide.Events, wide.Notes)
		}
	}
}

// The search for a correlation id reads a limited number of rows of the log.
func TestTreeStopsToSearch(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.exec(`INSERT INTO postroom.outbox (source, event_id, digest, type, subject, correlation_id, data, checked, created_at)
		SELECT '/shop', n, '', 'a.b', 'a.b', CASE WHEN n IN (100, 150000, 240000) THEN 'c' END, '', true, now() - (300000 - n) * interval '1 s' FROM generate_series(1, 250000) n`)
	tree := p.tree(inspect.TreeQuery{ID: "100"})
	if got := drawn(tree.Roots); got != "100* 150000" || len(tree.Notes) != 1 || !strings.Contains(tree.Notes[0], "for 200000 rows: later events without a known cause are missing") {
		t.Errorf("%s, notes %q", got, tree.Notes)
	}
	p.exec("UPDATE postroom.outbox SET causation_id = '100' WHERE event_id = '240000'") // a cause is looked up
	if got := drawn(p.tree(inspect.TreeQuery{ID: "100"}).Roots); got != "100*(240000) 150000" {
		t.Errorf("with its cause: %s", got)
	}
}
