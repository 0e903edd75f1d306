package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/wildcard"
)

// The reasons why a handler may have missed events, or may get events again.
const (
	lostAgedOut   = "aged_out"  // the stream dropped messages that the handler had not read
	lostTail      = "lost_tail" // the broker lost messages that it had acknowledged
	lostRecreated = "recreated" // the stream was deleted and created again
	lostUndecided = "undecided" // messages were acknowledged that the database has not recorded as decided
)

// check finds out whether the stream lost messages. The stream may have dropped messages after the
// floor because of their age. If so, check reports that, and reading begins at the first message
// that the stream still has. The broker may also have lost the message at the floor, the message of
// a held event, or the last message that was read. If so, check reports that, and reading begins
// again before the lost messages.
func (t *term) check(ctx context.Context) error {
	info, err := t.stream.Info(ctx)
	if err != nil {
		return t.reader.refuseClosed(fmt.Errorf("look up stream %s: %w", t.reader.Stream, err))
	}
	if !info.Created.Equal(t.reader.origin.Created) {
		return fmt.Errorf("stream %s was created again", t.reader.Stream)
	}
	at, state := t.floor.now(), info.State
	if at.Seq+1 < state.FirstSeq {
		t.agedOut(ctx, at.Seq+1, state.FirstSeq-1)
		return t.beginAt(ctx, delivery.Position{Seq: state.FirstSeq - 1}, at.Seq)
	}
	kept, err := at.IsIn(ctx, t.stream, state)
	if err != nil {
		return err
	}
	whole := kept && t.high <= t.base+int64(state.LastSeq) //nolint:gosec // a number of messages
	if last := t.reader.lastRead; whole && last.Seq > at.Seq {
		if whole, err = last.IsIn(ctx, t.stream, state); err != nil {
			return err
		}
	}
	if whole {
		return nil
	}
	t.reader.to.Lost(ctx, lostTail)
	start := at
	if !kept {
		if start, err = firstSince(ctx, t.stream, at.Stored.Add(-clockSkew), state); err != nil {
			return err
		}
	}
	t.reader.Log.ErrorContext(ctx, "broker lost acknowledged messages, reading again from before them",
		"stream", t.reader.Stream, "seq", at.Seq, "last_seq", state.LastSeq, "from_seq", start.Seq+1)
	return t.beginAt(ctx, start, max(at.Seq, t.reader.lastRead.Seq))
}

// clockSkew is the largest expected difference between the clocks of a broker's servers.
const clockSkew = time.Minute

// firstSince returns the position before the first message that was stored at or after the given
// time. It makes a binary search, because times rise with sequences.
func firstSince(ctx context.Context, stream jetstream.Stream, since time.Time, state jetstream.StreamState) (delivery.Position, error) {
	low, high := state.FirstSeq, state.LastSeq+1 // the first such message has a sequence in [low, high]
	for low < high {
		middle := low + (high-low)/2
		msg, err := consumer.GetMsg(ctx, stream, middle, jetstream.WithGetMsgSubject(">"))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound), consumer.IsUnreadable(err): // there are no messages from here on; or it is not known when this one was stored, and an earlier position does no harm
			high = middle
		case err != nil:
			return delivery.Position{}, fmt.Errorf("look up message %d: %w", middle, err)
		case msg.Time.Before(since):
			low = msg.Sequence + 1
		default:
			high = middle
		}
	}
	return delivery.Position{Seq: max(low, 1) - 1}, nil
}

// agedOut reports messages that the stream dropped before the handler read them.
func (t *term) agedOut(ctx context.Context, from, to uint64) {
	t.reader.to.Lost(ctx, lostAgedOut)
	t.reader.Log.ErrorContext(ctx, "stream dropped messages that the handler had not read",
		"stream", t.reader.Stream, "from_seq", from, "to_seq", to)
}

// beginAt makes the reader begin after the position at. Events that are read from now on get higher
// positions in the order of their keys than all events with sequences up to the parameter used.
func (t *term) beginAt(ctx context.Context, at delivery.Position, used uint64) error {
	base, backfill, err := t.reader.records.Restart(ctx, t.epoch, at, used)
	if err != nil {
		return err
	}
	t.base, t.reader.origin.Backfill = base, backfill
	t.floor.reset(at)
	t.reader.lastRead = at
	return nil
}

