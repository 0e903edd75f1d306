package deadletter_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
)

// all returns every event that matches, page by page.
func (n *rig) all(f deadletter.Filter, limit int) []deadletter.Letter {
	n.Helper()
	var found []deadletter.Letter
	p := postroom.Page{Limit: limit}
	for {
		page, next, err := n.store.List(n.Context(), f, p)
		if err != nil {
			n.Fatal(err)
		}
		found = append(found, page...)
		if next == "" {
			return found
		}
		if len(page) != limit {
			n.Fatalf("a page in the middle has %d events, want %d", len(page), limit)
		}
		p.After = next
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(100, 3, 5)
	// This event is not dead, so no list has it.
	n.exec("UPDATE postroom.held SET dead_at = NULL, next_at = now() + interval '1 hour' WHERE event_id = 'e50'")
	n.exec("UPDATE postroom.held SET type = 'order.paid', class = '23505' WHERE event_id IN ('e7', 'e77')")
	n.exec(`UPDATE postroom.held SET failures = jsonb_build_array(jsonb_build_object('text', 'older'), jsonb_build_object('text', 'Odd "Quoted" text')) WHERE event_id = 'e8'`)
	n.exec(`UPDATE postroom.held SET data = '\x00ff' || convert_to('needle', 'UTF8') WHERE event_id = 'e9'`)
	// All died at the same time, so the id decides.
	n.exec("UPDATE postroom.held SET dead_at = '2026-01-01' WHERE event_id LIKE 'e3_'")
	var cause string
	if err := n.pool.QueryRow(t.Context(), "SELECT encode(cause, 'hex') FROM postroom.held WHERE event_id = 'e4'").Scan(&cause); err != nil {
		t.Fatal(err)
	}
	id := n.number("SELECT id FROM postroom.held WHERE event_id = 'e12'")
	now := time.Now()

	tests := []struct {
		name string
		f    deadletter.Filter
		want int
	}{
		{"all", deadletter.Filter{}, 99},
		{"by id", deadletter.Filter{IDs: []int64{id}}, 1},
		{"by no id", deadletter.Filter{IDs: []int64{}}, 0},
		{"by handler", deadletter.Filter{Handler: "h1"}, 34},
		{"by type", deadletter.Filter{Type: "order.paid"}, 2},
		{"by key", deadletter.Filter{Key: "k7"}, 1},
		{"by class", deadletter.Filter{Class: "23505"}, 2},
		{"by cause", deadletter.Filter{Cause: cause}, 20},
		{"by source", deadletter.Filter{Source: "/shop"}, 99},
		{"by another source", deadletter.Filter{Source: "/other"}, 0},
		{"by event", deadletter.Filter{EventID: "e12"}, 1},
		{"by text of the failure", deadletter.Filter{Text: `odd "quoted`}, 1},
		{"by text of an older failure", deadletter.Filter{Text: "OLDER"}, 1},
		{"by text of the body", deadletter.Filter{Text: "needle"}, 1},
		{"by text of the body, whose case counts", deadletter.Filter{Text: "NEEDLE"}, 0},
		{"by time", deadletter.Filter{Since: now.Add(-20500 * time.Millisecond), Until: now.Add(-10500 * time.Millisecond)}, 10},
		{"since", deadletter.Filter{Since: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}, 89},
		{"until", deadletter.Filter{Until: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}, 10},
		{"combined", deadletter.Filter{Handler: "h1", Type: "order.paid", Class: "23505", Key: "k7"}, 1},
		{"combined, and none", deadletter.Filter{Handler: "h2", Key: "k7"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := &rig{T: t, pool: n.pool, store: n.store}
			for _, limit := range []int{7, 1000} {
				found := n.all(tt.f, limit)
				if len(found) != tt.want {
					t.Errorf("%d events in pages of %d, want %d", len(found), limit, tt.want)
				}
				seen := map[int64]bool{}
				for _, l := range found {
					if seen[l.ID] {
						t.Errorf("event %d is listed twice", l.ID)
					}
					seen[l.ID] = true
				}
				if !slices.IsSortedFunc(found, func(a, b deadletter.Letter) int { return b.DeadAt.Compare(a.DeadAt) }) {
					t.Error("the last to die is not first")
				}
			}
			count, more, err := n.store.Count(t.Context(), tt.f)
			if err != nil || more || count != int64(tt.want) {
				t.Errorf("Count = %d, %v; want %d", count, err, tt.want)
			}
		})
	}
}

func TestSearchRefusesBadFilters(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	tests := map[string]deadletter.Filter{
		"a short cause":     {Cause: "ab"},
		"no cause":          {Cause: "xy"},
		"a text with a NUL": {Text: "a\x00b"},
		"a broken text":     {Handler: "\xff"},
		"times the other way round": {
			Since: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		},
	}
	for name, f := range tests {
		if _, _, err := n.store.List(t.Context(), f, postroom.Page{}); err == nil {
			t.Errorf("%s: listed", name)
		}
		if _, err := n.store.CreateReplay(t.Context(), f, deadletter.ReplayOptions{}, n.by); err == nil || errors.Is(err, deadletter.ErrNoMatch) {
			t.Errorf("%s: replayed: %v", name, err)
		}
	}
	if _, _, err := n.store.List(t.Context(), deadletter.Filter{}, postroom.Page{Limit: 1001}); err == nil {
		t.Error("a page of 1001")
	}
	bad := deadletter.New(n.pool, deadletter.Config{Schema: "x y"})
	if _, _, err := bad.Count(t.Context(), deadletter.Filter{}); err == nil {
		t.Error("a schema of two words")
	}
}

// Three handlers have five causes, and each event's failure has a different text. They are five
// groups.
func TestGroups(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	causes := []struct {
		handler string
		why     func(ev postroom.Event) error
	}{
		{"billing", func(ev postroom.Event) error {
			return fmt.Errorf("card of %s declined: balance %d", ev.Key, len(ev.ID)*7)
		}},
		{"billing", func(ev postroom.Event) error { return fmt.Errorf("no such plan %q for order %s", ev.ID+" x", ev.ID) }},
		{"stock", func(ev postroom.Event) error { return postroom.Permanent(fmt.Errorf("article %s is gone", ev.ID)) }},
		{"stock", func(ev postroom.Event) error { panic("index " + ev.ID) }},
		{"mail", func(ev postroom.Event) error { return fmt.Errorf("dial 10.0.0.%d:25: connection refused", len(ev.ID)) }},
	}
	for i, c := range causes {
		var batch []postroom.Event
		for j := range 20 {
			ev := event(fmt.Sprintf("c%d-%d", i, j*j*j))
			ev.Key = fmt.Sprint("customer ", string(rune('a'+j)), i)
			batch = append(batch, ev)
		}
		n.die(c.handler, c.why, batch...)
	}
	list, err := n.store.Groups(t.Context(), deadletter.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	groups, all := list.Groups, list.All
	if len(groups) != 5 || all != 5 {
		for _, g := range groups {
			t.Logf("%+v", g)
		}
		t.Fatalf("%d groups (listed: %d), want 5", len(groups), all)
	}
	for _, g := range groups {
		if g.Events != 20 || g.Keys != 20 || g.Error == "" || !slices.Equal(g.Types, []string{"order.placed"}) || g.FirstDeadAt.After(g.LastDeadAt) {
			t.Errorf("group: %+v", g)
		}
		if count, _, err := n.store.Count(t.Context(), deadletter.Filter{Cause: g.Cause}); err != nil || count != g.Events {
			t.Errorf("events of the group %s: %d, %v; want %d", g.Cause, count, err, g.Events)
		}
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	ev := event("e1")
	ev.Headers = map[string]string{"tenant": "a"}
	ev.CorrelationID = "c"
	n.die("billing", declined, ev)
	id := n.number("SELECT id FROM postroom.held")
	w, err := n.store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if w.State != deadletter.Dead || w.EventID != "e1" || w.Handler != "billing" || string(w.Data) != string(ev.Data) ||
		w.Headers["tenant"] != "a" || w.CorrelationID != "c" || w.DedupeKey != "/shop e1" || w.Attempts != 1 || w.Class != "error" {
		t.Errorf("Show = %+v", w)
	}
	if len(w.Failures) != 1 || w.Failures[0].Text == "" || w.Failures[0].At.IsZero() || w.Error != w.Failures[0].Text {
		t.Errorf("failures: %+v", w.Failures)
	}
	if _, err := n.store.Get(t.Context(), id+1); !errors.Is(err, deadletter.ErrNotFound) {
		t.Errorf("Show of none = %v", err)
	}
}

// A filter may name a value that the last row of a page does not have. That row does not match, and
// the search goes on behind it.
func TestLettersWithoutAValueDoNotMatch(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', n::text FROM generate_series(1, 6000) n")
	n.exec(`INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, key, content_type, data)
		SELECT 'h', n::text, now() - n * interval '1 s', 'x', now(), '/shop', n::text, 'a.b', 'a.b', CASE WHEN n = 6000 THEN 'k' END, 'text/plain', ''
		FROM generate_series(1, 6000) n`)
	n.exec(`INSERT INTO postroom.archive (id, audit, discarded_at, handler, dedupe_key, held_at, attempts, solitary, class, revision, replays, logged_at,
		                              source, event_id, type, subject, content_type, data)
		SELECT 100000 + n, 1, now() - n * interval '1 s', 'h', n::text, now(), 1, false, CASE WHEN n = 6000 THEN 'c' END, 0, 0, now(),
		       '/shop', n::text, 'a.b', 'a.b', 'text/plain', ''
		FROM generate_series(1, 6000) n`)
	for name, f := range map[string]deadletter.Filter{"dead": {Key: "k"}, "discarded": {Class: "c", Discarded: true}} {
		letters, _, err := n.store.List(t.Context(), f, postroom.Page{})
		if err != nil || len(letters) != 1 || letters[0].EventID != "6000" {
			t.Errorf("%s: %d events, %v; want one", name, len(letters), err)
		}
	}
}
