package deadletter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

// 20,000 dead events of three handlers have five causes. They are five groups, and Groups returns
// them quickly.
func TestGroupsOfMany(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(20_000, 15, 5)
	// The five causes are in three handlers.
	n.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'g' || (id % 5) % 3, dedupe_key FROM postroom.held")
	n.exec("UPDATE postroom.held SET handler = 'g' || (id % 5) % 3")
	n.want("handlers and causes", 5, "SELECT count(DISTINCT (handler, cause)) FROM postroom.held")
	began := time.Now()
	list, err := n.store.Groups(t.Context(), deadletter.Filter{})
	took := time.Since(began)
	groups := list.Groups
	if err != nil || list.All != 5 || len(groups) != 5 || list.More {
		t.Fatalf("%d groups (listed: %d, more: %v), %v; want 5", len(groups), list.All, list.More, err)
	}
	handlers := map[string]bool{}
	var sum int64
	for _, g := range groups {
		handlers[g.Handler] = true
		sum += g.Events
		if g.Events != 4000 || g.Keys != 20 || g.Error == "" || g.Class != "error" || !g.FirstDeadAt.Before(g.LastDeadAt) {
			t.Errorf("group: %+v", g)
		}
		if count, more, err := n.store.Count(t.Context(), deadletter.Filter{Cause: g.Cause, Handler: g.Handler}); err != nil || more || count != g.Events {
			t.Errorf("events of the group: %d, %v", count, err)
		}
		w := n.show(g.ExampleID)
		if w.Cause != g.Cause || w.Handler != g.Handler || w.Error != g.Error {
			t.Errorf("example of %+v: %+v", g, w)
		}
	}
	if sum != 20_000 || len(handlers) != 3 || took > devtest.Patience(t, 5*time.Second) {
		t.Errorf("%d events in groups of %v, listed after %s", sum, handlers, took)
	}
	list, err = n.store.Groups(t.Context(), deadletter.Filter{Handler: groups[0].Handler, Key: "k1"})
	if err != nil || list.All > 2 || len(list.Groups) != list.All || list.More {
		t.Errorf("groups of a handler and a key: %+v, %v", list, err)
	}
}

// Each way to find groups finds the same groups.
func TestGroupsByAnyProperty(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(600, 3, 3) // each cause belongs to one handler
	n.exec("UPDATE postroom.held SET type = 'order.paid' WHERE event_id LIKE 'e1%' AND handler = 'h1'")
	n.exec("UPDATE postroom.held SET cause = NULL WHERE handler = 'h2'")
	since := time.Now().Add(-100 * time.Second)
	for name, tt := range map[string]struct {
		f             deadletter.Filter
		groups        int
		events, types int64
	}{
		"all":          {deadletter.Filter{}, 3, 600, 4},
		"a source":     {deadletter.Filter{Source: "/shop"}, 3, 600, 4},
		"a handler":    {deadletter.Filter{Handler: "h1"}, 1, 200, 2},
		"no cause":     {deadletter.Filter{Handler: "h2"}, 1, 200, 1},
		"a class":      {deadletter.Filter{Class: "error"}, 3, 600, 4},
		"no class":     {deadletter.Filter{Class: "timeout"}, 0, 0, 0},
		"since":        {deadletter.Filter{Since: since, Handler: "h1"}, 1, 33, 2},
		"since, found": {deadletter.Filter{Since: since, Handler: "h1", Source: "/shop"}, 1, 33, 2},
		"until":        {deadletter.Filter{Until: since, Handler: "h1"}, 1, 167, 2},
		"a type":       {deadletter.Filter{Type: "order.paid"}, 1, 39, 1},
		"a text":       {deadletter.Filter{Text: "cause 1"}, 1, 200, 2},
		"an event":     {deadletter.Filter{EventID: "e17"}, 1, 1, 1},
		"of a cause":   {deadletter.Filter{Cause: "c4ca4238a0b923820dcc509a6f75849b"}, 1, 200, 2}, // md5 of 1
	} {
		list, err := n.store.Groups(t.Context(), tt.f)
		var events, types int64
		for _, g := range list.Groups {
			events, types = events+g.Events, types+int64(len(g.Types))
			if w := n.show(g.ExampleID); w.Handler != g.Handler || w.Cause != g.Cause || w.Error != g.Error || !w.DeadAt.Equal(g.LastDeadAt) || g.Keys == 0 {
				t.Errorf("%s: the example of %+v is %+v", name, g, w)
			}
		}
		if err != nil || list.All != tt.groups || events != tt.events || types != tt.types || list.More {
			t.Errorf("%s: %d groups, %d events, %d types, more: %v, %v; want %d, %d, %d", name, list.All, events, types, list.More, err, tt.groups, tt.events, tt.types)
		}
	}
}

