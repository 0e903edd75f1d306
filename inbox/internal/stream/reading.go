package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/pause"
	"github.com/postroom/postroom/internal/wire"
)

var (
	errReconnected = errors.New("the connection to the broker was lost in between; what the stream has is looked at again")
	errGap         = errors.New("messages were lost on their way; reading begins again")
)

// reading is one way through the stream, from the floor on.
type reading struct {
	term       *term
	consumer   jetstream.Consumer
	reconnects uint64

	last     atomic.Uint64 // the message that was read last, in the stream
	dropped  uint64        // up to here it is told of messages that were dropped unread
	received atomic.Uint64 // how many were read
	awaited  uint64        // at the last look, if the broker had sent more: the next of them
	stored   uint64        // the last message that the stream had at the last look
	gap      chan struct{} // closed when one that was sent does not come
	once     sync.Once
}

// pull reads messages until ctx or the term ends, or one is missing. The next request
// is made only where the connection is still the one on which the floor was looked
// at: on another, the stream may not have any more what it had.
func (r *reading) pull(ctx context.Context) error {
	t := r.term
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-t.over:
		case <-r.gap:
		case <-ctx.Done():
		}
		cancel()
	}()
	requests, stop := t.reader.requests(r.consumer)
	defer stop()
	for requests.wait(ctx) {
		err := requests.next(ctx, func(msg jetstream.Msg) error { return r.take(ctx, msg) })
		switch {
		case ctx.Err() != nil:
			return r.ended()
		case err != nil:
			return t.reader.refuseClosed(fmt.Errorf("read: %w", err))
		case t.reader.Conn.Stats().Reconnects != r.reconnects:
			return errReconnected
		}
	}
	return r.ended()
}

// ended says why reading ended: with its term, for a gap, or because the process stops.
func (r *reading) ended() error {
	if r.term.IsOver() {
		return *r.term.cause.Load()
	}
	select {
	case <-r.gap:
		return errGap
	default:
		return nil
	}
}

// await notes how many messages the broker has sent. One that did not come from one
// look to the next was lost on its way.
func (r *reading) await(sent uint64) {
	next := r.received.Load() + 1
	switch {
	case sent < next:
		r.awaited = 0
	case r.awaited == next:
		r.once.Do(func() { close(r.gap) })
	default:
		r.awaited = next
	}
}

// take takes a message in hand, and hands it to the handler.
func (r *reading) take(ctx context.Context, msg jetstream.Msg) error {
	s := r.term.reader
	d, err := delivery.Decode(msg, s.origin)
	if err != nil {
		return err
	}
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Consumer != r.received.Load()+1 || d.Place.Seq <= r.last.Load() {
		return errGap
	}
	isEvent := !wire.IsLease(msg.Subject()) // a relay's is none: the floor moves past it
	s.lastRead = consumer.PositionOf(d.Place.Seq, msg.Headers(), d.Place.Stored)
	r.term.floor.begin(s.lastRead) // before it counts as received: see advance
	if isEvent {
		s.InFlight.take(msg)
	}
	r.last.Store(d.Place.Seq)
	r.received.Add(1)
	if !isEvent {
		r.term.floor.decided(d.Place.Seq)
		return nil
	}
	d.Source, d.Pos = r.term, r.term.base+d.Pos
	s.to.Take(ctx, d)
	return nil
}

// watch looks after the reading until ctx ends: how much is left, and whether the
// floor can move while nothing comes.
func (r *reading) watch(ctx context.Context) {
	for ; ctx.Err() == nil; pause.For(ctx, r.term.reader.LookEvery) {
		if err := r.advance(ctx); err != nil && ctx.Err() == nil {
			r.term.reader.Log.DebugContext(ctx, "the stream could not be looked at", "error", err)
		}
	}
}

// advance moves the floor to what was the stream's last message at the look before,
// where nothing of the handler's is left up to there: what others write to the stream,
// and its age, would make it seem later that something was missed. At the look before,
// because a replica that is asked may be behind the others by a little.
func (r *reading) advance(ctx context.Context) error {
	t := r.term
	stream, err := t.stream.Info(ctx)
	if err != nil {
		return err
	}
	last := delivery.Position{Seq: r.stored}
	r.stored = stream.State.LastSeq
	info, err := r.consumer.Info(ctx)
	if err != nil {
		return err
	}
	t.reader.view.Store(&View{Pending: float64(info.NumPending)})
	r.await(info.Delivered.Consumer)
	if first := stream.State.FirstSeq; info.NumPending > 0 && !t.floor.idle() && first > r.last.Load()+1 && first > r.dropped {
		r.dropped = first
		t.agedOut(ctx, r.last.Load()+1, first-1)
	}
	read := r.last.Load()
	if info.NumPending > 0 || info.Delivered.Consumer != r.received.Load() || !t.floor.idle() || last.Seq <= t.floor.now().Seq {
		return nil
	}
	// The consumer hears of a message a moment after it was stored.
	if unread, err := t.has(ctx, read+1, last.Seq); unread || err != nil {
		return err
	}
	msg, err := t.stream.GetMsg(ctx, last.Seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // it was deleted: nothing to recognise it by
	case err != nil:
		return err
	default:
		last = consumer.PositionOf(last.Seq, msg.Header, msg.Time)
	}
	t.floor.raise(last)
	return nil
}
