package relay_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// endless is an error that contains itself.
type endless struct{}

func (e endless) Error() string   { return "endless" }
func (e endless) Unwrap() []error { return []error{e, e} }

// faulty is a publisher whose methods do something else at first.
type faulty struct {
	fakePublisher

	once sync.Once
	run  func(batches <-chan []*broker.Message, settle func(*broker.Message, broker.Outcome)) error
}

func (p *faulty) Run(ctx context.Context, batches <-chan []*broker.Message, settle func(*broker.Message, broker.Outcome)) (err error) {
	first := false
	p.once.Do(func() { first = true })
	if first {
		return p.run(batches, settle)
	}
	return p.fakePublisher.Run(ctx, batches, settle)
}

// If a publisher that a user wrote fails, the term ends, but neither the process nor the relay
// does.
func TestFailingPublisherEndsOnlyTheTerm(t *testing.T) {
	type outcomes = func(*broker.Message, broker.Outcome)
	tests := map[string]func(batches <-chan []*broker.Message, settle outcomes) error{
		"it panics":             func(<-chan []*broker.Message, outcomes) error { panic("no") },
		"it ends its goroutine": func(<-chan []*broker.Message, outcomes) error { runtime.Goexit(); return nil },
		"it returns an error that contains itself": func(<-chan []*broker.Message, outcomes) error { return endless{} },
		"an outcome has an error that contains itself": func(batches <-chan []*broker.Message, settle outcomes) error {
			for _, f := range <-batches {
				settle(f, broker.Outcome{Class: broker.Refused, Err: endless{}})
			}
			return errors.New("that was all")
		},
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource(events(3)...)
				running := start(relay.Over(src, &faulty{run: run}, relay.Config{}))
				after(time.Minute)
				running.stop()
				running.wait(t)
				if got := src.PublishedSeqs(); len(got) != 3 {
					t.Errorf("published %v, want all three", got)
				}
			})
		})
	}
}

// If a publisher that a user wrote says that it does not take an event, and not why, the event is dead, and
// neither the process nor the relay ends.
func TestAnOutcomeWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(3)...)
		pub := &faulty{run: func(batches <-chan []*broker.Message, settle func(*broker.Message, broker.Outcome)) error {
			for n := 0; n < 3; {
				for _, f := range <-batches {
					settle(f, broker.Outcome{Class: broker.Permanent})
					n++
				}
			}
			return errors.New("that was all")
		}}
		running := start(relay.Over(src, pub, relay.Config{}))
		after(time.Minute)
		src.Set(func() {
			if len(src.Held) != 3 || src.Held[1].Failure == nil || src.Held[1].Failure.Text == "" {
				t.Errorf("held %+v, want all three, with a text", src.Held)
			}
		})
		running.stop()
		running.wait(t)
	})
}