// A search reads a limited number of events, and reports that.
func TestBoundsOfASearch(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(12_000, 3, 3)
	n.exec(`UPDATE postroom.held SET data = 'a needle' WHERE event_id = 'e11500'`) // one of the first to die
	needle := deadletter.Filter{Text: "needle"}
	var pages, found int
	for p := (postroom.Page{}); ; pages++ {
		letters, next, err := n.store.List(t.Context(), needle, p)
		if err != nil {
			t.Fatal(err)
		}
		if found += len(letters); next == "" {
			break
		}
		p.After = next
	}
	if pages == 0 || found != 1 {
		t.Errorf("%d events on %d pages before the last; want 1 on a later page than the first", found, pages)
	}
	if count, more, err := n.store.Count(t.Context(), needle); err != nil || count != 0 || !more {
		t.Errorf("counted %d, more: %v, %v; want none so far", count, more, err)
	}
	if list, err := n.store.Groups(t.Context(), needle); err != nil || list.All != 0 || !list.More {
		t.Errorf("groups: %+v, %v; want none so far", list, err)
	}
	if list, err := n.store.Groups(t.Context(), deadletter.Filter{Text: "cause 1"}); err != nil || len(list.Groups) == 0 || !list.Groups[0].More {
		t.Errorf("groups: %+v, %v; want one that says that it may have more events", list, err)
	}
	if count, more, err := n.store.Count(t.Context(), deadletter.Filter{Text: "cause 1"}); err != nil || count < 1600 || count > 1700 || !more {
		t.Errorf("counted %d, more: %v, %v; want a third of 5,000, and more", count, more, err)
	}
	if count, more, err := n.store.Count(t.Context(), deadletter.Filter{Key: "k1"}); err != nil || count != 120 || more {
		t.Errorf("counted %d of a key, more: %v, %v; want 120", count, more, err)
	}
}

// Reads use a read-only transaction. So they change nothing, even in a database in which they
// could.
func TestReadsUseAReadOnlyTransaction(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(10, 1, 1)
	n.exec(`CREATE FUNCTION bad(h postroom.held) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN DELETE FROM postroom.audit; RETURN true; END $$`)
	n.exec(`CREATE OR REPLACE FUNCTION postroom.dead_letters(ids bigint[], handler text, type text, key text, class text, cause bytea, source text,
			event_id text, text text, since timestamptz, until timestamptz)
		RETURNS SETOF postroom.held LANGUAGE sql VOLATILE AS $$ SELECT h.* FROM postroom.held h WHERE bad(h) $$`)
	f := deadletter.Filter{Source: "/shop"}
	_, _, err1 := n.store.List(t.Context(), f, postroom.Page{})
	_, _, err2 := n.store.Count(t.Context(), f)
	_, err3 := n.store.Groups(t.Context(), f)
	for _, err := range []error{err1, err2, err3} {
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "25006" {
			t.Errorf("%v, want an error of a transaction that only reads", err)
		}
	}
}
