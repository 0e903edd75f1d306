package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// limit changes the stream's configuration as an operator would.
func (b *bench) limit(change func(*jetstream.StreamConfig)) {
	b.Helper()
	stream, err := b.js.Stream(b.Context(), b.stream)
	if err != nil {
		b.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	change(&cfg)
	if _, err := b.js.UpdateStream(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
}

// logged is the log of an inbox.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// Handlers run as usual if their stream has limits for its consumers.
func TestHandlersOfAStreamWithConsumerLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.limit(func(cfg *jetstream.StreamConfig) {
		cfg.ConsumerLimits = jetstream.StreamConsumerLimits{InactiveThreshold: 5 * time.Second, MaxAckPending: 10}
		cfg.MaxConsumers = -1
	})
	log := &logged{}
	cfg := b.config()
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	b.in = inbox.New(b.pool, b.nc, cfg)
	ordered := b.subscription("ordered")
	ordered.Order = inbox.HoldKey
	b.in.Handle(ordered, effect("ordered"))
	b.in.Handle(b.subscription("unordered"), effect("unordered"))
	if err := b.in.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := ids("e", 50)
	b.publish(want...)
	stop := b.run()
	b.eventually("all effects", func() bool { return len(b.effects("ordered")) == 50 && len(b.effects("unordered")) == 50 })
	stop()
	if log.has("interrupted") || log.has("not as it should be") {
		t.Errorf("the inbox complains: %s", log.text.String())
	}

	// The broker has removed both consumers.
	b.eventually("the consumers to be removed", func() bool { return len(b.consumers()) == 0 })
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(ordered, effect("ordered"))
	b.in.Handle(b.subscription("unordered"), effect("unordered"))
	b.publish("last")
	b.run()
	b.eventually("the last effect", func() bool { return b.effects("ordered")["last"] == 1 && b.effects("unordered")["last"] == 1 })
	b.wantOnce("ordered", append(want, "last")...)
	b.wantOnce("unordered", append(want, "last")...)
}

// A consumer got its threshold from a limit of the stream. If the limit is removed, the consumer
// loses the threshold.
func TestConsumerLosesItsThresholdWithTheStreamsLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	limits := func(d time.Duration) {
		b.limit(func(cfg *jetstream.StreamConfig) { cfg.ConsumerLimits.InactiveThreshold = d })
	}
	limits(time.Minute)
	threshold := func() time.Duration {
		b.in = inbox.New(b.pool, b.nc, b.config())
		b.in.Handle(b.subscription("h"), effect("h"))
		b.publish("a")
		stop := b.run()
		defer stop()
		b.drained()
		b.eventually("the consumer to be as it stays", func() bool { return len(b.consumers()) == 1 && b.consumers()[0].NumWaiting > 0 })
		return b.consumers()[0].Config.InactiveThreshold
	}
	if got := threshold(); got != time.Minute {
		t.Errorf("the threshold is %s, want that of the stream", got)
	}
	limits(0)
	if got := threshold(); got != 0 {
		t.Errorf("the threshold is %s, want none", got)
	}
}

// While handlers are busy and the reader requests nothing, the broker does not remove its
// consumer.
func TestBusyReaderKeepsItsConsumer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const threshold = 3 * time.Second
	b.limit(func(cfg *jetstream.StreamConfig) { cfg.ConsumerLimits.InactiveThreshold = threshold })
	cfg := b.config()
	cfg.AckWait = 15 * time.Second // a reader that loses its lease makes another consumer
	cfg.PullBytes = 2 << 20        // two events fill the memory
	b.in = inbox.New(b.pool, b.nc, cfg)
	sub := b.subscription("h")
	sub.Order = inbox.HoldKey
	entered, resume := make(chan struct{}, 10), make(chan struct{})
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		entered <- struct{}{}
		<-resume
		return effect("h").Handle(ctx, tx, ev)
	}))
	for i := range 6 {
		b.publishEvent(postroom.Event{ID: fmt.Sprint(i), Source: "/shop", Type: b.stream + ".placed", Key: fmt.Sprint(i), Data: make([]byte, 1_000_000)})
	}
	b.run()
	<-entered
	<-entered
	before := b.consumers()[0].Name
	gone := time.Now().Add(3 * threshold)
	b.eventually("the time in which the broker would remove it", func() bool { return time.Now().After(gone) })
	close(resume)
	b.eventually("all effects", func() bool { return len(b.effects("h")) == 6 })
	if all := b.consumers(); len(all) != 1 || all[0].Name != before {
		t.Errorf("the reader has another consumer")
	}
}

func TestCheckRefusesLimitsThatLeaveNoRoom(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(cfg *jetstream.StreamConfig)
		says   string // empty if the inbox may run
	}{
		{"a threshold that is too short", func(cfg *jetstream.StreamConfig) { cfg.ConsumerLimits.InactiveThreshold = 100 * time.Millisecond }, "inactive_threshold"},
		{"a transform", func(cfg *jetstream.StreamConfig) {
			cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: cfg.Subjects[0], Destination: "moved.>"}
		}, "subject_transform"},
		{"a transform of something else", func(cfg *jetstream.StreamConfig) {
			cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: cfg.Name + ".other", Destination: cfg.Name + ".moved"}
		}, ""},
		{"a transform that leaves the subject", func(cfg *jetstream.StreamConfig) {
			cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: cfg.Name + ".*", Destination: cfg.Name + ".{{wildcard(1)}}"}
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.limit(tt.change)
			b.in.Handle(b.subscription("h"), effect("h"))
			b.wantCheck(tt.says)
		})
	}
}

// wantCheck fails the test unless Check refuses the stream with the given text. If the text is
// empty, Check must pass, and events must take effect.
func (b *bench) wantCheck(says string) {
	b.Helper()
	err := b.in.Check(b.Context())
	switch {
	case says == "" && err != nil:
		b.Errorf("Check = %v, want nil", err)
	case says == "":
		b.publish("a")
		b.run()
		b.eventually("the effect", func() bool { return b.effects("h")["a"] == 1 })
	case !errors.Is(err, inbox.ErrStreamLimit) || !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), says):
		b.Errorf("Check = %v, want a refusal because of %s", err, says)
	}
}

// If a stream may have no more consumers, Check refuses it, unless the handler already has its
// own.
func TestCheckCountsConsumers(t *testing.T) {
	t.Parallel()
	for _, order := range []inbox.Order{inbox.Unordered, inbox.HoldKey} {
		b := newBenchOn(t, devtest.Pool(t), devtest.NATS(t))
		if err := b.js.DeleteStream(t.Context(), b.stream); err != nil {
			t.Fatal(err)
		}
		stream, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}, MaxConsumers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "another"}); err != nil {
			t.Fatal(err)
		}
		sub := b.subscription("h")
		sub.Order = order
		b.in.Handle(sub, effect("h"))
		b.wantCheck("max_consumers")
		if err := stream.DeleteConsumer(t.Context(), "another"); err != nil {
			t.Fatal(err)
		}
		b.wantCheck("")
		if err := b.in.Check(t.Context()); err != nil { // it has its own
			t.Errorf("Check = %v, want nil", err)
		}
	}
}
