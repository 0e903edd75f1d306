package inbox

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/stream"
)

var (
	// ErrForeignConsumer says that the durable consumer of a handler belongs to
	// another Postroom: its ledger knows nothing of what this one decided.
	ErrForeignConsumer = stream.ErrForeignConsumer

	// ErrOtherStream says that a handler is subscribed to another stream than the
	// one it is registered for. Its ledger is one, and so is its place in a stream.
	ErrOtherStream = stream.ErrOtherStream

	// ErrStreamLimit says that a limit of the stream or of the account leaves no room for
	// what a handler needs.
	ErrStreamLimit = stream.ErrStreamLimit
)

// ExamineLimits says which limits of a stream, as they are, leave no room for a handler
// that reads the given subjects, and what to change. It does no I/O.
func ExamineLimits(limits jetstream.StreamConfig, ordered bool, subjects []string) []error {
	return stream.ExamineLimits(limits, ordered, subjects)
}

// ExamineConsumer says what of a handler's durable consumer is not as it should
// be, and would lose events or keep them back. limits are those of its stream, which
// nobody can do about here: see [ExamineLimits]. subjects are those of its row of
// subscription. It returns [ErrForeignConsumer] for a consumer that another Postroom
// made, or another handler. It does no I/O.
func ExamineConsumer(cfg jetstream.ConsumerConfig, limits jetstream.StreamConsumerLimits, instance, handler string, subjects []string) ([]string, error) {
	return stream.ExamineConsumer(cfg, limits, instance, handler, subjects)
}

// Floor is the last message of its stream that a handler has decided, as its row
// of subscription has it: an ordered one's with id and time.
type Floor struct {
	Seq    uint64
	ID     string    // its message id
	Stored time.Time // when the stream got it; zero where it was not noted
}

// IsIn reports whether a stream in the given state has the message that was
// decided, or had it and dropped it. Where it has another there, or none yet, the
// broker has lost data.
func (f Floor) IsIn(ctx context.Context, of jetstream.Stream, state jetstream.StreamState) (bool, error) {
	return stream.IsIn(ctx, delivery.Position(f), of, state)
}
