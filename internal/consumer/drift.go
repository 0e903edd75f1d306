// Package consumer examines the broker's state for a handler: the handler's durable consumer, the
// limits of the stream, and the last message that the handler decided. The inbox examines this
// state when it begins to read. doctor examines it when an operator asks.
package consumer

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/wildcard"
)

// ErrForeign says that another Postroom instance uses the durable consumer of a handler. The inbox
// of that instance does not know which events this inbox decided.
var ErrForeign = errors.New("the durable consumer belongs to another Postroom instance")

// IsForeign reports whether a consumer's metadata name another Postroom instance or another handler.
// An operator's tool may have removed the metadata. Then the consumer is not foreign, because its
// name has a digest of the instance and the handler.
func IsForeign(metadata map[string]string, instance, handler string) bool {
	i, h := identity.Owner(metadata)
	//guard:a-consumer-without-metadata-is-not-foreign 1 true
	return i+h != "" && (i != instance || h != handler)
}

// Examine returns the settings of a handler's durable consumer that lose or delay events. limits
// are the consumer limits of the handler's stream. For faults of the limits, see ExamineLimits.
// subjects are those in the handler's row of the table subscription. If the consumer's metadata
// name another instance or handler, Examine returns ErrForeign. Examine does no I/O.
func Examine(cfg jetstream.ConsumerConfig, limits jetstream.StreamConsumerLimits, instance, handler string, subjects []string) ([]string, error) {
	if IsForeign(cfg.Metadata, instance, handler) {
		return nil, ErrForeign
	}
	faults, _ := Drift(cfg, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: cfg.AckWait, MaxDeliver: Unbounded, MaxAckPending: Unbounded, FilterSubjects: subjects,
		OptStartSeq:     cfg.OptStartSeq,
		MaxRequestBatch: cfg.MaxRequestBatch, // the limit of the server, if it has one; the reader obeys it
		Metadata:        map[string]string{identity.InstanceKey: instance, identity.HandlerKey: handler}, InactiveThreshold: cfg.InactiveThreshold,
	})
	differ := func(differs bool, format string, args ...any) {
		if differs {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	differ(cfg.InactiveThreshold > 0 && cfg.InactiveThreshold != limits.InactiveThreshold, "it is removed if no process reads for %s (inactive_threshold)", cfg.InactiveThreshold)
	differ(cfg.RateLimit > 0, "it delivers %d bits a second at the most (rate_limit_bps)", cfg.RateLimit)
	return faults, nil
}

// Filter returns the subjects whose messages a consumer gets. An empty result means all subjects.
func Filter(cfg jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}

// Drift returns the settings of a consumer that differ from the parameter want and would lose or
// delay events. The result again reports whether the consumer must be created again, because the
// broker may have dropped or skipped events, or because it does not change the setting of an
// existing consumer.
func Drift(have, want jetstream.ConsumerConfig) (faults []string, again bool) {
	differ := func(differs bool, format string, args ...any) {
		if differs {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	differ(have.AckPolicy != want.AckPolicy, "ack_policy is %s, want %s", have.AckPolicy, want.AckPolicy)
	differ(have.MemoryStorage && !want.MemoryStorage, "its state is in memory: a restart of the broker forgets it")
	differ(have.ReplayPolicy != jetstream.ReplayInstantPolicy, "replay_policy is %s: it delivers events as slowly as they were published", have.ReplayPolicy)
	differ(have.MaxDeliver > 0, "max_deliver is %d, want %d: the broker drops events that are given back", have.MaxDeliver, want.MaxDeliver)
	begins := have.DeliverPolicy == jetstream.DeliverAllPolicy || have.DeliverPolicy == jetstream.DeliverByStartSequencePolicy && have.OptStartSeq <= want.OptStartSeq
	//guard:a-consumer-that-begins-too-late 1 false
	differ(!begins, "deliver_policy is %s, opt_start_seq is %d: it begins after events that are not decided", have.DeliverPolicy, have.OptStartSeq)
	missing := wildcard.Uncovered(want.FilterSubjects, Filter(have))
	differ(len(missing) > 0 && len(Filter(have)) > 0, "filter_subjects lacks %s", strings.Join(missing, ", "))
	//guard:a-limited-consumer-is-created-again false
	again = len(faults) > 0
	//guard:a-consumer-without-a-filter-is-a-drift 1 false
	differ(len(Filter(have)) == 0 && len(want.FilterSubjects) > 0, "filter_subjects is empty: it delivers the messages of all subjects")
	differ(have.MaxAckPending != want.MaxAckPending, "max_ack_pending is %d, want %d", have.MaxAckPending, want.MaxAckPending)
	differ(len(have.BackOff) > 0, "backoff is set")
	differ(have.HeadersOnly, "it delivers headers only")
	//guard:a-limit-of-requests-is-a-drift 1 false
	differ(have.MaxRequestBatch != want.MaxRequestBatch, "max_batch is %d, want %d", have.MaxRequestBatch, want.MaxRequestBatch)
	//guard:a-limit-of-bytes-is-a-drift 1 false
	differ(have.MaxRequestMaxBytes > 0, "max_bytes is %d, want no limit: the broker refuses larger requests", have.MaxRequestMaxBytes)
	//guard:a-limit-of-time-is-a-drift 1 false
	differ(have.MaxRequestExpires > 0, "max_expires is %s, want no limit: the broker refuses longer requests", have.MaxRequestExpires)
	//guard:a-priority-policy-is-a-drift 1 false
	differ(have.PriorityPolicy != jetstream.PriorityPolicyNone, "priority_policy is set: the broker refuses requests without a group")
	differ(have.AckWait != want.AckWait, "ack_wait is %s, want %s", have.AckWait, want.AckWait)
	//guard:a-threshold-goes-with-its-limit 1 false
	differ(have.InactiveThreshold > 0 && have.InactiveThreshold != want.InactiveThreshold, "inactive_threshold is %s, want %s", have.InactiveThreshold, want.InactiveThreshold)
	instance, handler := identity.Owner(want.Metadata)
	i, h := identity.Owner(have.Metadata)
	differ(i != instance || h != handler, "its metadata do not name the handler")
	return faults, again
}

// Floor returns the sequence up to which a handler has decided every event: the recorded one, or that
// of its durable consumer, which is usually newer.
func Floor(recorded int64, info *jetstream.ConsumerInfo) uint64 {
	return max(uint64(max(recorded, 0)), info.AckFloor.Stream)
}

// PausedUntil returns the time until which an operator has paused a consumer at the broker. If the
// consumer is not paused, it returns the zero time. A pause does not count as drift.
func PausedUntil(info *jetstream.ConsumerInfo) time.Time {
	if !info.Paused || info.Config.PauseUntil == nil { // look at info.Paused too, because the broker compares PauseUntil with its own clock
		return time.Time{}
	}
	return *info.Config.PauseUntil
}

// Unbounded is the value of a consumer's MaxDeliver or MaxAckPending that means no limit.
const Unbounded = -1
