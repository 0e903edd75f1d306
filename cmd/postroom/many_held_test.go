package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
)

// heldAs inserts $2 held events of handler $1 in state $3, each with its inbox row and a key of its producer. Waiting ones block one of 1,000 keys.
const heldAs = `
	WITH events AS (
		SELECT $3 || n AS id, n FROM generate_series(1, $2::int) n
	), decided AS (
		INSERT INTO postroom.inbox (handler, dedupe_key) SELECT $1, '/shop ' || id FROM events
	)
	INSERT INTO postroom.held (handler, dedupe_key, chain, pos, key, next_at, dead_at, attempts, class, cause, failures, logged_at, source, event_id, type, subject, content_type, data)
	SELECT $1, '/shop ' || id, CASE WHEN $3 = 'waiting' THEN 'order-' || n % 1000 END, CASE WHEN $3 = 'waiting' THEN n END, 'order-' || n,
	       CASE WHEN $3 = 'due' THEN now() - interval '1 minute' - n * interval '1 us' END, CASE WHEN $3 = 'dead' THEN now() - n * interval '1 second' END, 1, 'error', decode(md5($1), 'hex'), '[]',
	       now(), '/shop', id, 'order.placed', 'order.placed', 'application/json', '{}'
	FROM events`

// However many events of a handler are held in one state, five in each other state are found, each
// number is exact or says that it is a bound, and no command takes longer than two seconds. The
// commands run as an operator runs them, with the limits of time of their statements. It runs only with
// POSTROOM_SOAK, because it measures times, and needs 10 GB.
func TestCommandsBesideManyHeldEvents(t *testing.T) {
	if os.Getenv("POSTROOM_SOAK") == "" {
		t.Skip("it measures times, with millions of events: run it with POSTROOM_SOAK")
	}
	for _, n := range []int{0, 99_999, 100_001, 4_000_000} {
		for _, state := range []string{"due", "waiting", "dead"} {
			t.Run(fmt.Sprint(n, " ", state), func(t *testing.T) { besideMany(t, n, state) })
		}
	}
}

func besideMany(t *testing.T, n int, state string) {
	pool := devtest.Pool(t)
	for _, other := range []string{"due", "waiting", "dead"} {
		events := 5
		if other == state {
			events = n
		}
		if _, err := pool.Exec(t.Context(), heldAs, "mail", events, other); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "VACUUM (ANALYZE) postroom.held, postroom.inbox"); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"due": 5, "waiting": 5, "dead": 5}
	want[state] = int64(n)
	// is checks a number that a command printed.
	is := func(what, state string, got int64, more bool) {
		t.Helper()
		if exact := !more && got == want[state]; !exact && (!more || got > want[state] || got < 5000) {
			t.Errorf("%s: %d events are %s (more: %t), want %d", what, got, state, more, want[state])
		}
	}
	env := inDatabase(pool)
	var slowest time.Duration
	ask := func(line string) result {
		t.Helper()
		began := time.Now()
		got := postroom(t, env, strings.Fields(line)...)
		took := time.Since(began)
		slowest = max(slowest, took)
		t.Logf("| `%s` | %d |", line, took.Milliseconds())
		if took > 2*time.Second {
			t.Errorf("%s took %s, want at most 2 s", line, took)
		}
		if got.code == exitFailed || got.code == exitUsage {
			t.Errorf("%s: exit status %d: %s", line, got.code, got.errors)
		}
		return got
	}
	for _, h := range decode[inspect.Status](t, ask("status --json")).Held {
		for _, c := range h.States {
			is("status", string(c.State), c.Events, c.More)
		}
	}
	for _, h := range decode[inspect.Handlers](t, ask("handlers --json")).Handlers {
		for _, c := range h.Held.States {
			is("handlers", string(c.State), c.Events, c.More)
		}
	}
	type count struct {
		Count int64
		More  bool
	}
	for _, filter := range []string{"", " --handler mail", " --type order.placed", " --class error --source /shop"} {
		c := decode[count](t, ask("dead list --count --json"+filter))
		is("dead list --count"+filter, "dead", c.Count, c.More)
	}
	for _, filter := range []string{"", " --handler mail", " --type order.placed"} {
		for _, g := range decode[struct {
			Groups []struct {
				Events int64
				More   bool
			}
		}](t, ask("dead groups --json"+filter)).Groups {
			is("dead groups"+filter, "dead", g.Events, g.More)
		}
	}
	for _, line := range []string{
		"status", "handlers", "keys", "keys --handler mail", "keys --key order-7", "keys --state dead", "tables", "held list", "held list --handler mail --state dead", "held list --state waiting", "held list --key order-7", "held list --type none",
		"held list --class none", "dead list", "dead list --type none", "dead list --text none", "dead list --key order-7", "dead list --discarded", "dead groups --text none", "replay list", "events list --key order-7", "events list --type order.placed", "audit", "saga list", "webhook endpoints", "republish list", "doctor",
	} {
		ask(line)
	}
	for other, events := range want {
		if events > 0 {
			ask("events show " + other + "1")
			ask("events tree " + other + "1")
		}
	}
	t.Logf("the slowest of all took %s", slowest)
}
