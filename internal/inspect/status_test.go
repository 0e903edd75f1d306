package inspect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

// hold holds an event of a handler, with the given columns in SQL.
func (p *rig) hold(handler, id, columns, values string) {
	p.Helper()
	p.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ($1, $2)", handler, "/shop "+id)
	p.exec(`INSERT INTO postroom.held (handler, dedupe_key, logged_at, source, event_id, type, subject, content_type, data, `+columns+`)
		VALUES ($1, $2, now(), '/shop', $3, 'a.b', 'a.b', 'text/plain', 'c4nary', `+values+`)`, handler, "/shop "+id, id)
}

// holdOutgoing holds an event on its way to the broker.
func (p *rig) holdOutgoing(pos int, columns, values string) {
	p.Helper()
	p.exec(`INSERT INTO postroom.held (handler, pos, logged_at, source, event_id, type, subject, content_type, data, `+columns+`)
		VALUES ('outbox', $1::bigint, now(), '/shop', 'out-' || $1::bigint, 'a.b', 'a.b', 'text/plain', 'c4nary', `+values+`)`, pos)
}

// lives adds a process that runs handlers.
func (p *rig) lives(handlers ...string) {
	p.Helper()
	p.exec("INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'host/1/a', $1, array_fill(interval '30 days', ARRAY[$2::int]), array_fill(interval '29 days', ARRAY[$2::int]), '30 days')", handlers, len(handlers))
}

func (p *rig) overrideRelayLease() {
	p.Helper()
	p.exec("UPDATE postroom.relay SET owner = 'r', epoch = 1, expires_at = now() + interval '1 hour'")
}

