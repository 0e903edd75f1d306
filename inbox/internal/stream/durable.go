package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/wildcard"
)

// DurableReader reads with a durable consumer, which the processes of a handler share. The broker
// delivers each message to one of the processes. If that process does not answer, the broker
// delivers the message again. DurableReader implements delivery.Source for the messages that it
// reads.
type DurableReader struct {
	subscriber

	last    lastDelivery
	decided atomic.Uint64 // every event up to this sequence was decided
}

// NewDurableReader returns a reader for the durable consumer of a handler.
func NewDurableReader(cfg Config, records Records, to Receiver) *DurableReader {
	return &DurableReader{subscriber: subscriber{Config: cfg, records: records, to: to}}
}

// Read pulls messages and watches the consumer, until life.Take ends or reading fails.
func (s *DurableReader) Read(life delivery.Lifetime) error {
	ctx := life.Take
	durable, err := s.ensure(ctx)
	if err != nil {
		return err
	}
	reading, cancel := context.WithCancelCause(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { cancel(s.watch(reading, durable)) })
	err = s.pull(reading, durable)
	cancel(err)
	looks.Wait()
	if err = context.Cause(reading); errors.Is(err, jetstream.ErrConsumerDeleted) {
		s.last.from(time.Time{}) // Ack must send nothing for the deleted consumer, because another process may have created the next one
	}
	return err
}

// ensure records the subscription, and then finds or creates the durable consumer.
func (s *DurableReader) ensure(ctx context.Context) (jetstream.Consumer, error) {
	stream, row, _, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	want := s.config(row.Floor)
	want.InactiveThreshold = consumer.Threshold(stream.CachedInfo().Config, 0)
	durable, err := stream.Consumer(ctx, want.Durable)
	s.decided.Store(row.Floor)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if row.Floor, err = s.stillDecided(ctx, stream, row); err != nil {
			return nil, err
		}
		if !row.IsNew {
			s.Log.ErrorContext(ctx, "consumer was gone and is created again",
				"stream", s.Stream, "consumer", want.Durable, "from_seq", row.Floor+1)
		}
		want.DeliverPolicy, want.OptStartSeq = beginAfter(row.Floor)
		durable, err = stream.CreateConsumer(ctx, want)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", want.Durable, err)
	}
	if durable, err = s.adopt(ctx, stream, durable, want, row); err != nil {
		return nil, err
	}
	if durable, err = s.beginAgain(ctx, stream, durable, row); err != nil {
		return nil, err
	}
	s.last.from(durable.CachedInfo().Created)
	return durable, nil
}

// adopt makes an existing consumer ready for use. If the consumer belongs to another database or
// handler, adopt returns an error. If settings have drifted, so that events could be lost or late,
// adopt corrects the settings. If this process asks for more subjects, adopt adds them to the
// filter. It never removes subjects, because an older process may still need them. If an operator
// has paused the consumer at the broker, the consumer stays paused. If max_deliver was limited, the
// broker may have dropped events, and adopt begins again after the recorded floor.
func (s *DurableReader) adopt(ctx context.Context, stream jetstream.Stream, durable jetstream.Consumer, want jetstream.ConsumerConfig, row delivery.Subscription) (jetstream.Consumer, error) {
	now := durable.CachedInfo().Config
	if now.Metadata[identity.InstanceKey] != want.Metadata[identity.InstanceKey] || now.Metadata[identity.HandlerKey] != s.Handler {
		return nil, postroom.Unrecoverable(fmt.Errorf("%w: %s on stream %s", consumer.ErrForeign, want.Durable, s.Stream))
	}
	have := consumer.Filter(now)
	all := wildcard.Union(have, want.FilterSubjects)
	faults := consumer.Drift(now, want)
	if slices.Equal(all, have) && len(faults) == 0 {
		return durable, nil
	}
	s.Log.WarnContext(ctx, "consumer has drifted and is updated",
		"stream", s.Stream, "consumer", want.Durable, "faults", strings.Join(faults, "; "))
	//guard:a-limited-consumer-begins-again false
	if now.MaxDeliver > 0 {
		want.FilterSubjects, want.PauseUntil = all, now.PauseUntil
		return s.beginAtFloor(ctx, stream, want, row)
	}
	now.FilterSubject, now.FilterSubjects = "", all
	now.InactiveThreshold = want.InactiveThreshold
	now.AckWait, now.MaxDeliver, now.MaxAckPending, now.BackOff = want.AckWait, want.MaxDeliver, want.MaxAckPending, nil
	//guard:a-consumer-gets-bodies-again remove
	now.HeadersOnly = false
	now.MaxRequestBatch, now.MaxRequestMaxBytes, now.MaxRequestExpires = 0, 0, 0
	now.PriorityPolicy, now.PriorityGroups, now.PinnedTTL = jetstream.PriorityPolicyNone, nil, 0
	durable, err := stream.UpdateConsumer(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("update consumer %s: %w", want.Durable, err)
	}
	return durable, nil
}

// config returns the consumer's configuration. MaxDeliver has no limit, because with a limit the
// broker would drop events silently. The inbox counts attempts instead. MaxAckPending has no limit,
// because each process limits its own messages in flight. If the consumer is created, it begins
// after the sequence in the parameter floor, up to which all events are decided.
func (s *DurableReader) config(floor uint64) jetstream.ConsumerConfig {
	instance := s.Instance()
	cfg := jetstream.ConsumerConfig{
		Durable:        identity.Consumer(instance, s.Handler),
		Description:    "Postroom handler " + s.Handler,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        s.AckWait,
		MaxDeliver:     consumer.Unbounded,
		MaxAckPending:  consumer.Unbounded,
		FilterSubjects: wildcard.Union(nil, s.Filter), // Union, because the broker refuses overlapping filters
		Metadata:       map[string]string{identity.InstanceKey: instance, identity.HandlerKey: s.Handler},
	}
	cfg.DeliverPolicy, cfg.OptStartSeq = beginAfter(floor)
	return cfg
}

// beginAfter returns the settings with which a consumer begins after the given sequence.
func beginAfter(floor uint64) (jetstream.DeliverPolicy, uint64) {
	if floor == 0 {
		return jetstream.DeliverAllPolicy, 0
	}
	return jetstream.DeliverByStartSequencePolicy, floor + 1
}
