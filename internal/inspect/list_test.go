package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

func (p *rig) keys(f inspect.KeyFilter) *inspect.Keys {
	p.Helper()
	k, err := p.alone().Keys(p.Context(), f)
	if err != nil {
		p.Fatal(err)
	}
	return k
}

func keyNames(k *inspect.Keys) []string {
	all := []string{}
	for _, one := range k.Keys {
		all = append(all, one.Handler+"/"+one.Key)
	}
	return all
}

func TestKeys(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	for _, handler := range []string{"a", "b"} {
		for k := range 5 {
			state, class := "next_at", "now() + interval '1 hour'"
			if k == 2 {
				state, class = "dead_at", "now()"
			}
			key := fmt.Sprintf("'k%d'", k)
			p.hold(handler, fmt.Sprintf("%d-1", k), state+", class, failures, chain, pos", class+`, 'error', '[{"text": "first"}, {"text": "last"}]', `+key+", 1")
			for n := range k {
				p.hold(handler, fmt.Sprintf("%d-%d", k, n+2), "chain, pos", fmt.Sprintf("%s, %d", key, n+2))
			}
		}
	}
	p.holdOutgoing(7, "next_at, chain", "now(), 'k1'")

	tests := []struct {
		name   string
		filter inspect.KeyFilter
		want   []string
		next   string
	}{
		{"all", inspect.KeyFilter{}, []string{"a/k0", "a/k1", "a/k2", "a/k3", "a/k4", "b/k0", "b/k1", "b/k2", "b/k3", "b/k4", "outbox/k1"}, ""},
		{"of a handler", inspect.KeyFilter{Handler: "b"}, []string{"b/k0", "b/k1", "b/k2", "b/k3", "b/k4"}, ""},
		{"of no handler", inspect.KeyFilter{Handler: "aa"}, []string{}, ""},
		{"one page", inspect.KeyFilter{Limit: 4}, []string{"a/k0", "a/k1", "a/k2", "a/k3"}, "a/k3"},
		{"the next", inspect.KeyFilter{Limit: 4, After: &inspect.KeyPosition{Handler: "a", Key: "k3"}}, []string{"a/k4", "b/k0", "b/k1", "b/k2"}, "b/k2"},
		{"the last", inspect.KeyFilter{Limit: 4, After: &inspect.KeyPosition{Handler: "b", Key: "k2"}}, []string{"b/k3", "b/k4", "outbox/k1"}, ""},
		{"the next of a handler", inspect.KeyFilter{Handler: "a", Limit: 4, After: &inspect.KeyPosition{Handler: "a", Key: "k3"}}, []string{"a/k4"}, ""},
		{"dead", inspect.KeyFilter{State: held.Dead}, []string{"a/k2", "b/k2"}, ""},
		{"dead of a handler", inspect.KeyFilter{Handler: "b", State: held.Dead}, []string{"b/k2"}, ""},
		{"a key", inspect.KeyFilter{Key: "k1"}, []string{"a/k1", "b/k1", "outbox/k1"}, ""},
		{"a key of a handler", inspect.KeyFilter{Handler: "a", Key: "k1"}, []string{"a/k1"}, ""},
		{"a key in a state", inspect.KeyFilter{Key: "k1", State: held.Due}, []string{"outbox/k1"}, ""},
		{"no such key", inspect.KeyFilter{Key: "x"}, []string{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := p.keys(tt.filter)
			next := ""
			if k.Next != nil {
				next = k.Next.Handler + "/" + k.Next.Key
			}
			if got := keyNames(k); !slices.Equal(got, tt.want) || next != tt.next {
				t.Errorf("%v, next %q, want %v, next %q", got, next, tt.want, tt.next)
			}
		})
	}
	for _, k := range p.keys(inspect.KeyFilter{Handler: "a"}).Keys {
		n := int64(k.Key[1] - '0')
		if k.Behind != n || k.Head.EventID != fmt.Sprintf("%d-1", n) || k.Head.Failure != "last" || k.Head.Class != "error" || (k.Head.State == held.Dead) != (n == 2) {
			t.Errorf("%+v", k)
		}
	}
}

