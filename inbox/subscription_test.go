package inbox_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// floor returns the recorded floor of a handler.
func (b *bench) floor(name string) (floor, backfill int64) {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), "SELECT floor, backfill_through FROM postroom.subscription WHERE handler = $1", name).Scan(&floor, &backfill)
	if err != nil {
		b.Fatal(err)
	}
	return floor, backfill
}

// consumers returns the consumers of the stream, without those that look for events that are not
// decided: they live for a moment.
func (b *bench) consumers() (all []*jetstream.ConsumerInfo) {
	b.Helper()
	stream, err := b.js.Stream(b.Context(), b.stream)
	if err != nil {
		b.Fatal(err)
	}
	for info := range stream.ListConsumers(b.Context()).Info() {
		if !strings.HasPrefix(info.Config.Description, "Postroom looks for events") {
			all = append(all, info)
		}
	}
	return all
}

// If a consumer is lost, it is made again from the handler's floor.
func TestALostConsumerBeginsAtTheFloor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("a", "b")
	inbox.LookOften(b.in, 10*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	stop := b.run()
	b.eventually("the floor", func() bool {
		var floor int64
		err := b.pool.QueryRow(t.Context(), "SELECT floor FROM postroom.subscription").Scan(&floor)
		return err == nil && floor == 2
	})
	stop()
	if _, backfill := b.floor("h"); backfill != 2 {
		t.Errorf("backfill through %d, want 2", backfill)
	}
	b.loseConsumers()
	b.publish("c")
	b.exec("UPDATE postroom.subscription SET created_at = now() - interval '1 h'")
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.eventually("the new one", func() bool { return len(b.effects("h")) == 3 })
	b.drained()
	b.wantOnce("h", "a", "b", "c")
	if got := b.counted("h", "duplicate"); got != 0 {
		t.Errorf("%d were delivered again from below the floor", got)
	}
	if all := b.consumers(); len(all) != 1 || all[0].Config.OptStartSeq != 3 {
		t.Errorf("consumers: %+v", all)
	}
}

// DeliverNew counts from the moment of the subscription, even if the consumer is lost while no
// process runs.
func TestDeliverNewIsNotedWithTheSubscription(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("old")
	sub := b.subscription("h")
	sub.From = inbox.DeliverNew
	b.in.Handle(sub, effect("h"))
	stop := b.run()
	b.eventually("the consumer", func() bool { return len(b.consumers()) == 1 })
	stop()
	b.publish("new")
	b.loseConsumers()
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(sub, effect("h"))
	b.run()
	b.eventually("the new one", func() bool { return len(b.effects("h")) > 0 })
	b.drained()
	b.wantOnce("h", "new")
}

// If a stream was deleted and made again, it is read from its start. An event with a known
// identity is not applied twice.
func TestRecreatedStreamIsReadFromItsStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // so that no event is delivered again
	inbox.LookOften(b.in, 10*time.Millisecond)
	b.publish("a", "b")
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.eventually("both effects", func() bool { return len(b.effects("h")) == 2 })
	if err := b.js.DeleteStream(t.Context(), b.stream); err != nil {
		t.Fatal(err)
	}
	err := natsjs.EnsureStream(t.Context(), b.nc, jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
	b.publish("c", "a")
	b.eventually("the new one", func() bool { return len(b.effects("h")) == 3 })
	b.eventually("the duplicate", func() bool { return b.counted("h", "duplicate") == 1 })
	b.drained()
	b.wantOnce("h", "a", "b", "c")
}

func TestAHandlerReadsOneStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("h"), effect("h"))
	stop := b.run()
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("h")) == 1 })
	stop()
	second := b.stream + "2"
	err := natsjs.EnsureStream(t.Context(), b.nc, jetstream.StreamConfig{Name: second, Subjects: []string{second + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
	sub := b.subscription("h")
	sub.Stream, sub.Types = second, []string{second + ".placed"}
	in := inbox.New(b.pool, b.nc, b.config())
	in.Handle(sub, effect("h"))
	if err := in.Run(t.Context()); !errors.Is(err, inbox.ErrOtherStream) || !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Run = %v, want ErrOtherStream", err)
	}
}

// If an operator pauses a consumer at the broker, the inbox says so and leaves it paused, even
// when it starts again or corrects something else. It loses nothing.
func TestAConsumerPausedAtTheBrokerStaysPaused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	start := func(log *lines) (stop func()) {
		cfg := b.config()
		cfg.Logger = log.logger()
		b.in = inbox.New(b.pool, b.nc, cfg)
		inbox.LookOften(b.in, 10*time.Millisecond)
		b.in.Handle(b.subscription("h"), effect("h"))
		return b.run()
	}
	devtest.NeedsNATS(t, b.nc, 11)
	var before, log lines
	stop := start(&before)
	b.publish("a")
	b.eventually("the effect to be counted as decided", func() bool { return len(b.effects("h")) == 1 && b.floorAt("h") == 1 })
	stream, err := b.js.Stream(t.Context(), b.stream)
	if err != nil {
		t.Fatal(err)
	}
	name, until := b.consumers()[0].Name, time.Now().Add(time.Hour)
	if _, err := stream.PauseConsumer(t.Context(), name, until); err != nil {
		t.Fatal(err)
	}
	b.eventually("the report", func() bool { return before.has("consumer paused at the broker") })
	stop()

	changed := b.consumers()[0].Config
	changed.MaxDeliver = 5
	if _, err := stream.UpdateConsumer(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	start(&log)
	b.publish("b", "c")
	b.eventually("the report after a start", func() bool { return log.has("consumer paused at the broker") })
	b.eventually("the metric", func() bool { return b.gauges()["postroom.inbox.paused reason=broker"] == 1 })
	b.eventually("the rest to be mended", func() bool { return b.consumers()[0].Config.MaxDeliver == -1 })
	if info := b.consumers()[0]; !info.Paused || !info.Config.PauseUntil.Equal(until) || info.NumPending != 2 || log.has("paused until") {
		t.Errorf("paused: %v until %v, %d pending, want it as the operator left it", info.Paused, info.Config.PauseUntil, info.NumPending)
	}
	if _, err := stream.ResumeConsumer(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	b.eventually("the others", func() bool { return len(b.effects("h")) == 3 })
	b.eventually("the report of the end", func() bool { return log.has("consumer resumed at the broker") })
	b.eventually("the metric of the end", func() bool { return b.gauges()["postroom.inbox.paused reason=broker"] == 0 })
	b.drained()
	b.wantOnce("h", "a", "b", "c")
}

func TestSubjectPatterns(t *testing.T) {
	t.Parallel()
	all := []string{"a", "a.b", "a.b.c", "b.b", "aXb", "a.b+", "a-b.c_d"}
	for _, patterns := range [][]string{{"a"}, {"a.b"}, {"a.*"}, {"*"}, {"*.*"}, {">"}, {"a.>"}, {"*.b.>"}, {"a", "b.>"}, {"a.b+"}} {
		re := regexp.MustCompile(*inbox.Pattern(patterns))
		for _, subject := range all {
			if got, want := re.MatchString(subject), inbox.Match(patterns, subject); got != want {
				t.Errorf("%v matches %s: %t in the database, %t here", patterns, subject, got, want)
			}
		}
	}
}

func TestLongKeysStayApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 2000)
	seen := map[string]bool{}
	for _, key := range []string{"short", long, long + "a", long + "b", strings.Repeat("a", 960), strings.Repeat("a", 961)} {
		got := inbox.Bounded(key)
		if len(got) > 960 || seen[got] || len(key) <= 960 && got != key {
			t.Errorf("a key of %d bytes became %d: %.40q", len(key), len(got), got)
		}
		seen[got] = true
	}
	b := newBench(t)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	for i := range 3 {
		b.publishEvent(postroom.Event{ID: fmt.Sprint(long, i), Source: "/shop", Type: b.stream + ".placed", Data: []byte("1")})
	}
	b.eventually("their effects", func() bool { return len(b.effects("h")) == 3 })
}

// An operator deletes the row of a handler, for instance to have it read another stream. Its old
// events do not run again: it is not known any more which of them it had decided.
func TestAHandlerWhoseRowWasDeletedIsNotNew(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]inbox.Order{"unordered": inbox.Unordered, "ordered": inbox.HoldKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.subscription("h")
			sub.DedupeWindow, sub.Order = time.Second, order
			b.in.Handle(sub, effect("h"))
			b.publish("a", "b")
			stop := b.run()
			b.eventually("both effects", func() bool { return len(b.effects("h")) == 2 })
			b.eventually("their rows to expire", func() bool { return b.ledger("h") == 0 })
			stop()
			b.exec("DELETE FROM postroom.subscription")
			b.loseConsumers()
			b.in = inbox.New(b.pool, b.nc, b.config())
			b.in.Handle(sub, effect("h"))
			b.run()
			b.eventually("both to be too old", func() bool { return b.dead("h") == 2 })
			if order == inbox.Unordered {
				b.drained()
			}
			b.wantOnce("h", "a", "b")
		})
	}
}

// The row of a handler was deleted, and its consumer is there. What the broker delivers again has an age.
func TestAHandlerWhoseRowWasDeletedHasItsConsumer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.DedupeWindow = time.Second
	b.in.Handle(sub, effect("h"))
	b.publish("a")
	stop := b.run()
	b.eventually("the effect", func() bool { return len(b.effects("h")) == 1 })
	b.eventually("its row to expire", func() bool { return b.ledger("h") == 0 })
	stop()
	b.exec("DELETE FROM postroom.subscription")
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(sub, effect("h"))
	b.run()
	var through int
	b.eventually("the row of the handler", func() bool {
		return b.pool.QueryRow(t.Context(), "SELECT backfill_through FROM postroom.subscription").Scan(&through) == nil
	})
	if through != 0 {
		t.Errorf("events up to %d may be of any age, and were decided before", through)
	}
}

// A handler is ordered, then is not, and then is ordered again. The inbox does not take that for a
// loss at the broker. After each run, the handler's row says whether the handler is ordered now.
func TestAHandlerThatIsOrderedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, order := range []inbox.Order{inbox.HoldKey, inbox.Unordered, inbox.HoldKey} {
		b.in = inbox.New(b.pool, b.nc, b.config())
		inbox.LookOften(b.in, 10*time.Millisecond)
		b.in.Handle(b.ordered("o", order), effect("o"))
		stop := b.run()
		b.publishKey("k", i)
		b.eventually("the effect and the floor", func() bool { return b.made("o", "%") == i+1 && b.floorAt("o") == i+1 })
		stop()
		if n := alarmed(b, b.meter, "lost_tail"); n != 0 {
			t.Errorf("run %d: %d alarms, want none", i, n)
		}
		var ordered bool
		err := b.pool.QueryRow(t.Context(), "SELECT ordered FROM postroom.subscription").Scan(&ordered)
		if want := order != inbox.Unordered; err != nil || ordered != want {
			t.Errorf("run %d: the row says ordered = %t, %v; want %t", i, ordered, err, want)
		}
	}
}
