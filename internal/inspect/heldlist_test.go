package inspect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

// heldIDs returns the ids of all events that match, page by page.
func (p *rig) heldIDs(f held.Filter, limit int) string {
	p.Helper()
	var all []string
	for after := ""; ; {
		page, err := p.alone().HeldEvents(p.Context(), f, after, limit)
		if err != nil {
			p.Fatal(err)
		}
		if limit > 0 && len(page.Events) > limit {
			p.Fatalf("a page has %d events, want %d at most", len(page.Events), limit)
		}
		for _, h := range page.Events {
			all = append(all, h.Handler+"/"+h.EventID)
		}
		if after = page.Next; after == "" {
			return strings.Join(all, " ")
		}
	}
}

func TestHeldEvents(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	hour := time.Now().Add(time.Hour)
	for _, h := range []string{"a", "b"} {
		p.hold(h, "later", "next_at, class, failures, key", `now() + interval '1 hour', 'timeout', '[{"text": "first"}, {"text": "last"}]', 'order-7'`)
		p.hold(h, "now", "next_at", "now() - interval '1 s'")
		p.hold(h, "runs", "next_at, claimed_by, chain, pos", "now() + interval '2 min', 'p', 'k', 1")
		p.hold(h, "behind2", "chain, pos", "'k', 3")
		p.hold(h, "behind1", "chain, pos", "'k', 2")
		p.hold(h, "dead1", "dead_at, class", "now() - interval '1 hour', 'error'")
		p.hold(h, "dead2", "dead_at, class", "now(), 'error'")
		p.hold(h, "lost", "next_at, claimed_by", "now() - interval '2 min', 'p'")
	}
	p.holdOutgoing(4, "next_at", "now() + interval '3 hours'")
	p.holdOutgoing(5, "next_at, claimed_by", "now() - interval '3 hours', 'relay'")
	all := func(h string) string {
		return strings.TrimSuffix(fmt.Sprintf("%[1]s/lost %[1]s/now %[1]s/runs %[1]s/later %[1]s/behind1 %[1]s/behind2 %[1]s/dead2 %[1]s/dead1 ", h), " ")
	}
	ids := func(f held.Filter) string { return p.heldIDs(f, 0) }
	outgoing := ids(held.Filter{Handler: inspect.Outgoing})
	out := strings.Fields(outgoing)
	if len(out) != 2 {
		t.Fatalf("of the relay: %s", outgoing)
	}
	tests := []struct {
		name   string
		filter held.Filter
		want   string
	}{
		{"all", held.Filter{}, all("a") + " " + all("b") + " " + outgoing},
		{"of a handler", held.Filter{Handler: "b"}, all("b")},
		{"of none", held.Filter{Handler: "aa"}, ""},
		{"retrying", held.Filter{States: []held.State{held.Retrying, held.Due}}, "a/now a/later b/now b/later"},
		{"running", held.Filter{States: []held.State{held.Running}}, "a/runs b/runs " + out[0]},
		{"abandoned", held.Filter{States: []held.State{held.Abandoned}}, "a/lost b/lost"},
		{"scheduled", held.Filter{States: []held.State{held.Scheduled}}, out[1]},
		{"waiting", held.Filter{States: []held.State{held.Waiting}}, "a/behind1 a/behind2 b/behind1 b/behind2"},
		{"dead", held.Filter{States: []held.State{held.Dead}, Handler: "a"}, "a/dead2 a/dead1"},
		{"key", held.Filter{Key: "order-7"}, "a/later b/later"},
		{"class", held.Filter{Class: "error"}, "a/dead2 a/dead1 b/dead2 b/dead1"},
		{"due until", held.Filter{DueUntil: hour.Add(-time.Minute), Handler: "a"}, "a/lost a/now a/runs"},
		{"due since", held.Filter{DueSince: hour.Add(-time.Minute)}, "a/later b/later " + out[1]},
	}
	for _, tt := range tests {
		for _, limit := range []int{0, 1, 2, 3} { // the pages are one list
			if got := p.heldIDs(tt.filter, limit); got != tt.want {
				t.Errorf("%s, by %d: %s\nwant %s", tt.name, limit, got, tt.want)
			}
		}
	}
	page, err := p.alone().HeldEvents(t.Context(), held.Filter{Handler: "a", Key: "order-7"}, "", 0)
	if err != nil || len(page.Events) != 1 {
		t.Fatalf("HeldEvents = %+v, %v", page, err)
	}
	if h := page.Events[0]; h.Class != "timeout" || h.Error != "last" || h.State != held.Retrying || h.Key != "order-7" || h.Failures == nil {
		t.Errorf("it is %+v", h)
	}
	ofKey, err := p.alone().HeldEvents(t.Context(), held.Filter{Key: "order-7"}, "", 1)
	if err != nil || ofKey.Next == "" {
		t.Fatalf("HeldEvents = %+v, %v; want a next page", ofKey, err)
	}
	for _, after := range []string{"x", ofKey.Next} {
		if page, err := p.alone().HeldEvents(t.Context(), held.Filter{}, after, 0); err == nil {
			t.Errorf("HeldEvents after %q = %+v, want an error", after, page)
		}
	}
	for _, f := range []held.Filter{{States: []held.State{held.Discarded}}, {DueSince: hour, DueUntil: hour}, {Type: "\xff"}} {
		if page, err := p.alone().HeldEvents(t.Context(), f, "", 0); err == nil {
			t.Errorf("HeldEvents(%+v) = %+v, want an error", f, page)
		}
	}
}