func TestFindings(t *testing.T) {
	t.Parallel()
	const job = `INSERT INTO postroom.replay (actor, filter, attempts, canary, stop_at, as_new, phase, items, stepped_at) VALUES ('ann', '{}', 1, 0, 1, false, 'rest', 5, now() - interval `
	tests := []struct {
		name string
		make func(p *rig)
		want []string
		says string
	}{
		{"nothing was ever sent", func(*rig) {}, nil, ""},
		{"a consumer alone", func(p *rig) { p.lives("h"); p.hold("h", "1", "next_at", "now()") }, nil, ""},
		{"events and no relay", func(p *rig) { p.write(p.event("1", "x", "")) }, []string{"no_relay"}, "start 'postroom relay'"},
		{"a relay that an operator paused", func(p *rig) {
			p.write(p.event("1", "x", ""))
			p.exec("UPDATE postroom.relay SET epoch = 3")
			p.exec("UPDATE postroom.outbox SET created_at = now() - interval '2 minutes'")
			p.exec("INSERT INTO postroom.pause (handler, actor, reason) VALUES ('outbox', 'ann', 'why')")
		}, nil, ""},
		{"a relay that is gone", func(p *rig) { p.exec("UPDATE postroom.relay SET epoch = 3") }, []string{"no_relay"}, ""},
		{"a relay that holds, and is gone", func(p *rig) { p.holdOutgoing(1, "next_at", "now() + interval '1 hour'") }, []string{"no_relay"}, ""},
		{"an event just written", func(p *rig) { p.overrideRelayLease(); p.write(p.event("1", "x", "")) }, nil, ""},
		{"an event that waits", func(p *rig) {
			p.overrideRelayLease()
			p.write(p.event("1", "x", ""))
			p.exec("UPDATE postroom.outbox SET created_at = now() - interval '2 minutes'")
		}, []string{"unpublished"}, "about 1 events are not published, the oldest for 2m0s"},
		{"an event that waits for a stream that is down", func(p *rig) {
			p.overrideRelayLease()
			p.write(p.event("1", "x", ""))
			p.exec("UPDATE postroom.outbox SET created_at = now() - interval '18 seconds'")
		}, []string{"unpublished"}, "the oldest for 18s"},
		{"a log without a relay, whose event waits", func(p *rig) {
			p.write(p.event("1", "x", ""))
			p.exec("UPDATE postroom.outbox SET created_at = now() - interval '2 minutes'")
		}, []string{"no_relay"}, "no relay has led yet, and the oldest event that is not published has waited for 2m0s"},
		{"a copy of a database", func(p *rig) { p.exec("UPDATE postroom.relay SET cluster = 1") }, []string{"restored"}, "UPDATE postroom.instance SET id"},
		{"a log of a server that is ahead", func(p *rig) {
			p.exec("UPDATE postroom.relay SET timeline = 9, snap = '1000000000:1000000000:'")
		}, []string{"moved"}, "a relay last led on timeline 9, and this server has timeline 1"},
		{"an event read and not acknowledged", func(p *rig) {
			p.overrideRelayLease()
			p.write(p.event("1", "x", ""))
			p.exec("UPDATE postroom.outbox SET created_at = now() - interval '2 minutes'")
			p.exec("UPDATE postroom.relay SET high = 1, pending = '{[1,2)}'")
		}, []string{"unpublished"}, ""},
		{"a published event", func(p *rig) {
			p.overrideRelayLease()
			p.write(p.event("1", "x", ""))
			p.exec("UPDATE postroom.outbox SET created_at = now() - interval '2 minutes'")
			p.exec("UPDATE postroom.relay SET high = 1")
		}, nil, ""},
		{"an outgoing event overdue", func(p *rig) { p.overrideRelayLease(); p.holdOutgoing(1, "next_at", "now() - interval '1 minute'") }, []string{"overdue outbox"}, ""},
		{"dead events", func(p *rig) {
			p.overrideRelayLease()
			p.lives("h")
			p.hold("h", "1", "dead_at, class", "now(), 'x'")
			p.hold("h", "2", "dead_at, class", "now(), 'x'")
			p.holdOutgoing(1, "dead_at, class", "now(), 'x'")
		}, []string{"dead h", "dead outbox"}, "2 events are dead at h"},
		{"events without a process", func(p *rig) { p.hold("h", "1", "next_at", "now()") }, []string{"no_process h"}, "1 event is held for it"},
		{"events of one that fell silent", func(p *rig) {
			p.lives("h")
			p.hold("h", "1", "next_at", "now()")
			p.exec("UPDATE postroom.node SET seen_at = now() - interval '2 minutes'")
		}, []string{"no_process h"}, ""},
		{"events that no process takes", func(p *rig) { p.lives("h"); p.hold("h", "1", "next_at", "now() - interval '1 minute'") }, []string{"overdue h"}, "due for 1m0s"},
		{"a claim that ran out", func(p *rig) {
			p.lives("h")
			p.hold("h", "1", "next_at, claimed_by", "now() - interval '1 minute', 'p'")
		}, []string{"overdue h"}, ""},
		{"a claim", func(p *rig) {
			p.lives("h")
			p.hold("h", "1", "next_at, claimed_by", "now() + interval '1 minute', 'p'")
		}, nil, ""},
		{"a replay that a process runs", func(p *rig) { p.exec(job + `'20 s')`) }, nil, ""},
		{"a replay that is idle", func(p *rig) { p.exec(job + `'40 s')`) }, []string{"replay_idle"}, "replay 1 has been idle for 40s: no process runs it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newRig(t)
			tt.make(p)
			s := p.status(p.alone())
			if got := codes(s); !slices.Equal(got, append([]string{}, tt.want...)) {
				t.Errorf("findings: %v, want %v", got, tt.want)
			}
			text := ""
			for _, f := range s.Findings {
				text += f.Text + "\n" + f.Remedy + "\n"
				if f.Text == "" || f.Remedy == "" {
					t.Errorf("finding %+v", f)
				}
			}
			if !strings.Contains(text, tt.says) {
				t.Errorf("want %q in %s", tt.says, text)
			}
			if r := s.Relay; (r.OldestUnpublishedAgeSeconds > 0) == r.OldestUnpublishedAt.IsZero() {
				t.Errorf("oldest unpublished: %+v", r)
			}
			if s.Broker.Asked {
				t.Error("the broker was asked")
			}
		})
	}
}

// The answers distinguish all states of a held event, for events of handlers and for outgoing
// events.
func TestStatesOfHeldEvents(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.hold("h", "due", "next_at", "now() - interval '5 s'")
	p.hold("h", "retrying", "next_at, class", "now() + interval '1 hour', 'x'")
	p.hold("h", "running", "next_at, claimed_by", "now() + interval '1 hour', 'p'")
	p.hold("h", "abandoned", "next_at, claimed_by", "now() - interval '1 hour', 'p'")
	p.hold("h", "head", "next_at, chain, pos, class", "now() + interval '1 hour', 'k', 1, 'x'")
	p.hold("h", "waiting", "chain, pos, held_at", "'k', 2, now() - interval '2 hours'")
	p.hold("h", "dead", "dead_at, class, chain, pos", "now() - interval '3 hours', 'x', 'other', 1")
	p.holdOutgoing(1, "next_at", "now() + interval '1 hour'")
	p.holdOutgoing(2, "next_at, class, chain", "now() + interval '1 hour', 'x', 'k'")
	p.holdOutgoing(3, "chain", "'k'")
	s := p.status(p.alone())
	h, out := heldOf(s.Held, "h"), heldOf(s.Held, inspect.Outgoing)
	for state, want := range map[held.State]int64{
		held.Due: 1, held.Retrying: 2, held.Running: 1, held.Abandoned: 1, held.Waiting: 1, held.Dead: 1,
	} {
		if got := h.Events(state); got != want {
			t.Errorf("%d are %s, want %d", got, state, want)
		}
	}
	if h.Events() != 7 || h.Keys != 2 || h.More() {
		t.Errorf("held: %+v", h)
	}
	if out.Events(held.Scheduled) != 1 || out.Events(held.Retrying) != 1 || out.Events(held.Waiting) != 1 || out.Keys != 1 {
		t.Errorf("held outgoing: %+v", out)
	}
	for _, c := range h.States {
		switch {
		case c.State == held.Waiting && int(c.OldestAgeSeconds) != 7200, c.State == held.Dead && int(c.OldestAgeSeconds) != 10800,
			c.State == held.Abandoned && int(c.OverdueSeconds) != 3600, c.State == held.Due && int(c.OverdueSeconds) != 5:
			t.Errorf("%+v", c)
		}
	}
	for _, id := range []string{"due", "retrying", "running", "abandoned", "waiting", "dead"} { // now each state by itself
		if held := p.trace(p.alone(), "/shop", id).Held; len(held) != 1 || string(held[0].State) != id {
			t.Errorf("%s: %+v", id, held)
		}
	}
}

