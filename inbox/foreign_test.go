package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// foreign is a message that another program wrote, as lines of headers, and what it means.
type foreign struct {
	lines      []string
	id, kind   string // the event's ID and type; the ID is empty if the message has none
	key        string
	reason     string // why the message is not an event; empty if it is one
	structured bool
}

// drawForeign draws the n-th message, whose subject is given.
func drawForeign(rnd *rand.Rand, n int, subject string) foreign {
	m := foreign{kind: subject, lines: []string{fmt.Sprint("X-N: ", n)}}
	add := func(format string, values ...any) { m.lines = append(m.lines, fmt.Sprintf(format, values...)) }
	name := func(s string) string { // headers are compared without case
		return []string{s, strings.ToUpper(s), strings.ToUpper(s[:1]) + s[1:]}[rnd.IntN(3)]
	}
	one := func(of int) bool { return rnd.IntN(of) == 0 }
	id := fmt.Sprintf("f-%d %% ö", n)
	if one(2) {
		m.id = id
		add("%s: %s", name("ce-id"), url.PathEscape(id))
	}
	if one(2) {
		plain := fmt.Sprint("m-", n)
		add("Nats-Msg-Id: %s", plain)
		if m.id == "" {
			m.id = plain
		}
	}
	if one(2) {
		m.kind = "order.other"
		add("%s: order.other", name("ce-type"))
	}
	if one(3) {
		m.key = "k 1"
		add("%s: k%%201", name("ce-partitionkey"))
	}
	for hop := range rnd.IntN(4) { // streams that republish add their own headers to those of the stream before
		add("Nats-Stream: S%d", hop)
		add("Nats-Sequence: %d", rnd.IntN(1000))
		add("Nats-Last-Sequence: %d", hop)
	}
	if one(3) {
		add("%s: %s", name("ce-time"), []string{"2026-02-03t04:05:06z", "2016-12-31T23:59:60Z", "2026-02-03T04:05:06.123+01:00"}[rnd.IntN(3)])
	}
	if one(4) {
		add("ce-unheardof: a")
		add("CE-Unheardof: b")
		add("X-Own: 1")
		add("X-Own: 2")
	}
	if one(5) {
		m.structured, m.id, m.kind, m.key = true, fmt.Sprint("s-", n), "order.whole", ""
		add("%s: application/cloudevents+json; charset=utf-8", name("content-type"))
	}
	if one(3) {
		fault := []foreign{
			{lines: []string{"ce-source: /a", "Ce-Source: /b"}, reason: "two values"},
			{lines: []string{"ce-source: a%0Ab"}, reason: "control character or is not UTF-8"},
			{lines: []string{"ce-source: %ff"}, reason: "control character or is not UTF-8"},
			{lines: []string{"postroom-logged-at: yesterday"}, reason: "no time"},
			{lines: []string{"content-type: application/cloudevents-batch+json"}, reason: "a format that is not read"},
			{lines: []string{"X-Broken: a\nb"}, reason: "headers cannot be read"},
		}[rnd.IntN(6)]
		if m.structured && fault.reason != "two values" && fault.reason != "no time" && !strings.HasPrefix(fault.reason, "headers") {
			return m // the document counts, and not these headers
		}
		m.lines, m.reason = append(m.lines, fault.lines...), fault.reason
	}
	return m
}

// Messages of other programs are handled as what they say they are, once, or are dead with their reason.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]inbox.Order{"unordered": inbox.Unordered, "ordered": inbox.HoldKey, "skipping": inbox.SkipKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rnd := devtest.Random(t, 0)
			b := newBench(t)
			cfg := b.config()
			cfg.Logger = slog.New(slog.DiscardHandler)
			b.in = inbox.New(b.pool, b.nc, cfg)
			var mu sync.Mutex
			seen := make(map[string][]postroom.Event)
			s := b.subscription("h")
			s.Types, s.Subjects, s.Order = nil, []string{b.stream + ".placed"}, order
			b.in.Handle(s, postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
				mu.Lock()
				defer mu.Unlock()
				seen[ev.Headers["X-N"]] = append(seen[ev.Headers["X-N"]], ev)
				return nil
			}))
			b.run()
			const n = 300
			all := make([]foreign, n)
			dead := 0
			for i := range all {
				all[i] = drawForeign(rnd, i, b.stream+".placed")
				body := "body"
				if all[i].structured {
					body = fmt.Sprintf(`{"specversion":"1.0","id":"s-%d","source":"/other","type":"order.whole","data":1}`, i)
				}
				b.publishBlock(strings.Join(all[i].lines, "\r\n")+"\r\n", body)
				if all[i].reason != "" {
					dead++
				}
			}
			b.eventually("all to be decided", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(seen)+b.dead("h") >= n
			})
			b.drained()
			if got := b.dead("h"); got != dead {
				t.Errorf("%d are dead, want %d", got, dead)
			}
			for i, m := range all {
				events := seen[fmt.Sprint(i)]
				switch {
				case m.reason != "" && len(events) > 0:
					t.Errorf("the handler got %+v of %q", events[0], m.lines)
				case m.reason != "":
				case len(events) != 1:
					t.Errorf("%d deliveries of %q", len(events), m.lines)
				case events[0].Type != m.kind || events[0].Key != m.key || m.id != "" && events[0].ID != m.id:
					t.Errorf("the handler got %+v of %q", events[0], m.lines)
				}
			}
			for reason, want := range count(all) {
				var got int
				err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held WHERE class = 'undecodable' AND strpos(failures::text, $1) > 0", reason).Scan(&got)
				if err != nil || got != want {
					t.Errorf("%d are dead because of %q (%v), want %d", got, reason, err, want)
				}
			}
		})
	}
}

// count returns how many messages have each reason.
func count(all []foreign) map[string]int {
	n := make(map[string]int)
	for _, m := range all {
		if m.reason != "" {
			n[m.reason]++
		}
	}
	return n
}