// has reports whether the stream has a message for the handler with a sequence in [from, through].
// It asks the stream, because a consumer may not know the latest messages yet.
func (t *term) has(ctx context.Context, from, through uint64) (bool, error) {
	for _, subject := range wildcard.Union(nil, t.subjects) {
		msg, err := consumer.GetMsg(ctx, t.stream, from, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case consumer.IsUnreadable(err): // a message that the handler has not read yet
			return true, nil
		case err != nil:
			return false, fmt.Errorf("look up the next message of %s: %w", subject, err)
		case msg.Sequence <= through:
			return true, nil
		}
	}
	return false, nil
}

// aheadWait is how long a consumer may be ahead of its stream. In a cluster, one server may answer
// for the consumer and another for the stream, and the two servers learn of a stored message at
// different times.
const aheadWait = 3 * time.Second

// overtaken reports whether the stream has lost messages that the handler's consumer delivered. If
// so, the inbox must begin again after the sequence from. The old consumer waits for sequences
// after the lost messages, so it would not deliver new messages that get the sequences of the lost
// ones. Only NATS 2.15 resets such a consumer itself, and only with one replica.
func (s *DurableReader) overtaken(ctx context.Context, stream jetstream.Stream, of *jetstream.ConsumerInfo, row delivery.Subscription) (from uint64, lost bool, err error) {
	at := s.last.of(of.Created)
	last := max(at.Seq, of.Delivered.Stream)
	info, err := s.infoOf(ctx, stream)
	for end := time.Now().Add(aheadWait); err == nil && last > info.State.LastSeq && time.Now().Before(end) && ctx.Err() == nil; {
		sleep.For(ctx, aheadWait/10)
		info, err = s.infoOf(ctx, stream)
	}
	if err != nil {
		return 0, false, err
	}
	kept, err := at.IsIn(ctx, stream, info.State)
	if err != nil && s.mayNot(".GET.") {
		s.Log.WarnContext(ctx, "cannot check for lost messages: permission denied; grant $JS.API.STREAM.MSG.GET.* and $JS.API.DIRECT.GET.>",
			"stream", s.Stream, "error", err)
		kept, err = true, nil
	}
	if err != nil || kept && last <= info.State.LastSeq {
		return 0, false, err
	}
	// New messages may have the sequences of the lost messages. They are newer than the last
	// message that this process read, and newer than the record of the floor. So they are sought
	// from the time of that message on or, if this process read none, from the time of that record.
	from = min(of.AckFloor.Stream, info.State.LastSeq, row.Floor)
	since := at.Stored
	switch {
	case kept && at.Seq > 0:
		return min(from, at.Seq), true, nil
	case at.Seq == 0:
		since = row.Reached
	}
	place, err := firstSince(ctx, stream, since.Add(-clockSkew), info.State)
	if err != nil && s.mayNot(".GET.") {
		place, err = delivery.Position{}, nil // begin at the start of the stream: decided events will count as duplicates or, if their inbox rows have expired, as too old
	}
	return min(from, place.Seq), err == nil, err
}

// stillDecided returns the sequence up to which every message is decided, for a consumer that is
// created again. Usually that is the recorded floor. But the stream may have lost messages, and
// stored new messages at their sequences. In that case, the message that is at the floor now is
// newer than the record of the floor. Nothing else shows that loss, because the consumer that
// delivered the lost messages is gone too.
func (s *DurableReader) stillDecided(ctx context.Context, stream jetstream.Stream, row delivery.Subscription) (floor uint64, err error) {
	if row.Floor == 0 {
		return 0, nil
	}
	msg, err := consumer.GetMsg(ctx, stream, row.Floor)
	switch {
	//guard:an-unreadable-floor-stops-no-handler 2 false
	case errors.Is(err, jetstream.ErrMsgNotFound), consumer.IsUnreadable(err), err != nil && s.mayNot(".GET."): // the stream dropped the message; or it lost the message, which overtaken notices; or this user may not read the message, or the client cannot
		return row.Floor, nil
	case err != nil:
		return 0, fmt.Errorf("look up message %d: %w", row.Floor, err)
	//guard:a-floor-of-messages-that-are-lost true
	case !msg.Time.After(row.Reached.Add(clockSkew)):
		return row.Floor, nil
	}
	place, err := firstSince(ctx, stream, row.Reached.Add(-clockSkew), stream.CachedInfo().State)
	if err != nil {
		return 0, err
	}
	floor = min(place.Seq, row.Floor)
	s.to.Lost(ctx, lostTail)
	s.Log.ErrorContext(ctx, "broker lost acknowledged messages, reading again from before them",
		"stream", s.Stream, "seq", row.Floor, "from_seq", floor+1)
	return floor, nil
}

