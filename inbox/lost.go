package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/telemetry"
)

// Why a handler may have missed events, or may get others again.
const (
	lostAgedOut   = "aged_out"  // the stream dropped messages that were not read
	lostTail      = "lost_tail" // the broker lost messages that it had acknowledged
	lostRecreated = "recreated" // the stream was deleted and made again
)

// lostData counts what is to alarm.
func (c *consumer) lostData(ctx context.Context, reason string) {
	c.metrics.lost.Add(ctx, 1, telemetry.With(telemetry.Handler.String(c.sub.Name), telemetry.Reason.String(reason)))
}

// check compares the stream with what was read from it before: what was decided, or is
// held, must still be there, or have been dropped by its age, and what comes after it
// must not have been dropped.
func (t *term) check(ctx context.Context) error {
	info, err := t.stream.Info(ctx)
	if err != nil {
		return t.c.refuseClosed(fmt.Errorf("look up stream %s: %w", t.c.sub.Stream, err))
	}
	if !info.Created.Equal(t.c.origin.Created) {
		return fmt.Errorf("stream %s was made again", t.c.sub.Stream)
	}
	at, state := t.floor.now(), info.State
	if at.seq+1 < state.FirstSeq {
		t.agedOut(ctx, at.seq+1, state.FirstSeq-1)
		return t.beginAt(ctx, mark{seq: state.FirstSeq - 1}, at.seq)
	}
	kept, err := t.recognises(ctx, at, state)
	if err != nil {
		return err
	}
	whole := kept && t.high <= t.base+int64(state.LastSeq) //nolint:gosec // a number of messages
	if last := t.c.lastRead; whole && last.seq > at.seq {
		if whole, err = t.recognises(ctx, last, state); err != nil {
			return err
		}
	}
	if whole {
		return nil
	}
	t.c.lostData(ctx, lostTail)
	start := at
	if !kept {
		if start, err = firstSince(ctx, t.stream, at.stored.Add(-clockSkew), state); err != nil {
			return err
		}
	}
	t.c.log.ErrorContext(ctx, "the broker has lost messages that it had acknowledged: this handler begins again before them, and the ledger absorbs what comes twice",
		"stream", t.c.sub.Stream, "seq", at.seq, "last_seq", state.LastSeq, "from_seq", start.seq+1)
	return t.beginAt(ctx, start, max(at.seq, t.c.lastRead.seq))
}

// clockSkew is by how much the clocks of a broker's servers may differ.
const clockSkew = time.Minute

// recognises reports whether the message at the floor is the one that was read.
func (t *term) recognises(ctx context.Context, at mark, state jetstream.StreamState) (bool, error) {
	return at.isIn(ctx, t.stream, state)
}

// isIn reports whether the stream has the message, or had it and dropped it.
func (m mark) isIn(ctx context.Context, stream jetstream.Stream, state jetstream.StreamState) (bool, error) {
	switch {
	case m.seq > state.LastSeq:
		return false, nil
	case m.seq < state.FirstSeq || m.stored.IsZero(): // it is gone, or none was noted
		return true, nil
	}
	msg, err := stream.GetMsg(ctx, m.seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // somebody deleted this one
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look up message %d: %w", m.seq, err)
	}
	return m.is(markOf(m.seq, msg.Header, msg.Time)), nil
}

// firstSince returns the place before the first message that the stream got at a
// time or later, by halves: times rise with sequences.
func firstSince(ctx context.Context, stream jetstream.Stream, since time.Time, state jetstream.StreamState) (mark, error) {
	low, high := state.FirstSeq, state.LastSeq+1 // it is in [low, high]
	for low < high {
		middle := low + (high-low)/2
		msg, err := stream.GetMsg(ctx, middle, jetstream.WithGetMsgSubject(">"))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // nothing from there on
			high = middle
		case err != nil:
			return mark{}, fmt.Errorf("look up message %d: %w", middle, err)
		case msg.Time.Before(since):
			low = msg.Sequence + 1
		default:
			high = middle
		}
	}
	return mark{seq: max(low, 1) - 1}, nil
}

// agedOut tells of messages that were dropped before they were read.
func (t *term) agedOut(ctx context.Context, from, to uint64) {
	t.c.lostData(ctx, lostAgedOut)
	t.c.log.ErrorContext(ctx, "the stream has dropped messages that this handler has not read: events may be missing; find them in the log of their producers",
		"stream", t.c.sub.Stream, "from_seq", from, "to_seq", to)
}

// beginAt has the reader begin behind a message, in places of their keys that are
// behind all that were used before, up to the given sequence.
func (t *term) beginAt(ctx context.Context, at mark, used uint64) error {
	err := t.c.inbox.pool.QueryRow(ctx, t.c.inbox.sql.restart, t.c.sub.Name, t.number, at.seq, used, optional(at.id), optional(at.stored)).Scan(&t.base)
	if err != nil {
		return fmt.Errorf("note where to begin: %w", err)
	}
	t.floor.reset(at)
	t.c.lastRead = at
	return nil
}
