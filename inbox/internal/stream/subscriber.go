// Package stream reads a JetStream stream for a handler: with a durable consumer, which the
// processes of the handler share, or in order, in one process at a time. It knows which messages
// are in flight, up to which sequence all messages are decided, and whether the broker has lost
// messages. [Records] stores a reader's position in the database.
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
	"github.com/postroom/postroom/internal/jsremedy"
)

// ErrOtherStream says that a handler subscribes to another stream than the stream that is recorded
// for the handler. A handler has one set of inbox rows and one position, so it reads one stream.
var ErrOtherStream = errors.New("the handler is subscribed to another stream")

// readerThreshold is how long the broker keeps the consumer of an ordered reader if the reader
// sends no request.
const readerThreshold = time.Minute

// Config says what a reader reads, and how.
type Config struct {
	Conn       *nats.Conn
	Handler    string
	Stream     string
	Filter     []string // the subjects that the reader reads
	DeliverNew bool     // a new handler skips the messages that the stream already has
	Instance   func() string
	InFlight   *InFlight
	Pending    *PendingCounter // gets the term of an ordered handler; may be nil
	Log        *slog.Logger
	Reads      func() // called when the reader has found its stream, each time that it begins

	AckWait    time.Duration
	LookEvery  time.Duration // how often to check the consumer
	FloorEvery time.Duration // how often to record the floor of a durable consumer

	// OwnKeys says that a function of the subscription makes the dedupe keys. Then the reader cannot
	// tell whether an event that another process acknowledged is decided: that process may have
	// another version of the function.
	OwnKeys bool
}

// Receiver is the handler that gets the deliveries.
type Receiver interface {
	// Take takes a delivery. The reader calls it for each message that is an event, in the order of
	// delivery.
	Take(ctx context.Context, d *delivery.Delivery)

	// Begin prepares the handler. The reader calls it when this process begins to read for an ordered
	// handler, or for one that was ordered before.
	Begin(ctx context.Context) error

	// Undecided returns the first of the deliveries that the handler has not decided according to
	// the database, or nil. The deliveries may lack their bodies.
	Undecided(ctx context.Context, all []*delivery.Delivery) (*delivery.Delivery, error)

	// Lost reports a loss. The reader calls it if the handler may have missed events, or may get
	// events again.
	Lost(ctx context.Context, reason string)
}

// Records stores a handler's position in its stream in the database.
type Records interface {
	// Subscribe records what the handler reads, and returns the handler's row. A new handler begins
	// after the sequence floor. An event above the floor and up to the sequence backfill never
	// counts as too old.
	Subscribe(ctx context.Context, created time.Time, floor, backfill uint64) (delivery.Subscription, error)

	// Recreate records that the stream was created again, and where it begins.
	Recreate(ctx context.Context, created time.Time, floor uint64) error

	// Place returns the recorded floor, up to which every event is decided, and whether it was
	// recorded within the given time. Raise records a floor, if at is what is recorded and the
	// database server is still the same. Lower records that reading begins again, perhaps at a lower
	// sequence because the recorded one was too high, and returns the sequence backfill. That is 0 if
	// the floor becomes lower, or if rows of the handler have expired: it may have decided some of the
	// events that it reads again.
	Place(ctx context.Context, created time.Time, within time.Duration) (delivery.Recorded, error)
	Raise(ctx context.Context, created time.Time, at delivery.Recorded, floor uint64) error
	Lower(ctx context.Context, created time.Time, floor uint64) (backfill uint64, err error)

	// Skip records that the handler got another subject when its consumer had delivered the messages
	// up to the sequence through. It has skipped messages of that subject up to there.
	Skip(ctx context.Context, created time.Time, through uint64) error

	// Lead takes the lease to read for an ordered handler. It returns nil while another
	// process has the lease.
	Lead(ctx context.Context, lease time.Duration) (*delivery.Lead, error)

	// Pardon records that no event can have ended the earlier readers, because the reader with this
	// epoch found none to read.
	Pardon(ctx context.Context, epoch int64) error

	// Keep returns two functions. The first one, keep, records the floor and renews the lease. If
	// its parameter lease is nil, keep gives up the lease instead. If the term is over, or its
	// connection broke, keep returns delivery.ErrTermOver. The function keep occupies one
	// connection of the pool until close is called, because handlers may use all the others.
	Keep(epoch int64) (keep func(ctx context.Context, lease *time.Duration, floor delivery.Position) error, close func())

	// Restart records the position after which reading begins, and returns a new base. An event's
	// position in the order of its key is its sequence plus the base. With the new base, events
	// that are read from now on come after the events that had sequences up to the parameter used.
	// Restart also returns the sequence backfill, which is 0 if the floor becomes lower.
	Restart(ctx context.Context, epoch int64, at delivery.Position, used uint64) (base int64, backfill uint64, err error)
}

