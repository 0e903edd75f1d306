package stream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/wildcard"
)

// PendingCounter counts the messages of a stream that the handler has not decided.
type PendingCounter struct {
	cfg     Config
	ordered bool
	current atomic.Pointer[term] // the current or last term of an ordered handler
}

// NewPendingCounter returns a counter for a handler. It uses only the fields of cfg that
// identify the handler and its stream.
func NewPendingCounter(cfg Config, ordered bool) *PendingCounter {
	return &PendingCounter{cfg: cfg, ordered: ordered}
}

// errNotReading says that this process cannot count the messages.
var errNotReading = errors.New("this process does not read the stream: the handler has no consumer yet, or another process reads for it")

// Count returns the number of messages that the handler has not decided. It asks the broker. For an
// ordered handler, all messages that were not read yet may count as one.
func (p *PendingCounter) Count(ctx context.Context) (int64, error) {
	if p.cfg.Stream == "" { // the events come from Accept
		return 0, nil
	}
	js, err := jetstream.New(p.cfg.Conn)
	if err != nil {
		return 0, err
	}
	stream, err := js.Stream(ctx, p.cfg.Stream)
	if err != nil {
		return 0, fmt.Errorf("look at stream %s: %w", p.cfg.Stream, err)
	}
	if p.ordered {
		return p.ofReader(ctx, stream)
	}
	return p.ofConsumer(ctx, stream)
}

// ofConsumer counts the messages of a handler that has a durable consumer.
func (p *PendingCounter) ofConsumer(ctx context.Context, stream jetstream.Stream) (int64, error) {
	instance := p.cfg.Instance()
	if instance == "" { // Run has not begun
		return 0, errNotReading
	}
	durable, err := stream.Consumer(ctx, identity.Consumer(instance, p.cfg.Handler))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, errNotReading
	}
	if err != nil {
		return 0, fmt.Errorf("look at the consumer of %s: %w", p.cfg.Handler, err)
	}
	info := durable.CachedInfo()
	if n := int64(info.NumPending) + int64(info.NumAckPending); n > 0 { //nolint:gosec // of a stream
		return n, nil
	}
	return p.behind(ctx, stream, info.Delivered.Stream)
}

// ofReader counts the messages that this process read for an ordered handler and that are not
// decided. If the stream has a message after the floor, the result is at least 1.
func (p *PendingCounter) ofReader(ctx context.Context, stream jetstream.Stream) (int64, error) {
	t := p.current.Load()
	if t == nil || t.IsOver() {
		return 0, errNotReading
	}
	n, err := p.behind(ctx, stream, t.floor.now().Seq)
	return max(n, t.floor.size()), err
}

// behind returns 1 if the stream has a message for the handler after a sequence, and otherwise 0.
// It asks the stream: a publisher may have the acknowledgement of a message before the consumer
// knows the message.
func (p *PendingCounter) behind(ctx context.Context, stream jetstream.Stream, seq uint64) (int64, error) {
	for _, subject := range wildcard.Union(nil, p.cfg.Filter) {
		_, err := consumer.GetMsg(ctx, stream, seq+1, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil && !consumer.IsUnreadable(err):
			return 0, fmt.Errorf("look for the next message of %s: %w", subject, err)
		default:
			return 1, nil
		}
	}
	return 0, nil
}