// However many events are in one state, those in another are counted: five dead events are five, and
// status finds them. A number at which counting stopped says so.
func TestCountsBesideVeryManyEventsInAnotherState(t *testing.T) {
	t.Parallel()
	const many = 10_001
	manyHeld := func(p *rig, handler, key, next, dead string) {
		if handler != inspect.Outgoing {
			p.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT $1, '/shop ' || n FROM generate_series(1000, 999 + $2::int) n", handler, many)
		}
		p.exec(fmt.Sprintf(`INSERT INTO postroom.held (handler, dedupe_key, pos, chain, next_at, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
			SELECT $1::text, CASE WHEN $1::text <> 'outbox' THEN '/shop ' || n END, n, %s, %s, %s, CASE WHEN %[3]s IS NOT NULL THEN 'x' END, now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', ''
			FROM generate_series(1000, 999 + $2::int) n`, key, next, dead), handler, many)
	}
	few := func(p *rig, handler, id string, pos int, columns, values string) {
		if handler == inspect.Outgoing {
			p.holdOutgoing(pos, columns, values)
			return
		}
		p.hold(handler, id, columns+", pos", fmt.Sprint(values, ", ", pos))
	}
	for _, handler := range []string{"h", inspect.Outgoing} {
		for of, insert := range map[held.State]func(p *rig){
			held.Scheduled: func(p *rig) { manyHeld(p, handler, "NULL::text", "now() + interval '1 h'", "NULL::timestamptz") },
			held.Dead:      func(p *rig) { manyHeld(p, handler, "'d' || n", "NULL::timestamptz", "now()") },
			held.Waiting:   func(p *rig) { manyHeld(p, handler, "'k'", "NULL::timestamptz", "NULL::timestamptz") },
		} {
			t.Run(handler+", "+string(of), func(t *testing.T) {
				t.Parallel()
				p := newRig(t)
				p.lives("h")
				insert(p)
				for n := range 5 {
					few(p, handler, fmt.Sprint("dead", n), 1+n, "dead_at, class", "now(), 'x'")
				}
				for n := range 3 {
					few(p, handler, fmt.Sprint("waits", n), 10+n, "chain", "'few'")
				}
				few(p, handler, "due", 20, "next_at, class, chain", "now(), 'x', 'few'")
				s := p.status(p.alone())
				got := heldOf(s.Held, handler)
				for state, want := range map[held.State]int64{held.Dead: 5, held.Waiting: 3, held.Due: 1} {
					if n, more := got.Events(state), got.More(state); state == of && (n != 10_000 || !more) || state != of && (n != want || more && state != held.Due) {
						t.Errorf("%s: %d, more: %t", state, n, more)
					}
				}
				if !got.More(of) {
					t.Errorf("nothing says that there may be more events than %d", got.Events(of))
				}
				if !slices.Contains(codes(s), "dead "+handler) {
					t.Errorf("found %v, want the dead events", codes(s))
				}
			})
		}
	}
}

