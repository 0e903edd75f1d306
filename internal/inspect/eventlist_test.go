package inspect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/outbox"
)

const (
	someTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	someParent = "00-" + someTrace + "-00f067aa0ba902b7-01"
)

func (p *rig) events(f inspect.EventFilter) *inspect.EventPage {
	p.Helper()
	page, err := p.alone().Events(p.Context(), f)
	if err != nil {
		p.Fatal(err)
	}
	if f.Limit > 0 && len(page.Events) > f.Limit {
		p.Fatalf("a page has %d events, want %d at most", len(page.Events), f.Limit)
	}
	return page
}

// eventIDs returns the ids of all events that match, page by page.
func (p *rig) eventIDs(f inspect.EventFilter) string {
	p.Helper()
	var all []string
	for {
		page := p.events(f)
		for n := range page.Events {
			all = append(all, page.Events[n].EventID)
		}
		if f.After = page.Next; f.After == "" {
			return strings.Join(all, " ")
		}
	}
}

// withEvents has ten events in the log, a1 to a5 of /shop and b1 to b5 of /billing, an hour
// apart, and three that only held or archive have.
func withEvents(t *testing.T) *rig {
	t.Helper()
	p := newRig(t)
	for n, source := range []string{"/shop", "/billing"} {
		err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
			for k := range 5 {
				id := string("ab"[n]) + string(rune('1'+k))
				ev := postroom.NewEvent("order.placed", "c4nary")
				ev.ID, ev.Key, ev.TraceParent = id, "k"+id[1:], someParent
				if k > 2 {
					ev.Type, ev.TraceParent = "order.charged", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
				}
				if k > 0 {
					ev.CorrelationID, ev.CausationID = "a1", "a"+string(rune('0'+k))
				}
				if err := outbox.New(outbox.Config{Source: source}).Write(t.Context(), tx, ev); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.exec("UPDATE postroom.outbox SET created_at = date_trunc('hour', now()) - (10 - seq) * interval '1 hour'")
	p.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT h, '/other ' || id FROM unnest('{h,g}'::text[]) h, unnest('{x1,x2,x3}'::text[]) id")
	p.exec(`INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, key, correlation_id, causation_id, trace_parent, content_type, data)
		SELECT h, '/other ' || id, now(), 'error', date_trunc('hour', now()) - ago, '/other', id, 'order.placed', 'order.placed', 'k1', 'a1', 'a1', $1, 'text/plain', 'c4nary'
		FROM (VALUES ('h', 'x2', interval '210 minutes'), ('h', 'x1', interval '30 minutes'), ('g', 'x1', interval '30 minutes')) v (h, id, ago)`, someParent)
	p.exec(`INSERT INTO postroom.archive (id, audit, handler, dedupe_key, dead_at, held_at, attempts, solitary, class, revision, replays, logged_at, source, event_id, type, subject,
			key, correlation_id, causation_id, trace_parent, content_type, data)
		SELECT 100 + n, 1, h, '/other ' || id, now(), now(), 1, false, 'error', 0, 0, date_trunc('hour', now()) - interval '20 hours', '/other', id, 'order.placed', 'order.placed',
			'k1', 'a1', 'a1', $1, 'text/plain', 'c4nary'
		FROM (VALUES (1, 'h', 'x3'), (2, 'g', 'x3'), (3, 'g', 'x2')) v (n, h, id)`, someParent)
	// The log has these events too, so they are listed only once.
	p.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', '/shop a1'), ('g', '/shop a1'), ('h', '/shop a2')")
	p.exec(`INSERT INTO postroom.held (handler, dedupe_key, chain, pos, logged_at, source, event_id, type, subject, key, content_type, data)
		VALUES ('h', '/shop a1', 'k1', 1, now(), '/shop', 'a1', 'order.placed', 'order.placed', 'k1', 'text/plain', 'c4nary')`)
	return p
}

func TestEvents(t *testing.T) {
	t.Parallel()
	p := withEvents(t)
	hour := time.Now().Truncate(time.Hour)
	tests := []struct {
		name   string
		filter inspect.EventFilter
		want   string
	}{
		{"all", inspect.EventFilter{}, "b5 x1 b4 b3 b2 x2 b1 a5 a4 a3 a2 a1 x3"},
		{"key", inspect.EventFilter{Key: "k1"}, "x1 x2 b1 a1 x3"},
		{"type", inspect.EventFilter{Type: "order.charged"}, "b5 b4 a5 a4"},
		{"source", inspect.EventFilter{Source: "/shop"}, "a5 a4 a3 a2 a1"},
		{"source that only held has", inspect.EventFilter{Source: "/other"}, "x1 x2 x3"},
		{"correlation", inspect.EventFilter{CorrelationID: "a1"}, "b5 x1 b4 b3 b2 x2 a5 a4 a3 a2 x3"},
		{"cause", inspect.EventFilter{CausationID: "a1"}, "x1 b2 x2 a2 x3"},
		{"cause and source", inspect.EventFilter{CausationID: "a1", Source: "/shop"}, "a2"},
		{"trace", inspect.EventFilter{TraceID: someTrace}, "x1 b3 b2 x2 b1 a3 a2 a1 x3"},
		{"traceparent", inspect.EventFilter{TraceID: "00-" + strings.ToUpper(someTrace) + "-0000000000000001-00"}, "x1 b3 b2 x2 b1 a3 a2 a1 x3"},
		{"any, a key", inspect.EventFilter{Any: "k4"}, "b4 a4"},
		{"any, an id", inspect.EventFilter{Any: "x2"}, "x2"},
		{"any, an id of a process", inspect.EventFilter{Any: "a1"}, "b5 x1 b4 b3 b2 x2 a5 a4 a3 a2 a1 x3"},
		{"any, a cause", inspect.EventFilter{Any: "a4"}, "b5 a5 a4"},
		{"any, a trace", inspect.EventFilter{Any: someParent, Type: "order.placed", Source: "/billing"}, "b3 b2 b1"},
		{"since", inspect.EventFilter{Since: hour.Add(-2 * time.Hour)}, "b5 x1 b4 b3"},
		{"until", inspect.EventFilter{Until: hour.Add(-7 * time.Hour)}, "a2 a1 x3"},
		{"between", inspect.EventFilter{Since: hour.Add(-4 * time.Hour), Until: hour.Add(-time.Hour)}, "b3 b2 x2 b1"},
		{"of no time", inspect.EventFilter{Since: time.Now().Add(time.Hour)}, ""},
		{"none", inspect.EventFilter{Key: "none"}, ""},
	}
	for _, tt := range tests {
		for _, limit := range []int{0, 1, 2, 3} { // the pages are one list
			tt.filter.Limit = limit
			if got := p.eventIDs(tt.filter); got != tt.want {
				t.Errorf("%s, by %d: %s\nwant %s", tt.name, limit, got, tt.want)
			}
		}
	}
	for _, f := range []inspect.EventFilter{{After: "x"}, {TraceID: "k1"}, {Since: hour, Until: hour}, {Type: "\xff"}} {
		if page, err := p.alone().Events(t.Context(), f); err == nil {
			t.Errorf("Events(%+v) = %+v, want an error", f, page)
		}
	}
}

// A list shows the state of each event, in the log and at each handler.
func TestListShowsTheStateOfEachEvent(t *testing.T) {
	t.Parallel()
	p := withEvents(t)
	p.exec("UPDATE postroom.relay SET high = 4, snap = pg_current_snapshot(), pending = '{[3,4)}'")
	p.holdOutgoing(4, "dead_at, class", "now(), 'refused'")
	p.exec("UPDATE postroom.held SET source = '/shop', event_id = 'a4' WHERE handler = 'outbox'")
	type state struct {
		published inspect.PublishState
		handlers  string
	}
	got := make(map[string]state)
	for _, e := range p.events(inspect.EventFilter{}).Events {
		var handlers []string
		for _, h := range e.Handlers {
			handlers = append(handlers, h.Handler+" "+string(h.State))
		}
		got[e.EventID] = state{e.Published, strings.Join(handlers, ", ")}
		if (e.Seq == 0) != (e.Source == "/other") || (e.Published == "") != (e.Source == "/other") {
			t.Errorf("%s has seq %d, and is %q in the log", e.EventID, e.Seq, e.Published)
		}
	}
	for id, want := range map[string]state{
		"a1": {inspect.Published, "h waiting, g done"}, "a2": {inspect.Published, "h done"}, "a3": {inspect.Pending, ""}, "a4": {inspect.PublishHeld, "outbox dead"},
		"a5": {inspect.Unpublished, ""}, "x1": {"", "g dead, h dead"}, "x2": {"", "h dead, g discarded"}, "x3": {"", "g discarded, h discarded"},
	} {
		if got[id] != want {
			t.Errorf("%s is %+v, want %+v", id, got[id], want)
		}
	}
}

// If a page finds nothing in very many rows, it ends and reports that. The next page continues the
// search.
func TestEventsStopsToSearch(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.exec(`INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, data, checked, created_at)
		SELECT '/shop', n, '', 'a.b', 'a.b', CASE WHEN n = 5 THEN 'old' END, '', true, now() - (300000 - n) * interval '1 s' FROM generate_series(1, 250000) n`)
	first := p.events(inspect.EventFilter{Key: "old"})
	if len(first.Events) != 0 || first.Next == "" || !first.Stopped || first.Looked != 200_000 || time.Since(first.Reached) < 249_000*time.Second {
		t.Fatalf("the first page = %+v; want none of 200,000 rows, and a next one", first)
	}
	second := p.events(inspect.EventFilter{Key: "old", After: first.Next})
	if len(second.Events) != 1 || second.Next != "" || second.Stopped || second.Looked != 50_000 {
		t.Fatalf("the second page = %+v; want the event", second)
	}
	// With a time, only that part of the log is read.
	at := second.Events[0].LoggedAt
	timed := p.events(inspect.EventFilter{Key: "old", Since: at.Add(-time.Hour), Until: at.Add(time.Hour)})
	if len(timed.Events) != 1 || timed.Next != "" || timed.Looked > 4000 {
		t.Errorf("of that time: %+v; want the event, of 3,725 rows", timed)
	}
	// A cause is looked up in an index, so it needs few rows as well.
	if caused := p.events(inspect.EventFilter{CausationID: "none"}); caused.Looked != 0 || caused.Next != "" {
		t.Errorf("of a cause: %+v; want no rows", caused)
	}
	p.exec("UPDATE postroom.outbox SET causation_id = 'c' WHERE seq > 230000")
	if caused := p.events(inspect.EventFilter{CausationID: "c", Limit: 2}); len(caused.Events) != 2 || caused.Events[0].EventID != "250000" || caused.Next == "" {
		t.Errorf("of a cause of 20,000: %+v; want the newest two", caused)
	}
}
