package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	own     ownDeliveries

	server   time.Time          // when the database server started, at the last check
	recorded uint64             // the recorded floor at the last check
	back     *delivery.Recorded // reading has to begin again at this floor; nil: it has not
	stays    bool               // the broker did not let this process begin again, so the recorded floor stays
	blind    bool               // the broker does not let this process read messages again
	bodies   bool               // some events have their attributes in the bodies of their messages

	wanted    jetstream.ConsumerConfig // the consumer's settings without drift
	stuck     []string                 // the drift that the broker did not let this process correct
	corrected time.Time                // when this process last corrected a drift
}

// NewDurableReader returns a reader for the durable consumer of a handler.
func NewDurableReader(cfg Config, records Records, to Receiver) *DurableReader {
	return &DurableReader{subscriber: subscriber{Config: cfg, records: records, to: to}}
}

// Read pulls messages and watches the consumer, until life.Take ends or reading fails. If the
// consumer has drifted, Read corrects it and goes on. If acknowledged events may be undecided, Read
// begins again at the recorded floor.
func (s *DurableReader) Read(life delivery.Lifetime) error {
	err := s.read(life.Take)
	for errors.Is(err, errDrifted) || errors.Is(err, errUndecided) {
		err = s.read(life.Take)
	}
	s.revive(life.Take, err)
	return err
}

// read is one round of Read. It ends with errDrifted if the consumer has drifted, and with
// errUndecided if acknowledged events may be undecided.
func (s *DurableReader) read(ctx context.Context) error {
	stream, durable, err := s.ensure(ctx)
	if err != nil {
		return err
	}
	s.Reads()
	reading, cancel := context.WithCancelCause(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { cancel(s.watch(reading, stream, durable)) })
	err = s.pull(reading, durable)
	cancel(err)
	looks.Wait()
	if err = context.Cause(reading); errors.Is(err, jetstream.ErrConsumerDeleted) {
		s.last.from(time.Time{}) // Ack must send nothing for the deleted consumer, because another process may have created the next one
	}
	return err
}

// ensure records the subscription, and then finds or creates the durable consumer.
func (s *DurableReader) ensure(ctx context.Context) (jetstream.Stream, jetstream.Consumer, error) {
	stream, row, _, err := s.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	want := s.config()
	want.InactiveThreshold = consumer.Threshold(stream.CachedInfo().Config, 0)
	durable, err := stream.Consumer(ctx, want.Durable)
	s.decided.Store(row.Floor)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if row.Floor, err = s.beginning(ctx, stream, row); err != nil {
			return nil, nil, err
		}
		if !row.IsNew {
			s.Log.ErrorContext(ctx, "consumer was gone and is created again",
				"stream", s.Stream, "consumer", want.Durable, "from_seq", row.Floor+1)
		}
		want.DeliverPolicy, want.OptStartSeq = s.beginAfter(row.Floor, stream)
		durable, err = stream.CreateConsumer(ctx, want)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("consumer %s: %w", want.Durable, err)
	}
	if durable, err = s.adopt(ctx, stream, durable, want, row); err != nil {
		return nil, nil, err
	}
	if durable, err = s.beginAgain(ctx, stream, durable, row); err != nil {
		return nil, nil, err
	}
	if durable, err = s.goBack(ctx, stream, durable, row); err != nil {
		return nil, nil, err
	}
	if row.InOrder {
		if err := s.to.Begin(ctx); err != nil {
			return nil, nil, err
		}
	}
	s.last.from(durable.CachedInfo().Created)
	s.own.from(durable.CachedInfo().Created)
	return stream, durable, nil
}

// adopt makes an existing consumer ready for use. If the consumer belongs to another database or
// handler, adopt returns an error. If settings have drifted, so that events could be lost or late,
// adopt corrects the settings. If the broker does not allow that, the handler reads with the
// consumer as it is. If the handler was ordered after it used the consumer, adopt creates the
// consumer again at the recorded floor, because inbox rows of events below it may have expired. If
// this process asks for more subjects, adopt adds them to the filter. It never removes subjects,
// because an older process may still need them. If an operator has paused the consumer at the broker,
// the consumer stays paused.
func (s *DurableReader) adopt(ctx context.Context, stream jetstream.Stream, durable jetstream.Consumer, want jetstream.ConsumerConfig, row delivery.Subscription) (jetstream.Consumer, error) {
	now := durable.CachedInfo().Config
	if consumer.IsForeign(now.Metadata, want.Metadata[identity.InstanceKey], s.Handler) {
		return nil, postroom.Unrecoverable(fmt.Errorf("%w: %s on stream %s", consumer.ErrForeign, want.Durable, s.Stream))
	}
	s.wanted, s.stuck = now, nil
	good := withSettings(now, want)
	good.FilterSubjects = wildcard.Union(consumer.Filter(now), want.FilterSubjects)
	aim := good
	aim.OptStartSeq = row.Floor + 1
	faults, _ := consumer.Drift(now, aim)
	//guard:a-consumer-from-before-the-order-begins-at-the-floor false
	behind := row.InOrder && durable.CachedInfo().AckFloor.Stream < row.Floor
	if len(faults) == 0 && !behind {
		return durable, nil
	}
	known := aim // without the subjects that are new: the broker has not skipped messages of these
	//guard:a-new-subject-does-not-replace-the-consumer remove
	//guard:subjects-that-an-operator-removed-are-not-skipped = nil
	known.FilterSubjects = slices.DeleteFunc(slices.Clone(want.FilterSubjects), func(subject string) bool { return !slices.Contains(row.Before, subject) })
	_, again := consumer.Drift(now, known)
	again = again || behind
	s.corrected = time.Now()
	log := s.Log.With("stream", s.Stream, "consumer", want.Durable, "faults", strings.Join(faults, "; "))
	var by jetstream.Consumer
	var err error
	if again {
		by, err = s.beginAtFloor(ctx, stream, good, row)
	} else {
		by, err = stream.UpdateConsumer(ctx, good)
	}
	//guard:a-drift-that-cannot-be-corrected-stops-no-handler false
	if s.isRefused(err) {
		if s.wanted = aim; s.isForbidden(err) {
			s.stuck = faults
		}
		log.ErrorContext(ctx, "consumer has drifted and cannot be corrected", "error", err, "advice", s.advice(err))
		return durable, nil
	}
	if err != nil {
		return nil, fmt.Errorf("correct consumer %s: %w", want.Durable, err)
	}
	s.wanted = by.CachedInfo().Config
	//guard:messages-before-a-new-subject-are-not-missing false
	if !again && len(wildcard.Uncovered(s.wanted.FilterSubjects, consumer.Filter(now))) > 0 {
		if err := s.records.Skip(ctx, s.created(), by.CachedInfo().Delivered.Stream); err != nil {
			return nil, err
		}
	}
	switch left, _ := consumer.Drift(s.wanted, aim); {
	case len(faults) == 0:
		log.InfoContext(ctx, "consumer from before the handler was ordered was created again", "from_seq", max(s.wanted.OptStartSeq, 1))
	case again:
		log.ErrorContext(ctx, "consumer has drifted and was created again", "from_seq", max(s.wanted.OptStartSeq, 1))
	case !slices.Equal(left, faults): // otherwise the server sets max_batch, and the reader obeys it
		log.WarnContext(ctx, "consumer has drifted and is updated")
	}
	return by, nil
}

