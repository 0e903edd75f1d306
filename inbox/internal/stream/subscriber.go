// Package stream reads a JetStream stream for a handler: by a durable consumer, which the
// processes of the handler share, or in order, by one process at a time. It knows which
// messages are in hand, up to where all are decided, and whether the broker has lost any.
// What has to last it has its Records keep.
package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// ErrOtherStream says that a handler is subscribed to another stream than the
// one it is registered for. Its ledger is one, and so is its place in a stream.
var ErrOtherStream = errors.New("the handler is subscribed to another stream")

// readerThreshold is how long the broker keeps the consumer of an ordered handler's
// reader that asks for nothing.
const readerThreshold = time.Minute

// Config says what is read, and how.
type Config struct {
	Conn       *nats.Conn
	Handler    string
	Stream     string
	Filter     []string // subjects
	DeliverNew bool     // a new handler does not read what the stream has by then
	Instance   func() string
	InFlight   *InFlight
	Pending    *Pending // is told when an ordered handler reads; it may be nil
	Log        *slog.Logger

	AckWait    time.Duration
	LookEvery  time.Duration // how often the consumer is looked at
	FloorEvery time.Duration // how often the floor of a durable consumer is noted
}

// Receiver is the handler that reads.
type Receiver interface {
	// Take gets each message that is an event, in the order in which it was delivered.
	Take(ctx context.Context, d *delivery.Delivery)

	// Begin is called when this process begins to read for an ordered handler.
	Begin(ctx context.Context) error

	// Lost is told that the handler may have missed events, or may get others again.
	Lost(ctx context.Context, reason string)
}

// Records keep in the database what is known of a handler's place in its stream.
type Records interface {
	// Subscribe notes what the handler reads, and returns its row. A new one begins behind
	// floor; up to backfill the age of an event does not matter.
	Subscribe(ctx context.Context, created time.Time, floor, backfill uint64) (delivery.Subscription, error)

	// Recreate notes that the stream was made again, and where it begins.
	Recreate(ctx context.Context, created time.Time, floor uint64) error

	// Raise notes up to where everything is decided, and Lower that it is not.
	Raise(ctx context.Context, created time.Time, floor uint64) error
	Lower(ctx context.Context, created time.Time, floor uint64) error

	// Lead takes the lease of the process that reads for an ordered handler. It returns
	// nil while another process has it.
	Lead(ctx context.Context, lease time.Duration) (*delivery.Lead, error)

	// Keep returns what renews that lease, or gives it up if it is nil, and notes the
	// floor: on a connection of its own, as handlers may have all others, until close is
	// called. It returns delivery.ErrTermOver if another process has the lease.
	Keep(epoch int64) (keep func(ctx context.Context, lease *time.Duration, floor delivery.Position) error, close func())

	// Restart has reading begin behind a message, in places of their keys that are behind
	// all that were used, up to the given sequence. It returns the new base.
	Restart(ctx context.Context, epoch int64, at delivery.Position, used uint64) (base int64, err error)
}

// View is what the broker says of a handler's consumer.
type View struct {
	Pending, AckPending float64
	Drifted             bool
}

// Plain returns an error in words that say what is the matter. Of a broker that is away
// the client library says that what it keeps for it is full; here it keeps nothing.
func Plain(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return errNoBroker
	}
	return err
}

var errNoBroker = errors.New("no connection to the broker")

// Reader reads the stream for a handler.
type Reader interface {
	// Read reads until nothing more is to be taken, or reading fails. What is in hand may
	// still be decided after that.
	Read(life delivery.Lifetime) error

	// Beat gives signs of life for what is in hand, until ctx ends.
	Beat(ctx context.Context)

	// Leave ends the reading, when nothing is in hand any more.
	Leave(ctx context.Context)

	// View returns what the broker said last, or nil.
	View() *View
}

// subscriber is what both ways to read have in common.
type subscriber struct {
	Config

	to      Receiver
	records Records
	origin  delivery.Origin
	view    atomic.Pointer[View]
}

// View returns what the broker said last of the consumer, or nil.
func (s *subscriber) View() *View { return s.view.Load() }

// look looks the stream up, and notes the subscription.
func (s *subscriber) look(ctx context.Context) (stream jetstream.Stream, row delivery.Subscription, again bool, err error) {
	js, err := jetstream.New(s.Conn)
	if err != nil {
		return nil, row, false, err
	}
	stream, err = js.Stream(ctx, s.Stream)
	if err != nil {
		return nil, row, false, s.refuseClosed(fmt.Errorf("look up stream %s: %w", s.Stream, err))
	}
	s.origin.Stream, s.origin.Created = s.Stream, stream.CachedInfo().Created
	row, again, err = s.subscribe(ctx, stream.CachedInfo())
	if err != nil {
		return nil, row, again, err
	}
	s.origin.Backfill = row.Backfill
	return stream, row, again, nil
}

// subscribe notes what the handler reads, before its consumer is made: where that
// is lost, the note says where the next one begins. It reports whether the stream was
// made again.
func (s *subscriber) subscribe(ctx context.Context, stream *jetstream.StreamInfo) (row delivery.Subscription, again bool, err error) {
	created := s.created()
	first := max(stream.State.FirstSeq, 1) - 1 // before what the stream still has
	floor, backfill := first, stream.State.LastSeq
	if s.DeliverNew {
		floor, backfill = backfill, 0
	}
	row, err = s.records.Subscribe(ctx, created, floor, backfill)
	if err != nil {
		return row, false, err
	}
	if row.Stream != s.Stream {
		return row, false, postroom.Unrecoverable(fmt.Errorf(
			"%w: %s, and is registered for %s: give the handler another name, which gets all events anew, or delete its row of the subscription table",
			ErrOtherStream, row.Stream, s.Stream))
	}
	if row.Created.Equal(created) {
		return row, false, nil
	}
	s.Log.ErrorContext(ctx, "the stream was deleted and made again; the handler begins at its start",
		"stream", s.Stream, "created", created, "was_created", row.Created)
	if err := s.records.Recreate(ctx, created, first); err != nil {
		return row, true, err
	}
	s.to.Lost(ctx, lostRecreated)
	row.Created, row.Floor, row.Backfill, row.IsNew = created, first, 0, true
	return row, true, nil
}

// created is when the stream was made, as the column has it.
func (s *subscriber) created() time.Time { return s.origin.Created.Truncate(time.Microsecond) }

func (s *subscriber) infoOf(ctx context.Context, stream jetstream.Stream) (*jetstream.StreamInfo, error) {
	info, err := stream.Info(ctx)
	if err == nil && !info.Created.Equal(s.origin.Created) {
		err = errors.New("it was made again")
	}
	if err != nil {
		return nil, s.refuseClosed(fmt.Errorf("look up stream %s: %w", s.Stream, err))
	}
	return info, nil
}

// refuseClosed marks an error on a closed connection: nobody opens it again.
func (s *subscriber) refuseClosed(err error) error {
	if s.Conn.IsClosed() {
		return postroom.Unrecoverable(fmt.Errorf("%w: %w", nats.ErrConnectionClosed, err))
	}
	return err
}

// mayNotRead reports whether the broker has refused to this user to read single messages.
// It says so to the connection, and the request stays without an answer.
func (s *subscriber) mayNotRead() bool {
	err := s.Conn.LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), ".GET.")
}