// beginning returns the sequence after which a consumer that is created again begins. It records
// before that that reading begins again there.
func (s *DurableReader) beginning(ctx context.Context, stream jetstream.Stream, row delivery.Subscription) (floor uint64, err error) {
	if floor, err = s.stillDecided(ctx, stream, row); err != nil {
		return 0, err
	}
	return floor, s.lower(ctx, floor)
}

// lower records that reading begins again after the sequence floor.
func (s *DurableReader) lower(ctx context.Context, floor uint64) error {
	backfill, err := s.records.Lower(ctx, s.created(), floor)
	if err == nil {
		s.exempt(ctx, floor, backfill)
	}
	return err
}

// beginAgain creates the consumer again if the stream has lost messages. Before that it records
// where the new consumer begins, because this process may die after it deleted the old consumer.
func (s *DurableReader) beginAgain(ctx context.Context, stream jetstream.Stream, durable jetstream.Consumer, row delivery.Subscription) (jetstream.Consumer, error) {
	old := durable.CachedInfo()
	from, lost, err := s.overtaken(ctx, stream, old, row)
	if err != nil || !lost {
		return durable, err
	}
	s.to.Lost(ctx, lostTail)
	s.Log.ErrorContext(ctx, "broker lost acknowledged messages, reading again from before them",
		"stream", s.Stream, "consumer", old.Name, "seq", old.Delivered.Stream, "from_seq", from+1)
	if err = s.lower(ctx, from); err != nil {
		return nil, err
	}
	return s.replace(ctx, stream, old.Config, from)
}

// beginAtFloor creates the consumer again, so that it begins after the recorded floor. With a limit
// of deliveries, the broker drops events that are given back, and moves its own floor beyond them.
// The inbox recognises the events that it has decided.
func (s *DurableReader) beginAtFloor(ctx context.Context, stream jetstream.Stream, by jetstream.ConsumerConfig, row delivery.Subscription) (jetstream.Consumer, error) {
	floor, err := s.beginning(ctx, stream, row)
	if err != nil {
		return nil, err
	}
	return s.replace(ctx, stream, by, floor)
}

// replace deletes the consumer and creates it with the given settings, so that it begins after the
// sequence floor. It does not end with ctx, because between the two requests there is no consumer.
func (s *DurableReader) replace(ctx context.Context, stream jetstream.Stream, by jetstream.ConsumerConfig, floor uint64) (again jetstream.Consumer, err error) {
	ctx = context.WithoutCancel(ctx)
	limits := stream.CachedInfo().Config
	//guard:a-stream-keeps-the-events-of-a-consumer-that-is-replaced false
	if limits.Retention == jetstream.InterestPolicy { // without a consumer, the stream would drop its events
		keeper, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Description: "Postroom keeps the events of handler " + s.Handler, AckPolicy: jetstream.AckExplicitPolicy,
			FilterSubjects: by.FilterSubjects, InactiveThreshold: consumer.Threshold(limits, readerThreshold),
		})
		if err != nil {
			return nil, fmt.Errorf("consumer that keeps the events: %w", err)
		}
		defer func() {
			if again != nil { // otherwise the broker removes the keeper after its threshold
				_ = stream.DeleteConsumer(ctx, keeper.CachedInfo().Name) // if it fails, the threshold removes it
			}
		}()
	}
	if err := stream.DeleteConsumer(ctx, by.Durable); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("delete consumer %s: %w", by.Durable, err)
	}
	by.DeliverPolicy, by.OptStartSeq = s.beginAfter(floor, stream)
	by.OptStartTime = nil
	if again, err = stream.CreateConsumer(ctx, by); err != nil {
		return nil, fmt.Errorf("create consumer %s: %w", by.Durable, err)
	}
	return again, nil
}
