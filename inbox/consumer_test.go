package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// If a handler takes longer than AckWait, its event is not delivered again. Nor are events
// that wait for a worker.
func TestSlowHandlersKeepTheirEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = 5 * time.Second })
	var mu sync.Mutex
	runs := 0
	sub := b.subscription("slow")
	sub.Workers = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		mu.Lock()
		runs++
		mu.Unlock()
		_, err := tx.Exec(ctx, "SELECT pg_sleep(6)") // longer than AckWait
		return errors.Join(err, effect("slow").Handle(ctx, tx, ev))
	}))
	b.run()
	b.publish("a", "b")
	b.eventually("two effects", func() bool { return len(b.effects("slow")) == 2 })
	b.drained()
	b.wantOnce("slow", "a", "b")
	if got := b.counted("slow", "duplicate"); got != 0 || runs != 2 {
		t.Errorf("%d runs and %d duplicates, want 2 and 0: the events were delivered again", runs, got)
	}
}

func TestRunDrains(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	began, finish := make(chan string, 10), make(chan struct{})
	release := sync.OnceFunc(func() { close(finish) })
	sub := b.subscription("drained")
	sub.Workers = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		began <- ev.ID
		<-finish
		return effect("drained").Handle(ctx, tx, ev)
	}))
	stop := b.run()
	t.Cleanup(release) // if the test fails, this must come before the wait for the inbox
	b.publish("a", "b", "c")
	<-began
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	b.eventually("the others to be handed back", func() bool { return b.counted("drained", "released") == 2 })
	release()
	<-stopped
	b.wantOnce("drained", "a") // this event had begun

	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(sub, effect("drained"))
	b.run()
	b.eventually("the rest", func() bool { return len(b.effects("drained")) == 3 })
	b.drained()
	b.wantOnce("drained", "a", "b", "c")
}

func TestALostConsumerIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("billing")) == 1 })
	b.loseConsumers()
	b.publish("b")
	b.eventually("the effect after the loss", func() bool { return len(b.effects("billing")) == 2 })
	b.drained()
	b.wantOnce("billing", "a", "b")
}

// A newer process asks for one more type. The older one, which shares the consumer, hands
// events of that type back.
func TestARollingDeployLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	b.publish("a")
	b.eventually("the older process to run", func() bool { return len(b.effects("billing")) == 1 })
	b.in = inbox.New(b.pool, b.nc, b.config())
	sub := b.subscription("billing")
	sub.Types = append(sub.Types, b.stream+".paid")
	b.in.Handle(sub, effect("billing"))
	b.run()
	want := []string{"a"}
	for i := range 50 {
		id := fmt.Sprint("paid", i)
		want = append(want, id)
		b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".paid", Data: []byte("1")})
	}
	b.eventually("all effects", func() bool { return len(b.effects("billing")) == len(want) })
	b.drained()
	b.wantOnce("billing", want...)
}

func TestDeliverNewSurvivesTheLossOfItsConsumer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("old")
	sub := b.subscription("late")
	sub.From = inbox.DeliverNew
	var gate sync.RWMutex // holds the handler up while the consumer is deleted
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		gate.RLock()
		defer gate.RUnlock()
		return effect("late").Handle(ctx, tx, ev)
	}))
	b.run()
	b.eventually("the consumer", func() bool {
		s, err := b.js.Stream(t.Context(), b.stream)
		return err == nil && s.CachedInfo().State.Consumers == 1
	})
	gate.Lock()
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprint("new", i))
	}
	b.publish(want...)
	b.loseConsumers()
	gate.Unlock()
	b.eventually("the new ones", func() bool { return len(b.effects("late")) >= len(want) })
	b.drained()
	b.wantOnce("late", want...)
}

func TestDeliverNewSkipsWhatIsInTheStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("old")
	sub := b.subscription("late")
	sub.From = inbox.DeliverNew
	b.in.Handle(sub, effect("late"))
	b.run()
	b.eventually("the consumer", func() bool {
		info, err := b.js.Stream(t.Context(), b.stream)
		return err == nil && info.CachedInfo().State.Consumers == 1
	})
	b.publish("new")
	b.eventually("the new one", func() bool { return len(b.effects("late")) > 0 })
	b.drained()
	b.wantOnce("late", "new")
}

func TestFilterIsWidenedAndNeverNarrowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	filters := func() string {
		stream, err := b.js.Stream(t.Context(), b.stream)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for info := range stream.ListConsumers(t.Context()).Info() {
			all = append(all, strings.Join(append(info.Config.FilterSubjects, info.Config.FilterSubject), " "))
		}
		return strings.ReplaceAll(strings.TrimSpace(strings.Join(all, " ")), b.stream+".", "")
	}
	for _, step := range []struct{ types, want string }{
		{"placed", "placed"}, {"placed paid", "placed paid"}, {"paid", "placed paid"},
	} {
		b.in = inbox.New(b.pool, b.nc, b.config())
		sub := b.subscription("billing")
		sub.Types = nil
		for _, name := range strings.Fields(step.types) {
			sub.Types = append(sub.Types, b.stream+"."+name)
		}
		b.in.Handle(sub, effect("billing"))
		stop := b.run()
		b.eventually("filter "+step.want, func() bool { return filters() == step.want })
		stop()
		if got := filters(); got != step.want {
			t.Errorf("after %q the filter is %q, want %q", step.types, got, step.want)
		}
	}
}