// If the stream or the consumer of a handler is gone, that is a finding. It needs a broker.
func TestFindingsOfTheBroker(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	in := inbox.New(p.pool, p.nc, inbox.Config{})
	in.Handle(p.subscription("h", "placed"), postroom.HandlerFunc(failsSome))
	ordered := p.subscription("o", "placed")
	ordered.Order = inbox.HoldKey
	in.Handle(ordered, postroom.HandlerFunc(failsSome))
	stop := p.run(in)
	i := p.inspector()
	p.eventually("both to read", func() bool {
		h, err := i.Handlers(t.Context())
		return err == nil && len(h.Handlers) == 2 && h.Handlers[0].Broker != nil && h.Handlers[0].Broker.Consumer != "" &&
			h.Handlers[1].Reader != nil && h.Handlers[1].Reader.Reads
	})
	if got := codes(p.status(i)); len(got) > 0 {
		t.Errorf("findings: %v", got)
	}
	stop()
	if got, want := codes(p.status(i)), []string{"no_process h", "no_process o"}; !slices.Equal(got, want) {
		t.Errorf("stopped: %v, want %v", got, want)
	}
	p.lives("h", "o")
	if got, want := codes(p.status(i)), []string{"no_reader o"}; !slices.Equal(got, want) {
		t.Errorf("without a reader: %v, want %v", got, want)
	}
	p.exec("UPDATE postroom.subscription SET reader = 'p', reader_until = now() + interval '1 hour' WHERE handler = 'o'")

	p.raw("placed", "1") // now both handlers are behind
	p.eventually("the status to show pending events", func() bool {
		h, err := i.Handlers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		un, or := h.Handlers[0].Broker, h.Handlers[1].Broker
		return un.Pending == 1 && or.Pending == 1 && !un.OldestAt.IsZero() && un.OldestAt.Equal(or.OldestAt) && un.LastSeq == 1
	})
	stream, err := p.js.Stream(t.Context(), p.stream)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for name := range stream.ConsumerNames(t.Context()).Name() {
		left = append(left, name)
	}
	if len(left) != 1 {
		t.Errorf("consumers: %v, want only that of h", left)
	}
	if _, err := stream.PauseConsumer(t.Context(), left[0], time.Now().Add(time.Hour)); err == nil { // NATS 2.11 can
		p.wantPaused(i, left[0])
	}
	if err := stream.DeleteConsumer(t.Context(), left[0]); err != nil {
		t.Fatal(err)
	}
	if got, want := codes(p.status(i)), []string{"no_consumer h"}; !slices.Equal(got, want) {
		t.Errorf("without its consumer: %v, want %v", got, want)
	}
	p.exec("UPDATE postroom.subscription SET stream_created = '2020-01-01'")
	if got, want := codes(p.status(i)), []string{"stream_recreated h", "stream_recreated o"}; !slices.Equal(got, want) {
		t.Errorf("another stream: %v, want %v", got, want)
	}
	p.exec("UPDATE postroom.subscription SET stream = 'NOWHERE'")
	if got, want := codes(p.status(i)), []string{"no_stream h", "no_stream o"}; !slices.Equal(got, want) {
		t.Errorf("no stream: %v, want %v", got, want)
	}
}

// wantPaused checks that status and handlers say that h's consumer is paused at the broker.
func (p *rig) wantPaused(i *inspect.Inspector, consumer string) {
	p.Helper()
	if s := p.status(i); len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "handler h gets no events from the broker: its consumer "+consumer) {
		p.Errorf("notes: %q, want that its consumer is paused", s.Notes)
	}
	h, err := i.Handlers(p.Context())
	if err != nil || len(h.Handlers[0].Pauses()) != 1 || len(h.Handlers[1].Pauses()) != 0 {
		p.Errorf("handlers: %+v, %v, want that the consumer of the first is paused", h, err)
	}
}

// If the broker is away, the answer says so and has what the database knows.
func TestAnswersComeWithoutABroker(t *testing.T) {
	t.Parallel()
	server := devtest.OwnNATS(t)
	nc, err := nats.Connect(server.URL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	p := newRigOn(t, nc)
	p.write(p.event("1", "placed", ""))
	p.exec("UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()")
	p.exec(`INSERT INTO postroom.subscription (handler, stream, stream_created, subjects) VALUES ('h', $1, now(), '{}')`, p.stream)
	server.Stop()
	p.eventually("the connection to notice", func() bool { return !nc.IsConnected() })
	s := p.status(p.inspector())
	if !s.Broker.Asked || s.Broker.Fault == "" || !slices.Contains(codes(s), "broker") {
		t.Errorf("status: %+v", s)
	}
	h, err := p.inspector().Handlers(t.Context())
	if err != nil || h.Broker.Fault == "" || len(h.Handlers) != 1 || h.Handlers[0].Broker != nil {
		t.Errorf("handlers: %+v, %v", h, err)
	}
	j := p.trace(p.inspector(), "", "1")
	if j.Broker.Fault == "" || len(j.LogEntries) != 1 || j.LogEntries[0].State != inspect.Published {
		t.Errorf("event: %+v", j)
	}
}