// View is the broker's answer about a handler's consumer.
type View struct {
	Pending, AckPending float64
	Drifted             bool
	Paused              bool // an operator has paused the consumer at the broker
}

// Plain replaces a misleading error of the client library. If there is no connection to
// the broker, the library says that its reconnect buffer is full, but Postroom's
// connections have no such buffer. Plain also says why the client could not connect, and which
// permission may be the reason why a request got no answer.
func Plain(err error, nc *nats.Conn) error {
	last := nc.LastError() // nil, or ErrInvalidConnection if nc is nil
	switch {
	//guard:the-reader-says-why-there-is-no-connection false
	case errors.Is(err, nats.ErrReconnectBufExceeded) && last != nil:
		return fmt.Errorf("%w: %w", errNoBroker, last)
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return errNoBroker
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(last, nats.ErrPermissionViolation):
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

var errNoBroker = errors.New("no connection to the broker")

// Reader reads the stream for a handler.
type Reader interface {
	// Read reads until life.Take ends or reading fails. Messages in flight may still be
	// decided after that.
	Read(life delivery.Lifetime) error

	// Beat sends signs of life for messages in flight, until ctx ends.
	Beat(ctx context.Context)

	// Leave ends the reading. Call it when no message is in flight.
	Leave(ctx context.Context)

	// View returns the broker's last answer about the consumer, or nil.
	View() *View
}

// subscriber is the common part of both readers.
type subscriber struct {
	Config

	to      Receiver
	records Records
	origin  delivery.Origin
	view    atomic.Pointer[View]
}

// View returns the broker's last answer about the consumer, or nil.
func (s *subscriber) View() *View { return s.view.Load() }

// look looks up the stream and records the subscription. The result again reports whether the
// stream was deleted and created again.
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

// subscribe records what the handler reads. The reader creates its consumer after that. So if the
// consumer is lost, the record says where the next consumer begins. The result again reports
// whether the stream was deleted and created again.
func (s *subscriber) subscribe(ctx context.Context, stream *jetstream.StreamInfo) (row delivery.Subscription, again bool, err error) {
	created := s.created()
	first := max(stream.State.FirstSeq, 1) - 1 // before the first message that the stream still has
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
			"%w: %s, and is registered for %s: give the handler another name, which gets all events again, or delete its row of the subscription table",
			ErrOtherStream, row.Stream, s.Stream))
	}
	if row.Created.Equal(created) {
		return row, false, nil
	}
	s.Log.ErrorContext(ctx, "stream was deleted and created again, reading from its start",
		"stream", s.Stream, "created", created, "was_created", row.Created)
	if err := s.records.Recreate(ctx, created, first); err != nil {
		return row, true, err
	}
	s.to.Lost(ctx, lostRecreated)
	row.Created, row.Floor, row.Backfill, row.IsNew = created, first, 0, true
	return row, true, nil
}

// exempt notes that reading begins again after the sequence floor, and up to which sequence the age of
// an event does not matter now.
func (s *subscriber) exempt(ctx context.Context, floor, backfill uint64) {
	if backfill == 0 && s.origin.Backfill > floor {
		s.Log.WarnContext(ctx, "reading of the first events begins again, and inbox rows have expired, so events that are too old become dead",
			"stream", s.Stream, "from_seq", floor+1, "through_seq", s.origin.Backfill)
	}
	s.origin.Backfill = backfill
}

// created returns when the stream was created, with the precision that a column of the database
// has.
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

// refuseClosed marks an error on a closed connection as unrecoverable, because a closed
// connection does not reconnect.
func (s *subscriber) refuseClosed(err error) error {
	if s.Conn.IsClosed() {
		return postroom.Unrecoverable(fmt.Errorf("%w: %w", jsremedy.Closed(s.Conn), err))
	}
	return err
}

// revive makes a deaf connection connect again, if err says that a request got no answer.
func (s *subscriber) revive(ctx context.Context, err error) {
	//guard:a-deaf-reader-connects-again false
	if errors.Is(err, context.DeadlineExceeded) && s.Conn.IsConnected() {
		jsremedy.Revive(ctx, s.Conn, jsremedy.AboutStream(s.Stream))
	}
}

// mayNot reports whether the broker forbids this user requests whose subject contains the given
// text: ".GET." for reading single messages. It also reports whether the broker forbids the user to
// subscribe to a subject that contains the text. The broker does not answer then. It only reports an
// error on the connection.
func (s *subscriber) mayNot(request string) bool {
	err := s.Conn.LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), request)
}
