package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/wire"
)

// pull requests as many messages as there is room for, and passes them to the workers when they
// come, until ctx ends. It makes one request at a time, so that no message waits in the client
// library without signs of life.
func (s *DurableReader) pull(ctx context.Context, durable jetstream.Consumer) error {
	made := durable.CachedInfo().Created
	r, stop := s.requests(durable)
	defer stop()
	for r.wait(ctx) {
		err := r.next(ctx, func(msg jetstream.Msg) error {
			//guard:no-event-without-its-body false
			if lacksBody(msg) {
				if err := checkBodies(ctx, durable); err != nil {
					return err
				}
			}
			s.take(ctx, msg, made)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			return s.refuseClosed(fmt.Errorf("pull: %w", err))
		}
	}
	return nil
}

// lacksBody reports whether a consumer may have left out the body of a message: the body is empty,
// and the message has the header Nats-Msg-Size. This is no proof: a stream that republishes only
// the headers of messages adds the same header, and another stream may store these copies.
func lacksBody(msg jetstream.Msg) bool {
	return len(msg.Data()) == 0 && len(msg.Headers()["Nats-Msg-Size"]) > 0
}

// checkBodies returns an error if an operator has made the consumer leave out the bodies. An event
// without its body must not be handled. The next round corrects the consumer.
func checkBodies(ctx context.Context, from jetstream.Consumer) error {
	info, err := from.Info(ctx)
	if err == nil && info.Config.HeadersOnly {
		err = errors.New("the consumer delivers headers only")
	}
	return err
}

// take records that a message is in flight, and passes the message to the handler. The parameter
// made is when the message's consumer was created.
func (s *DurableReader) take(ctx context.Context, msg jetstream.Msg, made time.Time) {
	if wire.IsLease(msg.Subject()) { // a relay's lease message is not an event
		s.own.came(deliveryOf(msg))
		s.answer(ctx, msg.Ack(), "ack")
		return
	}
	from := s.origin
	from.Floor = s.decided.Load()
	d, err := delivery.Decode(msg, from)
	if err != nil { // the message is not from a stream, so it needs no answer
		s.Log.ErrorContext(ctx, "message that is not from a stream", "error", err, "subject", msg.Subject())
		return
	}
	s.own.came(d.Place.Number)
	d.Source, d.Place.Consumer = s, made
	s.last.note(consumer.PositionOf(d.Place.Seq, msg.Headers(), d.Place.Stored))
	s.InFlight.take(msg)
	s.to.Take(ctx, d)
}

// Beat sends signs of life for each message in flight until ctx ends.
func (s *DurableReader) Beat(ctx context.Context) {
	tick := time.NewTicker(s.AckWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, msg := range s.InFlight.messages() {
			// If a message has just been answered, InProgress returns an error, which the method
			// answer ignores.
			s.answer(ctx, msg.InProgress(), "in progress")
		}
	}
}

// errDrifted ends a round of Read. The next call of ensure corrects the consumer.
var errDrifted = errors.New("the consumer has drifted")

// watch checks the consumer at intervals until ctx ends. It logs pauses, and records the floor. If
// the consumer has drifted (settings that would lose or delay events), watch returns errDrifted,
// but at most once per interval: a tool may set the settings back again and again. If the consumer
// was deleted and created again, watch returns an error too. The broker reports that only to a
// process that has a request. If events may be acknowledged that are not decided, watch returns
// errUndecided.
func (s *DurableReader) watch(ctx context.Context, stream jetstream.Stream, durable jetstream.Consumer) error {
	made := durable.CachedInfo().Created
	var noted, paused time.Time
	for ; ctx.Err() == nil; sleep.For(ctx, s.LookEvery) {
		info, err := durable.Info(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.Log.DebugContext(ctx, "cannot read the consumer's state", "error", err)
				s.revive(ctx, err)
			}
			continue
		}
		//guard:a-process-notices-that-its-consumer-was-created-again false
		if !info.Created.Equal(made) {
			return fmt.Errorf("%w, and created again", jetstream.ErrConsumerDeleted)
		}
		want := s.wanted
		//guard:versions-do-not-correct-each-other false
		if s.stuck == nil && info.Config.Metadata[identity.AckWaitKey] != want.Metadata[identity.AckWaitKey] {
			want.AckWait = info.Config.AckWait // another version of the service has set it
		}
		faults, again := consumer.Drift(info.Config, want)
		s.view.Store(&View{Pending: float64(info.NumPending), AckPending: float64(info.NumAckPending), Drifted: len(faults) > 0, Paused: info.Paused})
		paused = s.reportPause(ctx, info, paused)
		switch {
		case len(faults) == 0: // the settings include what another process added
			s.wanted, s.stuck = info.Config, nil
		//guard:a-running-process-corrects-drift false
		case !slices.Equal(faults, s.stuck) && time.Since(s.corrected) >= s.LookEvery:
			return errDrifted
		}
		//guard:the-floor-of-a-limited-consumer-is-not-recorded false
		if again { // the broker's floor may be beyond events that it dropped
			continue
		}
		//guard:a-running-process-knows-up-to-where-the-backfill-is-decided remove
		s.decided.Store(max(s.decided.Load(), info.AckFloor.Stream))
		if time.Since(noted) >= s.FloorEvery {
			noted = time.Now()
			if err := s.noteFloor(ctx, stream, info); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportPause logs that an operator has paused or resumed the consumer at the broker. The parameter
// was is the end of the pause that the last check found. reportPause returns the end of the current
// pause. If there is no pause, these times are zero.
func (s *DurableReader) reportPause(ctx context.Context, info *jetstream.ConsumerInfo, was time.Time) time.Time {
	until := consumer.PausedUntil(info)
	switch {
	case until.Equal(was):
	case until.IsZero():
		s.Log.InfoContext(ctx, "consumer resumed at the broker", "stream", s.Stream, "consumer", info.Name)
	default:
		s.Log.WarnContext(ctx, "consumer paused at the broker", "stream", s.Stream, "consumer", info.Name, "until", until.UTC())
	}
	return until
}

// Ack acknowledges a decided message if the consumer that sent the message is still in use. If a
// new consumer has replaced that consumer, Ack sends nothing. Both consumers have the same name,
// and an acknowledgement names only a sequence. So if the stream lost the message and stored
// another message at its sequence, the broker would count that other message as decided.
func (s *DurableReader) Ack(ctx context.Context, d *delivery.Delivery) {
	//guard:a-late-acknowledgement-is-not-sent true
	if s.last.isFrom(d.Place.Consumer) {
		s.answer(ctx, d.Msg.Ack(), "ack")
	}
	s.InFlight.drop(d.Msg)
}

// HandBack gives back to the broker a message that was not decided. The broker delivers the message
// again at once, perhaps to another process.
func (s *DurableReader) HandBack(ctx context.Context, d *delivery.Delivery) {
	s.own.left(d.Place.Number)
	s.answer(ctx, d.Msg.Nak(), "hand back")
	s.InFlight.drop(d.Msg)
}

// Delay gives back to the broker a message that could not even be held. The broker delivers the
// message again later.
func (s *DurableReader) Delay(ctx context.Context, d *delivery.Delivery, _ error) {
	s.own.left(d.Place.Number)
	s.answer(ctx, d.Msg.NakWithDelay(delayed), "nak")
	s.InFlight.drop(d.Msg)
}

// delayed is how long the broker waits before it repeats a message that could not even be held.
// Delay does not use the handler's schedule, because the schedule may have waits of hours. During
// such a wait no operator would see the event.
const delayed = 30 * time.Second

// answer logs err if an answer to the broker could not be sent. That does no harm, because the
// broker delivers the message again.
func (s *DurableReader) answer(ctx context.Context, err error, what string) {
	if err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		s.Log.DebugContext(ctx, "answer to the broker not sent, the event will be delivered again", "answer", what, "error", err)
	}
}

// IsOver returns false, because a durable reader has no terms.
func (s *DurableReader) IsOver() bool { return false }

// Suspects returns false, because the broker counts the deliveries of each message. From this count
// the inbox learns which events may end processes.
func (s *DurableReader) Suspects() bool { return false }

// Held does nothing, because there are no suspects.
func (s *DurableReader) Held(delivery.Holding) {}

// Epoch returns 0, because a durable reader has no terms.
func (s *DurableReader) Epoch() int64 { return 0 }

// Leave sends the acknowledgements that still wait in the client.
func (s *DurableReader) Leave(ctx context.Context) {
	if err := s.Conn.FlushTimeout(time.Second); err != nil {
		s.Log.DebugContext(ctx, "acknowledgements not flushed, messages may be delivered again", "error", err)
	}
}

// lastDelivery has the position of the last message that the handler's consumer delivered to this
// process. It also says which consumer that was.
type lastDelivery struct {
	mu   sync.Mutex
	at   delivery.Position
	made time.Time // when the consumer was created
}

func (t *lastDelivery) note(m delivery.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Seq > t.at.Seq {
		t.at = m
	}
}

// from sets the time at which the current durable consumer was created. If it is another consumer
// than before, the method removes the position.
func (t *lastDelivery) from(made time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.made.Equal(made) {
		t.at, t.made = delivery.Position{}, made
	}
}

// isFrom reports whether the durable consumer in use was created at the time made.
func (t *lastDelivery) isFrom(made time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.made.Equal(made)
}

// of returns the position of the last message from the consumer that was created at the time made.
// If another consumer is in use, the result is the zero position.
func (t *lastDelivery) of(made time.Time) delivery.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.made.Equal(made) {
		return delivery.Position{}
	}
	return t.at
}
