package inbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

func TestAccept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "webhook", Workers: 2}, effect("webhook")) // it reads no stream
	b.in.Handle(b.subscription("placed"), effect("placed"))
	ev := postroom.Event{ID: "a", Source: "/stripe", Type: "charge.succeeded", Data: []byte("1")}
	other := ev
	other.Data = []byte("2")
	ancient := ev
	ancient.ID, ancient.LoggedAt, ancient.Time = "b", time.Unix(0, 0), time.Unix(0, 0)
	steps := []struct {
		name, handler string
		ev            postroom.Event
		want          inbox.Acceptance
		err           error
	}{
		{"new", "webhook", ev, inbox.Stored, nil},
		{"the same, while it is owed", "webhook", ev, inbox.Duplicate, nil},
		{"other content", "webhook", other, inbox.Conflict, nil},
		{"other content again", "webhook", other, inbox.Conflict, nil},
		{"of any age", "webhook", ancient, inbox.Stored, nil},
		{"without an id", "webhook", postroom.Event{Source: "/stripe", Type: "charge.succeeded"}, inbox.Stored, nil},
		{"no such handler", "none", ev, "", inbox.ErrUnknownHandler},
		{"no event", "webhook", postroom.Event{ID: "c", Type: "a b"}, "", postroom.ErrInvalidEvent},
		{"of a type that the handler does not take", "placed", ev, "", postroom.ErrUnknownType},
	}
	for _, s := range steps {
		got, err := b.in.Accept(t.Context(), s.handler, s.ev)
		if got != s.want || !errors.Is(err, s.err) || err == nil && s.err != nil {
			t.Errorf("%s: Accept = %q, %v; want %q, %v", s.name, got, err, s.want, s.err)
		}
	}
	if got := b.held("webhook"); len(got) != 4 {
		t.Errorf("held: %v, want three that are owed and a conflict", got)
	}
	b.run()
	b.eventually("the effects", func() bool { return len(b.effects("webhook")) == 3 })
	b.eventually("the conflict alone to be left", func() bool { return len(b.held("webhook")) == 1 && b.dead("webhook") == 1 })
	if got, err := b.in.Accept(t.Context(), "webhook", ev); got != inbox.Duplicate || err != nil {
		t.Errorf("Accept of what was decided = %q, %v", got, err)
	}
	if n := b.effects("webhook")["a"]; n != 1 {
		t.Errorf("%d effects, want one", n)
	}
}

// What is accepted while the inbox runs is run at once, not at the next poll.
func TestAcceptWakesTheRunner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.IdlePoll = time.Hour
	b.in = inbox.New(b.pool, nil, cfg) // without a stream there is no need of a broker
	b.in.Handle(inbox.Subscription{Name: "webhook", Workers: 1}, effect("webhook"))
	b.run()
	for _, id := range []string{"a", "b", "c"} {
		if _, err := b.in.Accept(t.Context(), "webhook", postroom.Event{ID: id, Source: "/s", Type: "t"}); err != nil {
			t.Fatal(err)
		}
		b.eventually("its effect", func() bool { return b.effects("webhook")[id] == 1 })
	}
}

func TestDedupeKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("commission")
	sub.DedupeKey = func(ev postroom.Event) string {
		if ev.Key == "panic" {
			panic("no")
		}
		return ev.Key
	}
	b.in.Handle(sub, effect("commission"))
	publish := func(id, key string) {
		b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: key, Data: []byte(id)})
	}
	publish("first", "order 1")
	b.run()
	b.eventually("the effect", func() bool { return len(b.effects("commission")) == 1 })
	publish("second", "order 1") // another event, and no conflict
	publish("third", "order 2")
	publish("none", "")
	publish("panics", "panic")
	b.eventually("all to be decided", func() bool { return b.ledger("commission") == 4 && b.counted("commission", "duplicate") == 1 })
	b.drained()
	b.wantOnce("commission", "first", "third")
	for key, o := range b.held("commission") {
		if o.State != "dead" || o.Class != "dedupe_key" {
			t.Errorf("%s: %+v", key, o)
		}
	}
	if got := b.dead("commission"); got != 2 {
		t.Errorf("%d are dead, want the two without a key", got)
	}
}
