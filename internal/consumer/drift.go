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

// Examine returns the settings of a handler's durable consumer that lose or delay events. limits
// are the consumer limits of the handler's stream. For faults of the limits, see ExamineLimits.
// subjects are those in the handler's row of the table subscription. If the consumer's metadata do
// not name this instance and this handler, Examine returns ErrForeign. Examine does no I/O.
func Examine(cfg jetstream.ConsumerConfig, limits jetstream.StreamConsumerLimits, instance, handler string, subjects []string) ([]string, error) {
	if i, h := identity.Owner(cfg.Metadata); i != instance || h != handler {
		return nil, ErrForeign
	}
	faults := DriftOfAll(cfg, jetstream.ConsumerConfig{MaxDeliver: Unbounded, MaxAckPending: Unbounded, FilterSubjects: subjects})
	differ := func(differs bool, format string, args ...any) {
		if differs {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	differ(cfg.AckPolicy != jetstream.AckExplicitPolicy, "ack_policy is %s, want explicit", cfg.AckPolicy)
	differ(cfg.InactiveThreshold > 0 && cfg.InactiveThreshold != limits.InactiveThreshold, "it is removed if no process reads for %s (inactive_threshold)", cfg.InactiveThreshold)
	differ(cfg.MemoryStorage, "its state is in memory: a restart of the broker forgets it")
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
// delay events.
func Drift(have, want jetstream.ConsumerConfig) []string {
	faults := DriftOfAll(have, want)
	if have.AckWait != want.AckWait {
		faults = append(faults, fmt.Sprintf("ack_wait is %s, want %s", have.AckWait, want.AckWait))
	}
	//guard:a-threshold-goes-with-its-limit false
	if have.InactiveThreshold > 0 && have.InactiveThreshold != want.InactiveThreshold {
		faults = append(faults, fmt.Sprintf("inactive_threshold is %s, want %s", have.InactiveThreshold, want.InactiveThreshold))
	}
	return faults
}

// DriftOfAll is the part of Drift for the settings that are the same in all processes of a handler.
func DriftOfAll(have, want jetstream.ConsumerConfig) []string {
	var faults []string
	differ := func(differs bool, format string, args ...any) {
		if differs {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	missing := wildcard.Uncovered(want.FilterSubjects, Filter(have))
	differ(len(missing) > 0 && len(Filter(have)) > 0, "filter_subjects lacks %s", strings.Join(missing, ", "))
	differ(have.MaxDeliver != want.MaxDeliver, "max_deliver is %d, want %d", have.MaxDeliver, want.MaxDeliver)
	differ(have.MaxAckPending != want.MaxAckPending, "max_ack_pending is %d, want %d", have.MaxAckPending, want.MaxAckPending)
	differ(len(have.BackOff) > 0, "backoff is set")
	differ(have.HeadersOnly, "it delivers headers only")
	//guard:a-limit-of-requests-is-a-drift false
	differ(have.MaxRequestBatch > 0, "max_batch is %d, want no limit: the broker refuses larger requests", have.MaxRequestBatch)
	differ(have.MaxRequestMaxBytes > 0, "max_bytes is %d, want no limit: the broker refuses larger requests", have.MaxRequestMaxBytes)
	differ(have.MaxRequestExpires > 0, "max_expires is %s, want no limit: the broker refuses longer requests", have.MaxRequestExpires)
	differ(have.PriorityPolicy != jetstream.PriorityPolicyNone, "priority_policy is set: the broker refuses requests without a group")
	return faults
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