// distinct returns how many different words a text has.
func distinct(text string) int {
	words := strings.Fields(text)
	slices.Sort(words)
	return len(slices.Compact(words))
}

// If a page finds nothing in very many rows, it ends, and the next page continues the search.
func TestHeldEventsStopsToSearch(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.exec(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'a', n::text FROM generate_series(1, 60001) n`)
	p.exec(`INSERT INTO postroom.held (handler, dedupe_key, next_at, logged_at, source, event_id, type, subject, key, content_type, data)
		SELECT 'a', n::text, now() + n * interval '1 s', now(), '/shop', n::text, CASE WHEN n = 60001 THEN 'b.c' ELSE 'a.b' END, 'a.b',
		       CASE WHEN n = 60001 THEN 'one' WHEN n % 50 = 0 THEN 'some' WHEN n % 10 = 0 THEN 'many' END, 'text/plain', '' FROM generate_series(1, 60001) n`)
	first, err := p.alone().HeldEvents(t.Context(), held.Filter{Type: "b.c"}, "", 0)
	if err != nil || len(first.Events) != 0 || first.Next == "" {
		t.Fatalf("the first page = %+v, %v; want none, and a next one", first, err)
	}
	second, err := p.alone().HeldEvents(t.Context(), held.Filter{Type: "b.c"}, first.Next, 0)
	if err != nil || len(second.Events) != 1 || second.Next != "" {
		t.Fatalf("the second page = %+v, %v; want the event", second, err)
	}
	if got := len(strings.Fields(p.heldIDs(held.Filter{}, 1000))); got != 60001 {
		t.Errorf("all pages have %d events, want 60001", got)
	}
	// A key is looked up in an index, and its many events are listed page by page.
	page, err := p.alone().HeldEvents(t.Context(), held.Filter{Key: "one"}, "", 0)
	if err != nil || len(page.Events) != 1 || page.Next != "" {
		t.Errorf("the events of a key = %+v, %v; want one, and no next page", page, err)
	}
	page, err = p.alone().HeldEvents(t.Context(), held.Filter{Key: "some", Type: "b.c"}, "", 0)
	if err != nil || len(page.Events) != 0 || page.Next != "" {
		t.Errorf("those of another type = %+v, %v; want none, and no next page", page, err)
	}
	for key, want := range map[string]int{"some": 1200, "many": 4800} {
		if got := distinct(p.heldIDs(held.Filter{Key: key}, 900)); got != want {
			t.Errorf("all pages of key %s have %d events, want %d", key, got, want)
		}
	}
	p.exec("UPDATE postroom.held SET key = 'many' WHERE key = 'some'")
	if got := distinct(p.heldIDs(held.Filter{Key: "many"}, 900)); got != 6000 {
		t.Errorf("all pages of a key with many events have %d, want 6000", got)
	}
}

// A filter may name a value that the last row of a page does not have. That row does not match, and
// the page has a next one.
func TestHeldEventsWithoutAValueDoNotMatch(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.exec(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT h, n::text FROM unnest('{due,dead,waiting}'::text[]) h, generate_series(1, 6000) n`)
	p.exec(`INSERT INTO postroom.held (handler, dedupe_key, next_at, dead_at, chain, pos, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT h, n::text, CASE WHEN h = 'due' THEN now() + n * interval '1 s' END, CASE WHEN h = 'dead' THEN now() END,
		       CASE WHEN h = 'waiting' THEN 'k' END, CASE WHEN h = 'waiting' THEN n END, CASE WHEN h = 'dead' THEN 'x' END,
		       now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', ''
		FROM unnest('{due,dead,waiting}'::text[]) h, generate_series(1, 6000) n`)
	for name, f := range map[string]held.Filter{
		"due":     {Handler: "due", Class: "timeout"},
		"dead":    {Handler: "dead", DueUntil: time.Now().Add(24 * time.Hour)},
		"waiting": {Handler: "waiting", Class: "timeout"},
	} {
		if page, err := p.alone().HeldEvents(t.Context(), f, "", 0); err != nil || len(page.Events) != 0 {
			t.Errorf("%s: %+v, %v; want no events", name, page, err)
		}
	}
}