// withSettings returns the configuration of an existing consumer with those settings of the
// parameter want without which events are lost or late. The other settings are left to operators.
func withSettings(now, want jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	now.FilterSubject, now.FilterSubjects = "", want.FilterSubjects
	now.InactiveThreshold = want.InactiveThreshold
	now.AckPolicy, now.ReplayPolicy, now.MemoryStorage = want.AckPolicy, want.ReplayPolicy, false
	now.AckWait, now.MaxDeliver, now.MaxAckPending, now.BackOff = want.AckWait, want.MaxDeliver, want.MaxAckPending, nil
	//guard:a-consumer-gets-bodies-again remove
	now.HeadersOnly = false
	now.MaxRequestBatch, now.MaxRequestMaxBytes, now.MaxRequestExpires = 0, 0, 0
	now.PriorityPolicy, now.PriorityGroups, now.PinnedTTL = jetstream.PriorityPolicyNone, nil, 0
	now.Metadata = maps.Clone(now.Metadata)
	if now.Metadata == nil {
		now.Metadata = map[string]string{}
	}
	maps.Copy(now.Metadata, want.Metadata)
	return now
}

// advice says what helps if the broker refuses a change of a consumer.
func (s *DurableReader) advice(err error) string {
	if s.isForbidden(err) {
		return "allow the handler's NATS user $JS.API.CONSUMER.>, and restart a process"
	}
	return "do what the error says; the process tries again"
}

// isForbidden reports whether the user may not make a request about a consumer, so that it is useless
// to try again. The broker does not answer such a request. It only reports an error on the connection.
// So if there is an answer, the user has the right.
func (s *DurableReader) isForbidden(err error) bool {
	var answer *jetstream.APIError
	return err != nil && !errors.As(err, &answer) && s.mayNot(".CONSUMER.")
}

// isRefused reports whether the broker refuses a request about a consumer, or forbids it to the user.
func (s *DurableReader) isRefused(err error) bool {
	var refusal *jetstream.APIError
	switch {
	case err == nil, errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrConsumerExists): // another process was faster
		return false
	case errors.As(err, &refusal):
		return refusal.Code != http.StatusServiceUnavailable // the broker has no leader at the moment
	}
	return s.isForbidden(err)
}

// config returns the consumer's configuration. MaxDeliver has no limit, because with a limit the
// broker would drop events silently. The inbox counts attempts instead. MaxAckPending has no limit,
// because each process limits its own messages in flight.
func (s *DurableReader) config() jetstream.ConsumerConfig {
	instance := s.Instance()
	return jetstream.ConsumerConfig{
		Durable:        identity.Consumer(instance, s.Handler),
		Description:    "Postroom handler " + s.Handler,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        s.AckWait,
		MaxDeliver:     consumer.Unbounded,
		MaxAckPending:  consumer.Unbounded,
		FilterSubjects: wildcard.Union(nil, s.Filter), // Union, because the broker refuses overlapping filters
		Metadata:       map[string]string{identity.InstanceKey: instance, identity.HandlerKey: s.Handler, identity.AckWaitKey: s.AckWait.String()},
	}
}

// beginAfter returns the settings with which a consumer begins after the given sequence. A work
// queue allows only consumers that begin at its start. It has no messages that were decided.
func (s *DurableReader) beginAfter(floor uint64, of jetstream.Stream) (jetstream.DeliverPolicy, uint64) {
	//guard:a-consumer-of-a-work-queue-begins-at-its-start 2 false
	if floor == 0 || of.CachedInfo().Config.Retention == jetstream.WorkQueuePolicy && !s.DeliverNew {
		return jetstream.DeliverAllPolicy, 0
	}
	return jetstream.DeliverByStartSequencePolicy, floor + 1
}
