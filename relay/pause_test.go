package relay_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// An operator's pause ends the term within two seconds. The relay records the acknowledgements
// of what it sent, and sends nothing more. That also holds for a relay that starts meanwhile.
func TestAnOperatorPausesTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := events(4)
		src, log := newFakeSource(all[:2]...), &logged{}
		src.Pause = &eventlog.Pause{Actor: "ann", Reason: "the stream is moved"}
		pub := &inspectable{}
		pub.answer = func(broker.Event, int) (time.Duration, error) { return time.Second, nil }
		reader := sdk.NewManualReader()
		r := relay.Over(src, pub, relay.Config{Logger: log.logger(), MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
		run := start(r)
		after(time.Minute)
		wantHealth(t, r, relay.Paused, "")
		if got := collect(t, reader); got["postroom.relay.paused reason=operator"] != 1 || got["postroom.relay.leader"] != 0 {
			t.Errorf("the metrics do not say that an operator has paused it: %v", got)
		}
		if len(src.leases) > 0 || log.count("relay paused by an operator") != 1 {
			t.Errorf("it led %d times, and said %d times that it is paused", len(src.leases), log.count("relay paused by an operator"))
		}

		src.Set(func() { src.Pause = nil })
		after(1500 * time.Millisecond) // it has sent both, and the broker has not answered
		wantHealth(t, r, relay.Leading, "")
		if got := collect(t, reader); got["postroom.relay.paused reason=operator"] != 0 {
			t.Errorf("the metrics say that it is paused: %v", got)
		}
		src.Set(func() { src.Pause = &eventlog.Pause{Actor: "ann", Reason: "again", Until: time.Now().Add(time.Hour)} })
		after(2 * time.Second)
		wantHealth(t, r, relay.Paused, "")
		if got := src.PublishedSeqs(); len(got) != 2 || !src.terms[0].isReleased() {
			t.Errorf("published %v, released: %v, want the events in flight, in order", got, src.terms[0].isReleased())
		}
		src.Set(func() { src.Events = all })
		after(time.Hour)
		if got := src.PublishedSeqs(); len(got) != 2 || len(src.terms) != 1 || pub.tried(3) != 0 {
			t.Errorf("published %v in %d terms while it is paused", got, len(src.terms))
		}

		src.Set(func() { src.Pause = nil })
		after(5 * time.Second)
		if got := src.PublishedSeqs(); len(got) != 4 || log.count("relay resumed by an operator") != 2 {
			t.Errorf("published %v after it was resumed", got)
		}
		run.stop()
		run.wait(t)
	})
}

// While the log does not say whether the relay is paused, its last answer holds.
func TestLastAnswerAboutAPauseHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, log := newFakeSource(events(1)...), &logged{}
		r := relay.Over(src, &inspectable{}, relay.Config{Logger: log.logger()})
		run := start(r)
		after(3 * time.Second)
		src.Set(func() { src.pauseErr = errors.New("statement timeout") })
		after(10 * time.Second)
		wantHealth(t, r, relay.Leading, "")
		if len(src.terms) != 1 || log.count("cannot ask whether the relay is paused") != 1 {
			t.Errorf("%d terms, want the first to go on, with a line", len(src.terms))
		}
		run.stop()
		run.wait(t)
	})
}