// A page reads a limited number of keys, and the next page continues from there.
func TestKeysArePagedByTheNumberLookedAt(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', n::text FROM generate_series(1, 12000) n")
	p.exec(`INSERT INTO postroom.held (handler, dedupe_key, chain, pos, next_at, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'h', n, to_char(n, 'FM00000'), 1, CASE WHEN n <> 11000 THEN now() END, CASE WHEN n = 11000 THEN now() END, 'x', now(), '/s', n, 'a', 'a', 'a', ''
		FROM generate_series(1, 12000) n`)
	first := p.keys(inspect.KeyFilter{State: held.Dead})
	if len(first.Keys) != 0 || first.Next == nil || first.Next.Key != "10000" {
		t.Fatalf("first page: %+v", first)
	}
	second := p.keys(inspect.KeyFilter{State: held.Dead, After: first.Next})
	if got := keyNames(second); !slices.Equal(got, []string{"h/11000"}) || second.Next != nil {
		t.Errorf("second page: %v, %+v", got, second.Next)
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.exec(`INSERT INTO postroom.audit (at, actor, action, reason, events, handler, event_id, replay, details)
		SELECT now() - (30 - n) * interval '1 hour', CASE WHEN n % 2 = 0 THEN 'ann' ELSE 'bob' END, CASE WHEN n % 3 = 0 THEN 'discard' ELSE 'replay' END, 'why', n,
		       'h' || n % 2, CASE WHEN n % 5 = 0 THEN 'e' || n END, CASE WHEN n % 3 = 1 THEN n % 2 END, '{"limit": 5}'
		FROM generate_series(1, 30) n`)
	tests := []struct {
		name   string
		filter inspect.AuditFilter
		want   []int64
		next   int64
	}{
		{"a page", inspect.AuditFilter{Limit: 3}, []int64{30, 29, 28}, 28},
		{"the next", inspect.AuditFilter{Limit: 3, Before: 28}, []int64{27, 26, 25}, 25},
		{"the last", inspect.AuditFilter{Limit: 3, Before: 4}, []int64{3, 2, 1}, 0},
		{"of a person", inspect.AuditFilter{Actor: "ann", Limit: 2}, []int64{30, 28}, 28},
		{"of a kind", inspect.AuditFilter{Action: "discard", Limit: 2}, []int64{30, 27}, 27},
		{"of a handler", inspect.AuditFilter{Handler: "h1", Limit: 2}, []int64{29, 27}, 27},
		{"since", inspect.AuditFilter{Since: time.Now().Add(-90 * time.Minute)}, []int64{30, 29}, 0},
		{"of an event", inspect.AuditFilter{EventID: "e20"}, []int64{20}, 0},
		{"of an event and a person", inspect.AuditFilter{EventID: "e20", Actor: "bob"}, []int64{}, 0},
		{"of an event and a replay", inspect.AuditFilter{EventID: "e25", ReplayID: 1}, []int64{25}, 0},
		{"of an event and another replay", inspect.AuditFilter{EventID: "e25", ReplayID: 2}, []int64{}, 0},
		{"of a replay", inspect.AuditFilter{ReplayID: 1, Limit: 2}, []int64{25, 19}, 19},
		{"of a replay, the next", inspect.AuditFilter{ReplayID: 1, Before: 19}, []int64{13, 7, 1}, 0},
		{"of another actor", inspect.AuditFilter{Actor: "eve"}, []int64{}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			page, err := p.alone().Audit(t.Context(), tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			ids := []int64{}
			for _, a := range page.Entries {
				ids = append(ids, a.ID)
				if string(a.Details) != `{"limit": 5}` || a.At.IsZero() || a.Reason != "why" || a.Events != a.ID {
					t.Errorf("%+v", a)
				}
			}
			if !slices.Equal(ids, tt.want) || page.Next != tt.next {
				t.Errorf("%v, next %d, want %v, next %d", ids, page.Next, tt.want, tt.next)
			}
		})
	}
}

// The actions on an event in one replay are found even if more later actions on the event were in
// another replay.
func TestAuditOfAnEventInAReplay(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.exec(`INSERT INTO postroom.audit (actor, action, events, handler, event_id, replay)
		SELECT 'ann', 'replay', 1, 'h', 'e', CASE WHEN n <= 3 THEN 7 ELSE 8 END FROM generate_series(1, 10) n`)
	f := inspect.AuditFilter{EventID: "e", ReplayID: 7, Limit: 2}
	var ids []int64
	for range 3 {
		page, err := p.alone().Audit(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range page.Entries {
			ids = append(ids, a.ID)
		}
		if f.Before = page.Next; f.Before == 0 {
			break
		}
	}
	if !slices.Equal(ids, []int64{3, 2, 1}) || f.Before != 0 {
		t.Errorf("found %v, and page %d would follow", ids, f.Before)
	}
}

// If there are very many actions on an event or in a replay, the pages have all of them, the newest
// first.
func TestAuditOfManyActions(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	const actions = 1200
	p.exec("INSERT INTO postroom.audit (actor, action, events, handler, event_id, replay) SELECT 'ann', 'edit', 1, 'h', 'e', 7 FROM generate_series(1, $1::int) n", actions)
	for name, f := range map[string]inspect.AuditFilter{"of an event": {EventID: "e", Limit: 500}, "of a replay": {ReplayID: 7, Limit: 500}} {
		next := int64(actions) // the id of the next action that a page must have
		for range 4 {
			page, err := p.alone().Audit(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range page.Entries {
				if a.ID != next {
					t.Fatalf("%s: action %d, want %d", name, a.ID, next)
				}
				next--
			}
			if f.Before = page.Next; f.Before == 0 {
				break
			}
		}
		if next != 0 {
			t.Errorf("%s: no actions from %d on", name, next)
		}
	}
}

// A page reads a limited number of actions, and the next page continues from there.
func TestAuditIsPagedByTheNumberLookedAt(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.exec(`INSERT INTO postroom.audit (at, actor, action, events) SELECT now() - interval '1 day', CASE WHEN n = 5 THEN 'eve' ELSE 'ann' END, 'x', 1 FROM generate_series(1, 12000) n`)
	first, err := p.alone().Audit(t.Context(), inspect.AuditFilter{Actor: "eve"})
	if err != nil || len(first.Entries) != 0 || first.Next != 2001 {
		t.Fatalf("first page: %+v, %v", first, err)
	}
	second, err := p.alone().Audit(t.Context(), inspect.AuditFilter{Actor: "eve", Before: first.Next})
	if err != nil || len(second.Entries) != 1 || second.Entries[0].ID != 5 || second.Next != 0 {
		t.Errorf("second page: %+v, %v", second, err)
	}
	// The last action that a page reads may name no handler. It does not match.
	other, err := p.alone().Audit(t.Context(), inspect.AuditFilter{Handler: "h"})
	if err != nil || len(other.Entries) != 0 || other.Next != 2001 {
		t.Errorf("of a handler: %+v, %v", other, err)
	}
	recent, err := p.alone().Audit(t.Context(), inspect.AuditFilter{Since: time.Now().Add(-time.Hour)})
	if err != nil || len(recent.Entries) != 0 || recent.Next != 0 { // all actions with lower ids are older
		t.Errorf("of an hour: %+v, %v", recent, err)
	}
}

// The owner of the log can write times that no age can be computed of. The other facts are shown.
func TestInfiniteTimesOfTheLog(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.write(p.event("1", "x", ""))
	p.exec("UPDATE postroom.outbox SET created_at = 'infinity'")
	if s := p.status(p.alone()); s.Relay.EstimatedUnpublished != 1 || !s.Relay.OldestUnpublishedAt.IsZero() || s.Relay.OldestUnpublishedAgeSeconds != 0 {
		t.Errorf("relay %+v, want one unpublished event of no age", s.Relay)
	}
	tables, err := p.alone().Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables.Tables {
		if table.Name == "outbox" && (!table.OldestAt.IsZero() || table.OldestAgeSeconds != 0) {
			t.Errorf("outbox %+v, want no age", table)
		}
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.write(p.event("1", "x", ""))
	p.exec("UPDATE postroom.outbox SET created_at = now() - interval '80 hours'")
	p.hold("h", "1", "next_at, held_at", "now(), now() - interval '1 hour'")
	p.lives("h")
	p.exec("UPDATE postroom.sweep SET due_at = now() - interval '1 hour'")
	open, err := p.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(t.Context()) }()
	var pid int
	if err := open.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM (SELECT pg_current_xact_id()) x").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	p.exec("CREATE TABLE later ()") // another transaction begins after that

	tables, err := p.alone().Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]inspect.Table{}
	for _, one := range tables.Tables {
		found[one.Name] = one
	}
	for _, name := range []string{"outbox", "held", "inbox", "relay", "receipt", "subscription", "node", "dedupe_window", "sweep", "replay", "replay_event", "audit", "archive", "revision", "dry_run"} {
		if found[name].Bytes+found[name].IndexBytes == 0 && name != "dry_run" {
			t.Errorf("table %s: %+v", name, found[name])
		}
	}
	if o := found["outbox"]; int(o.OldestAgeSeconds/3600) != 80 || int(o.OverdueSeconds/3600) != 8 || o.Bytes == 0 || o.IndexBytes == 0 {
		t.Errorf("outbox: %+v", o)
	}
	if h := found["held"]; int(h.OldestAgeSeconds) != 3600 {
		t.Errorf("held: %+v", h)
	}
	if s := tables.Sweep; s.Pages != 1 || s.KeptSeconds != 30*24*3600 || int(s.OverdueSeconds) != 3600 {
		t.Errorf("sweep: %+v", s)
	}
	if tables.Vacuum.Partial {
		t.Error("a superuser sees all")
	}
	p.eventually("the open transaction to be listed among those that hold back vacuum", func() bool { // only ten are listed, and other tests use this server too
		tables, err := p.alone().Tables(t.Context())
		return err == nil && slices.ContainsFunc(tables.Vacuum.Blockers, func(h inspect.VacuumBlocker) bool {
			return h.Name == fmt.Sprint(pid) && h.Kind == "transaction" && strings.Contains(h.State, "idle in transaction") && h.Xids > 0
		})
	})
	kept, err := inspect.New(p.pool, nil, inspect.Config{Retention: 100 * time.Hour}).Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range kept.Tables {
		if one.OverdueSeconds > 0 {
			t.Errorf("kept for longer: %+v", one)
		}
	}
}

// A role that may read the tables, and execute the functions that make odd values readable, gets
// every answer.
func TestRoleThatOnlyReads(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.write(p.event("1", "x", ""))
	role := "reader_" + strings.ToLower(p.stream)
	p.exec("CREATE ROLE " + role)
	t.Cleanup(func() {
		for _, sql := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} { // roles belong to the cluster, not to the database
			if _, err := p.pool.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	p.exec("GRANT USAGE ON SCHEMA postroom TO " + role)
	p.exec("GRANT SELECT ON ALL TABLES IN SCHEMA postroom TO " + role)
	p.exec("GRANT EXECUTE ON FUNCTION postroom.clipped, postroom.clamped TO " + role)
	conn, err := p.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SET ROLE "+role); err != nil {
		t.Fatal(err)
	}
	i := inspect.New(conn, nil, inspect.Config{})
	_, err1 := i.Status(t.Context())
	_, err2 := i.Handlers(t.Context())
	_, err3 := i.Keys(t.Context(), inspect.KeyFilter{})
	tables, err4 := i.Tables(t.Context())
	_, err5 := i.Audit(t.Context(), inspect.AuditFilter{})
	_, err6 := i.Event(t.Context(), "", "1")
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	if !tables.Vacuum.Partial {
		t.Error("the result does not say that it is incomplete")
	}
	if _, err := conn.Exec(t.Context(), "RESET ROLE"); err != nil {
		t.Fatal(err)
	}
}
