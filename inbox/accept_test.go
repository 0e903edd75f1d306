package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
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
		want          inbox.AcceptResult
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

// The body of an accepted event may be larger than one that a broker takes, up to a limit.
func TestLargeAccepted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sizes := make(chan int, 1)
	b.in.Handle(inbox.Subscription{Name: "webhook", Workers: 1}, postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
		sizes <- len(ev.Data)
		return nil
	}))
	large := postroom.Event{ID: "large", Source: "/shop", Type: "t", Data: bytes.Repeat([]byte("x"), postroom.MaxAccepted)}
	for _, want := range []inbox.AcceptResult{inbox.Stored, inbox.Duplicate} {
		if got, err := b.in.Accept(t.Context(), "webhook", large); got != want || err != nil {
			t.Errorf("Accept of %d bytes = %v, %v, want %s", len(large.Data), got, err, want)
		}
	}
	larger := large
	larger.ID, larger.Data = "larger", append(larger.Data, 'x')
	if got, err := b.in.Accept(t.Context(), "webhook", larger); got != "" || !errors.Is(err, postroom.ErrInvalidEvent) {
		t.Errorf("Accept of %d bytes = %v, %v, want it refused", len(larger.Data), got, err)
	}
	b.run()
	if got := devtest.Receive(t, time.Minute, "the handler to be called", sizes); got != postroom.MaxAccepted {
		t.Errorf("the handler got %d bytes, want %d", got, postroom.MaxAccepted)
	}
}

// A webhook that is delivered again differs in one field: it is a duplicate by its key,
// and without one a conflict.
func TestRedeliveryThatDiffers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "plain", Workers: 1}, effect("plain"))
	b.in.Handle(inbox.Subscription{
		Name: "keyed", Workers: 1, DedupeKey: func(ev postroom.Event) string { return "stripe " + ev.ID },
	}, effect("keyed"))
	webhook := func(pending int) postroom.Event {
		return postroom.Event{ID: "evt_1", Source: "/stripe", Type: "charge.succeeded", Data: fmt.Appendf(nil, `{"id":"evt_1","pending_webhooks":%d}`, pending)}
	}
	for handler, want := range map[string]inbox.AcceptResult{"plain": inbox.Conflict, "keyed": inbox.Duplicate} {
		if got, err := b.in.Accept(t.Context(), handler, webhook(2)); got != inbox.Stored || err != nil {
			t.Errorf("%s: the first = %v, %v", handler, got, err)
		}
		if got, err := b.in.Accept(t.Context(), handler, webhook(1)); got != want || err != nil {
			t.Errorf("%s: the second = %v, %v, want %s", handler, got, err, want)
		}
	}
	b.run()
	b.eventually("one effect each", func() bool { return b.effects("plain")["evt_1"] == 1 && b.effects("keyed")["evt_1"] == 1 })
	if held := b.held("keyed"); len(held) != 0 {
		t.Errorf("held %v, want nothing of the handler with a key", held)
	}
}
