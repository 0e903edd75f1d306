package relay_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// If an event's row has a fault, the event is dead before it is sent, even if it looks valid
// otherwise.
func TestAnEventWithAFaultIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := events(3)
		page[1].Fault = &postroom.FieldError{Field: "Headers", Problem: "are odd"}
		src, pub := newFakeSource(page...), &fakePublisher{}
		run := start(relay.Over(src, pub, relay.Config{}))
		after(time.Second)
		if got := src.PublishedSeqs(); len(got) != 2 || pub.tried(2) != 0 {
			t.Errorf("published %v; the one with a fault was sent %d times", got, pub.tried(2))
		}
		h := src.Held[2]
		if h.Failure == nil || !h.Failure.Dead || h.Failure.Class != "invalid_event" || h.Failure.Text != "Headers are odd" {
			t.Errorf("held as %+v", h)
		}
		run.stop()
		run.wait(t)
	})
}

// The log reports events that could not be held, and the relay counts and logs them.
func TestUnstorableEventsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.unstorable = 3
		var log bytes.Buffer
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
		after(time.Second)
		run.stop()
		run.wait(t)
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "events dead: the database refuses to hold them") || !strings.Contains(log.String(), "events=3") {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// Check does not ask the broker about invalid subjects, and still asks about the valid ones.
func TestCheckAsksAboutSubjectsOnly(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	create(t, nc, jetstream.StreamConfig{Name: "IV-A", Subjects: []string{"iv.a"}})
	r := relay.Over(using("", ">", "iv.*", "iv..b", "iv b", "iv\r\nPUB iv.a 0", "iv.a"), natsjs.NewPublisher(nc), relay.Config{})
	if err := r.Check(t.Context()); err != nil {
		t.Errorf("Check = %v", err)
	}
}

// A publisher that a user wrote forgets to set a class, or reports an error with the class Stored. The
// event counts as published only after the publisher has said so without an error.
func TestOnlyWhatIsSaidToBeStoredIsPublished(t *testing.T) {
	for name, first := range map[string]broker.Outcome{
		"no class":              {},
		"an error and no class": {Err: errors.New("down")},
		"an error, and stored":  {Class: broker.Stored, Err: errors.New("down")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource(events(1)...)
				pub := &forgetfulPublisher{first: first}
				run := start(relay.Over(src, pub, relay.Config{}))
				after(time.Minute)
				if got := len(src.PublishedSeqs()); got != 1 || pub.tries.Load() != 2 {
					t.Errorf("%d published after %d tries, want one event after two", got, pub.tries.Load())
				}
				run.stop()
				run.wait(t)
			})
		})
	}
}

// forgetfulPublisher reports its first outcome as given, and the others as stored.
type forgetfulPublisher struct {
	sound

	first broker.Outcome
	tries atomic.Int32
}

func (p *forgetfulPublisher) Run(ctx context.Context, batches <-chan []*broker.Message, settle func(*broker.Message, broker.Outcome)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case batch := <-batches:
			for _, m := range batch {
				o := broker.Outcome{Class: broker.Stored}
				if p.tries.Add(1) == 1 {
					o = p.first
				}
				settle(m, o)
			}
		}
	}
}
