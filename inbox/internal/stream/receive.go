package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/pause"
	"github.com/postroom/postroom/internal/wire"
)

// pull asks for as many messages as there is room for, and hands them to the
// workers as they come, until ctx ends. It asks by single requests, so that no
// message waits in the client, where it would give no sign of life.
func (s *Durable) pull(ctx context.Context, durable jetstream.Consumer) error {
	r, stop := s.requests(durable)
	defer stop()
	for r.wait(ctx) {
		err := r.next(ctx, func(msg jetstream.Msg) error {
			s.take(ctx, msg)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			return s.refuseClosed(fmt.Errorf("pull: %w", err))
		}
	}
	return nil
}

// take takes a message in hand, and hands it to the handler.
func (s *Durable) take(ctx context.Context, msg jetstream.Msg) {
	if wire.IsLease(msg.Subject()) { // a relay's, and no event
		s.answer(ctx, msg.Ack(), "ack")
		return
	}
	d, err := delivery.Decode(msg, s.origin)
	if err != nil { // it is no message of a stream: there is nothing to answer
		s.Log.ErrorContext(ctx, "message without a place in a stream", "error", err, "subject", msg.Subject())
		return
	}
	d.Source = s
	s.taken.note(consumer.PositionOf(d.Place.Seq, msg.Headers(), d.Place.Stored))
	s.InFlight.take(msg)
	s.to.Take(ctx, d)
}

// Beat gives a sign of life for each message in hand until ctx ends.
func (s *Durable) Beat(ctx context.Context) {
	tick := time.NewTicker(s.AckWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, msg := range s.InFlight.messages() {
			// A message that was answered meanwhile says so; that is no fault.
			s.answer(ctx, msg.InProgress(), "in progress")
		}
	}
}

// watch looks after the consumer until ctx ends.
func (s *Durable) watch(ctx context.Context, durable jetstream.Consumer) {
	want := durable.CachedInfo().Config
	var faults []string
	var noted time.Time
	for ; ctx.Err() == nil; pause.For(ctx, s.LookEvery) {
		info, err := durable.Info(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.Log.DebugContext(ctx, "the consumer could not be looked at", "error", err)
			}
			continue
		}
		found := consumer.Drift(info.Config, want)
		if len(found) > 0 && !slices.Equal(found, faults) {
			s.Log.ErrorContext(ctx, "the handler's consumer is not as it should be; restart a process of the handler, or mend it",
				"stream", s.Stream, "consumer", info.Name, "faults", strings.Join(found, "; "))
		}
		faults = found
		s.view.Store(&View{Pending: float64(info.NumPending), AckPending: float64(info.NumAckPending), Drifted: len(faults) > 0})
		if time.Since(noted) >= s.FloorEvery {
			noted = time.Now()
			s.noteFloor(ctx, info.AckFloor.Stream)
		}
	}
}

// noteFloor notes up to where everything is decided.
func (s *Durable) noteFloor(ctx context.Context, floor uint64) {
	if floor == 0 {
		return
	}
	if err := s.records.Raise(ctx, s.created(), floor); err != nil && ctx.Err() == nil {
		s.Log.DebugContext(ctx, "the floor could not be noted; the next look notes it", "error", err)
	}
}

// Ack acknowledges a message that was decided.
func (s *Durable) Ack(ctx context.Context, d *delivery.Delivery) {
	s.answer(ctx, d.Msg.Ack(), "ack")
	s.InFlight.drop(d.Msg)
}

// HandBack returns a message that was not decided, so that another process gets it at
// once.
func (s *Durable) HandBack(ctx context.Context, d *delivery.Delivery) {
	s.answer(ctx, d.Msg.Nak(), "hand back")
	s.InFlight.drop(d.Msg)
}

// Delay returns a message that could not even be held, for a while.
func (s *Durable) Delay(ctx context.Context, d *delivery.Delivery, _ error) {
	s.answer(ctx, d.Msg.NakWithDelay(delayed), "nak")
	s.InFlight.drop(d.Msg)
}

// delayed is for how long the broker keeps an event that could not even be held. It does
// not depend on the handler's schedule, which may end with hours: until then the event
// would take a place from others, and no operator would see it.
const delayed = 30 * time.Second

// answer reports an answer to the broker that could not be sent. No harm comes
// of it: the message is delivered again.
func (s *Durable) answer(ctx context.Context, err error, what string) {
	if err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		s.Log.DebugContext(ctx, "answer to the broker not sent, the event will be delivered again", "answer", what, "error", err)
	}
}

// IsOver returns false.
func (s *Durable) IsOver() bool { return false }

// Suspects returns false.
func (s *Durable) Suspects() bool { return false }

// Held does nothing.
func (s *Durable) Held(delivery.Holding) {}

// Epoch returns 0.
func (s *Durable) Epoch() int64 { return 0 }

// Leave sends the acknowledgements that still wait in the client.
func (s *Durable) Leave(ctx context.Context) {
	if err := s.Conn.FlushTimeout(time.Second); err != nil {
		s.Log.DebugContext(ctx, "acknowledgements not flushed; the ledger absorbs what comes again", "error", err)
	}
}

// taken is the furthest message of the stream that this process was handed by the
// handler's consumer, and which consumer that was.
type taken struct {
	mu   sync.Mutex
	at   delivery.Position
	made time.Time // of the consumer
}

func (t *taken) note(m delivery.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Seq > t.at.Seq {
		t.at = m
	}
}

// from says which consumer hands over what comes. What another one did, which was made
// before it, says nothing of this one.
func (t *taken) from(made time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.made.Equal(made) {
		t.at, t.made = delivery.Position{}, made
	}
}

// of returns the furthest message that the consumer made at a time handed over.
func (t *taken) of(made time.Time) delivery.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.made.Equal(made) {
		return delivery.Position{}
	}
	return t.at
}
