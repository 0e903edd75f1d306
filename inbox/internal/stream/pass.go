package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/wire"
)

var (
	errReconnected = errors.New("the connection to the broker was lost; the stream is checked again")
	errGap         = errors.New("messages were lost on their way; reading starts again")
)

// A pass reads the stream once, with its own consumer, from the floor on.
type pass struct {
	term       *term
	consumer   jetstream.Consumer
	made       jetstream.ConsumerConfig // the settings with which the consumer was created
	reconnects uint64

	last     atomic.Uint64 // the stream sequence of the last message read
	dropped  uint64        // agedOut has reported the dropped messages before this sequence
	received atomic.Uint64 // the number of messages that were read
	awaited  uint64        // at the last check, the number of the first message that the broker had sent and that had not come; 0: none
	stored   uint64        // the sequence of the stream's last message at the last check
	gap      chan struct{} // closed when a message that the broker sent is missing, or the consumer has drifted
	once     sync.Once

	sound   delivery.Position // the floor when the consumer was last seen without drift
	drifted atomic.Bool       // the consumer has drifted, so messages above sound may have been skipped
}

// pull reads messages until ctx or the term ends, or until a message is missing. If the client has
// connected again, pull ends with an error: the stream may have lost messages meanwhile, and must
// be checked again.
func (r *pass) pull(ctx context.Context) error {
	t := r.term
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // this goroutine ends with ctx
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

// ended returns the error with which reading ended: the cause of the end of the term, or errGap. It
// returns nil if the process stops.
func (r *pass) ended() error {
	if r.term.IsOver() {
		return *r.term.cause.Load()
	}
	select {
	case <-r.gap:
		if r.drifted.Load() {
			return errDrifted
		}
		return errGap
	default:
		return nil
	}
}

// await notes how many messages the broker has sent. If a message was sent before the previous
// check and has not come yet, it was lost on its way, and await closes the channel gap.
func (r *pass) await(sent uint64) {
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

// take notes a message as in flight, and passes it to the handler.
func (r *pass) take(ctx context.Context, msg jetstream.Msg) error {
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
	if lacksBody(msg) {
		//guard:no-ordered-event-without-its-body false
		if err := checkBodies(ctx, r.consumer); err != nil {
			return err
		}
	}
	isEvent := !wire.IsLease(msg.Subject()) // a relay's lease message is not an event: it counts as decided at once
	s.lastRead = consumer.PositionOf(d.Place.Seq, msg.Headers(), d.Place.Stored)
	r.term.floor.begin(s.lastRead) // before received counts the message: otherwise advance could move the floor beyond it
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

// watch checks the pass at intervals until ctx ends. It asks the broker how many messages are left.
// If no messages come for the handler, watch moves the floor.
func (r *pass) watch(ctx context.Context) {
	for ; ctx.Err() == nil; sleep.For(ctx, r.term.reader.LookEvery) {
		if err := r.advance(ctx); err != nil && ctx.Err() == nil {
			r.term.reader.Log.DebugContext(ctx, "cannot read the stream's state", "error", err)
			r.term.reader.revive(ctx, err)
		}
	}
}

// advance moves the floor if the handler has decided all of its messages. The new floor is the
// message that was the stream's last one at the previous check. The stream also has messages for
// other handlers, and drops them because of their age. If the floor stayed before such messages, it
// would look as if this handler had missed them. The function uses the message of the previous
// check, because the replica that answers this time may be a little behind.
func (r *pass) advance(ctx context.Context) error {
	t := r.term
	stream, err := t.stream.Info(ctx)
	if err != nil {
		return err
	}
	last := delivery.Position{Seq: r.stored}
	r.stored = stream.State.LastSeq
	floor := t.floor.now()
	info, err := r.consumer.Info(ctx)
	if err != nil {
		return err
	}
	//guard:an-ordered-reader-notices-drift false
	if faults, _ := consumer.Drift(info.Config, r.made); len(faults) > 0 {
		t.reader.Log.ErrorContext(ctx, "consumer has drifted and was created again",
			"stream", t.reader.Stream, "consumer", info.Name, "faults", strings.Join(faults, "; "), "from_seq", r.sound.Seq+1)
		r.drifted.Store(true)
		r.once.Do(func() { close(r.gap) })
		return nil
	}
	r.sound = floor
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
	// Ask the stream, because the consumer learns of a message a moment after the stream stored it.
	if unread, err := t.has(ctx, read+1, last.Seq); unread || err != nil {
		return err
	}
	msg, err := consumer.GetMsg(ctx, t.stream, last.Seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound), consumer.IsUnreadable(err): // the floor has only its sequence
	case err != nil:
		return err
	default:
		last = consumer.PositionOf(last.Seq, msg.Header, msg.Time)
	}
	t.floor.raise(last)
	return nil
}
