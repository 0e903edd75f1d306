package inbox_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/wire"
)

// oneKey is a DedupeKey function that returns the same key for all events.
func oneKey(postroom.Event) string { return "commission:1" }

// DedupeKey fails for an event, is corrected, and an operator replays the event. Another event with
// the same key has taken effect meanwhile.
func TestAReplayedEventHasItsKeyMade(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.DedupeKey = func(ev postroom.Event) string {
		if ev.ID == "a" {
			panic("no key")
		}
		return oneKey(ev)
	}
	b.in.Handle(sub, effect("h"))
	stop := b.run()
	b.publish("a")
	b.eventually("the event to be dead", func() bool { return b.dead("h") == 1 })
	b.publish("b")
	b.eventually("the other to take effect", func() bool { return len(b.effects("h")) == 1 })
	stop()

	b.in = inbox.New(b.pool, b.nc, b.config())
	sub.DedupeKey = oneKey
	b.in.Handle(sub, effect("h"))
	b.run()
	b.overrideDeadNextAtAndAttempts("h", "/shop a")
	b.eventually("the event to be settled", func() bool { return len(b.held("h")) == 0 })
	b.wantOnce("h", "b")
}

// The process ends while DedupeKey makes the key of an event, until the event is dead. An operator
// edits the event, so that its key can be made, and replays it. Another event with that key has taken
// effect.
func TestAnEditedEventHasItsKeyMade(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.DedupeKey = func(ev postroom.Event) string {
		if ev.ID == "a" && string(ev.Data) == `"a"` {
			panic("no key")
		}
		return oneKey(ev)
	}
	b.in.Handle(sub, effect("h"))
	b.run()
	b.publish("a")
	b.eventually("the event to be dead", func() bool { return b.dead("h") == 1 })
	b.exec("UPDATE postroom.held SET class = 'crash', solitary = true") // as if it had ended processes
	b.publish("b")
	b.eventually("the other to take effect", func() bool { return len(b.effects("h")) == 1 })
	b.exec("UPDATE postroom.held SET data = '1', revision = 1") // as 'postroom dead edit' does
	b.overrideDeadNextAtAndAttempts("h", "/shop a")
	b.eventually("the event to be settled", func() bool { return len(b.held("h")) == 0 })
	b.wantOnce("h", "b")
}

// Accepted events wait while a deploy gives their handler a DedupeKey. They have the same key, so only
// one of them takes effect.
func TestABatchOfEventsWithoutTheirKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := inbox.Subscription{Name: "h", Workers: 1, Batch: 10}
	b.in.Handle(sub, effect("h"))
	b.acceptMany("h", 5)

	b.in = inbox.New(b.pool, b.nc, b.config())
	sub.DedupeKey = oneKey
	b.in.Handle(sub, effect("h"))
	b.run()
	b.eventually("the events to be settled", func() bool { return len(b.held("h")) == 0 })
	if n := len(b.effects("h")); n != 1 {
		t.Errorf("%d effects, want one", n)
	}
}

// Events of a key wait behind an event while a deploy gives their handler a DedupeKey.
func TestEventsWithoutTheirKeysBehindAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.ordered("o", inbox.HoldKey)
	sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
	b.in.Handle(sub, bad("o"))
	stop := b.run()
	b.publishEvent(postroom.Event{ID: "bad", Source: "/shop", Type: b.stream + ".placed", Key: "k", Data: []byte("1")})
	for i := range 3 {
		b.publishKey("k", i)
	}
	b.eventually("the events to wait", func() bool { return len(b.held("o")) == 4 })
	stop()

	b.in = inbox.New(b.pool, b.nc, b.config())
	sub.DedupeKey = func(ev postroom.Event) string {
		if ev.ID == "bad" {
			return "another"
		}
		return oneKey(ev)
	}
	b.in.Handle(sub, effect("o"))
	b.exec("UPDATE postroom.held SET next_at = now() WHERE next_at IS NOT NULL")
	b.run()
	b.eventually("the events to be settled", func() bool { return len(b.held("o")) == 0 })
	b.wantOnce("o", "bad", "k-00000")
}

// A message could not be decoded, and can be when an operator replays it. Its event was decided
// meanwhile, because it was published once more. If the two differ, the replayed one is a conflict.
func TestAnEventThatIsDecodedLate(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func(postroom.Event) string{"its source and id": nil, "its own key": oneKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.subscription("h")
			sub.DedupeKey = own
			b.in.Handle(sub, effect("h"))
			b.run()
			header := nats.Header(wire.Encode(postroom.Event{ID: "a", Source: "/shop", Type: b.stream + ".placed", Time: time.Now()}))
			header.Del(jetstream.MsgIDHeader)
			header.Set("ce-time", "never")
			for _, data := range []string{`"a"`, `"other"`} {
				b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: header, Data: []byte(data)})
			}
			b.eventually("the messages to be dead", func() bool { return b.dead("h") == 2 })
			b.publish("a")
			b.eventually("the event to take effect", func() bool { return len(b.effects("h")) == 1 })
			b.exec("UPDATE postroom.held SET raw_headers = convert_to(replace(convert_from(raw_headers, 'UTF8'), 'never', '2026-01-02T03:04:05Z'), 'UTF8'), dead_at = NULL, next_at = now(), attempts = 0")
			b.eventually("the events to be settled or dead", func() bool { return b.counted("h", "duplicate")+b.counted("h", "conflict") == 2 })
			b.wantOnce("h", "a")
			if held := b.held("h"); own == nil && (len(held) != 1 || b.counted("h", "conflict") != 1) || own != nil && len(held) != 0 {
				t.Errorf("held: %v", held)
			}
		})
	}
}
