package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/identity"
)

// ExamineConsumer says what of a handler's durable consumer is not as it should
// be, and would lose events or keep them back. limits are those of its stream, which
// nobody can do about here: see [ExamineLimits]. subjects are those of its row of
// subscription. It returns [ErrForeignConsumer] for a consumer that another Postroom
// made, or another handler. It does no I/O.
func ExamineConsumer(cfg jetstream.ConsumerConfig, limits jetstream.StreamConsumerLimits, instance, handler string, subjects []string) ([]string, error) {
	if i, h := identity.Owner(cfg.Metadata); i != instance || h != handler {
		return nil, ErrForeignConsumer
	}
	faults := driftOfAll(cfg, jetstream.ConsumerConfig{MaxDeliver: unbounded, MaxAckPending: unbounded, FilterSubjects: subjects})
	differ := func(differs bool, format string, args ...any) {
		if differs {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	differ(cfg.AckPolicy != jetstream.AckExplicitPolicy, "ack_policy is %s, want explicit", cfg.AckPolicy)
	differ(cfg.InactiveThreshold > 0 && cfg.InactiveThreshold != limits.InactiveThreshold, "it is removed when nobody reads for %s (inactive_threshold)", cfg.InactiveThreshold)
	differ(cfg.MemoryStorage, "its state is in memory: a restart of the broker forgets it")
	differ(cfg.HeadersOnly, "it delivers headers only")
	differ(cfg.RateLimit > 0, "it delivers %d bits a second at the most (rate_limit_bps)", cfg.RateLimit)
	return faults, nil
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
func (f Floor) IsIn(ctx context.Context, stream jetstream.Stream, state jetstream.StreamState) (bool, error) {
	return mark{seq: f.Seq, id: f.ID, stored: f.Stored}.isIn(ctx, stream, state)
}
