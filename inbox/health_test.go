package inbox_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
)

// The health of an inbox follows its run: it names a handler without its stream, the outage of the
// broker, and the drain.
func TestHealth(t *testing.T) {
	t.Parallel()
	broker := devtest.OwnNATS(t)
	nc, err := nats.Connect(broker.URL(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := newBenchOn(t, devtest.Pool(t), nc)
	release := make(chan struct{})
	other := jetstream.StreamConfig{Name: b.stream + "-other", Subjects: []string{b.stream + "-other"}}
	if err := natsjs.EnsureStream(t.Context(), nc, other); err != nil {
		t.Fatal(err)
	}
	for name, order := range map[string]inbox.Order{"unordered": inbox.Unordered, "ordered": inbox.HoldKey} {
		late := b.subscription(name)
		late.Stream, late.Types, late.Order = other.Name, []string{other.Name}, order
		b.in.Handle(late, effect(name))
	}
	entered := make(chan struct{})
	b.in.HandleExternal(b.subscription("slow"), func(context.Context, *inbox.Attempt) error {
		close(entered)
		<-release
		return nil
	})
	health := func() inbox.Health { return b.in.Health() }
	if h := health(); h.State != inbox.Stopped || h.Live() == nil || h.Ready() == nil {
		t.Errorf("before Run: %+v, %v, %v", h, h.Live(), h.Ready())
	}
	stop := b.run()
	b.eventually("it to be ready", func() bool { h := health(); return h.Ready() == nil && h.Live() == nil })
	if h := health(); h.State != inbox.Running || !h.Connected || h.RecordedAt.IsZero() || len(h.Faults) > 0 {
		t.Errorf("while it runs: %+v", h)
	}

	if err := b.js.DeleteStream(t.Context(), other.Name); err != nil {
		t.Fatal(err)
	}
	b.eventually("both handlers to lack their stream", func() bool {
		h := health()
		return h.Ready() == nil && len(h.Faults) == 2 && strings.HasPrefix(h.Faults[0].Error(), "handler ordered: ") && strings.HasPrefix(h.Faults[1].Error(), "handler unordered: ")
	})
	text, err := json.Marshal(health())
	if err != nil || !strings.HasPrefix(string(text), `{"state":"running","since":"`) || !strings.Contains(string(text), `"faults":["handler ordered: `) {
		t.Errorf("as JSON: %s, %v", text, err)
	}
	if err := natsjs.EnsureStream(t.Context(), nc, other); err != nil {
		t.Fatal(err)
	}
	b.eventually("the faults to end", func() bool { return len(health().Faults) == 0 })

	broker.Stop()
	b.eventually("the outage to show", func() bool {
		h := health()
		return h.Live() == nil && h.Ready() != nil && !h.Connected && h.State == inbox.Running
	})
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	devtest.Answers(t, nc)
	b.eventually("it to be ready again", func() bool { return health().Ready() == nil })

	b.publish("a")
	<-entered
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	b.eventually("the drain", func() bool {
		h := health()
		return h.State == inbox.Draining && h.Live() == nil && h.Ready() != nil
	})
	close(release)
	<-stopped
	if h := health(); h.State != inbox.Stopped || h.Live() == nil {
		t.Errorf("after Run: %+v", h)
	}
}

// The names of handlers that an operator paused are part of the health.
func TestHealthNamesPausedHandlers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, name := range []string{"b", "a", "c"} {
		b.in.Handle(b.subscription(name), effect(name))
	}
	b.run()
	b.eventually("it to be ready", func() bool { return b.in.Health().Ready() == nil })
	store := operator.New(b.pool, operator.Config{})
	for _, name := range []string{"b", "a"} {
		if err := store.Pause(t.Context(), name, 0, postroom.Audit{Actor: "ann", Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
	}
	b.eventually("the pauses", func() bool { return slices.Equal(b.in.Health().Paused, []string{"a", "b"}) })
}

// An inbox that reads no stream needs no broker, although it has a connection.
func TestHealthWithoutStreamsNeedsNoBroker(t *testing.T) {
	t.Parallel()
	broker := devtest.OwnNATS(t)
	nc, err := nats.Connect(broker.URL(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := newBenchOn(t, devtest.Pool(t), nc)
	b.in.Handle(inbox.Subscription{Name: "accepts"}, effect("accepts"))
	b.run()
	b.eventually("it to be ready", func() bool { return b.in.Health().Ready() == nil })
	broker.Stop()
	b.eventually("the connection to end", func() bool { return !nc.IsConnected() })
	if h := b.in.Health(); !h.Connected || h.Ready() != nil {
		t.Errorf("without a broker: %+v, %v", h, h.Ready())
	}
}
