// Package consumer examines the broker's state for a handler: its durable consumer, the
// limits of its stream, and the last message that it decided. The inbox does that when it
// begins to read, and doctor does it when an operator asks.
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

// ErrForeign says that the durable consumer of a handler belongs to another Postroom instance. The
// inbox of that instance does not know which events this inbox decided.
var ErrForeign = errors.New("the durable consumer belongs to another Postroom instance")

// Examine returns what is wrong with a handler's durable consumer: settings that lose or
// delay events. limits are the consumer limits of its stream, which ExamineLimits examines.
// subjects are the subjects in the handler's row of subscription. Examine returns ErrForeign
// if the consumer belongs to another Postroom or another handler. It does no I/O.
func Examine(cfg jetstream.ConsumerConfig, limits jetstream.StreamConsumerLimits, instance, handler string, subjects []string) ([]string, error) {
	if i, h := identity.Owner(cfg.Metadata); i != instance || h != handler {
		return nil, ErrForeign
	}
	faults := driftOfAll(cfg, jetstream.ConsumerConfig{MaxDeliver: Unbounded, MaxAckPending: Unbounded, FilterSubjects: subjects})
	differ := func(differs bool, format string, args ...any) {
		if differs {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	differ(cfg.AckPolicy != jetstream.AckExplicitPolicy, "ack_policy is %s, want explicit", cfg.AckPolicy)
	differ(cfg.InactiveThreshold > 0 && cfg.InactiveThreshold != limits.InactiveThreshold, "it is removed when nobody reads for %s (inactive_threshold)", cfg.InactiveThreshold)
	differ(cfg.MemoryStorage, "its state is in memory: a restart of the broker forgets it")
	differ(cfg.RateLimit > 0, "it delivers %d bits a second at the most (rate_limit_bps)", cfg.RateLimit)
	return faults, nil
}

// Filter returns the subjects that a consumer gets. An empty result means all subjects.
func Filter(cfg jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}

// Drift returns the settings of a consumer that differ from want and would lose or delay
// events.
func Drift(have, want jetstream.ConsumerConfig) []string {
	faults := driftOfAll(have, want)
	if have.AckWait != want.AckWait {
		faults = append(faults, fmt.Sprintf("ack_wait is %s, want %s", have.AckWait, want.AckWait))
	}
	if have.InactiveThreshold > 0 && have.InactiveThreshold != want.InactiveThreshold {
		faults = append(faults, fmt.Sprintf("inactive_threshold is %s, want %s", have.InactiveThreshold, want.InactiveThreshold))
	}
	return faults
}

// driftOfAll is the part of Drift that does not depend on a process's settings.
func driftOfAll(have, want jetstream.ConsumerConfig) []string {
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
	return faults
}

// PausedUntil returns the end of an operator's pause of a consumer at the broker, or the zero
// time if it is not paused. A pause does not count as drift.
func PausedUntil(info *jetstream.ConsumerInfo) time.Time {
	if !info.Paused || info.Config.PauseUntil == nil { // info.Paused is needed, because the broker compares with its own clock
		return time.Time{}
	}
	return *info.Config.PauseUntil
}

// Unbounded is the consumer's value of MaxDeliver and MaxAckPending: no limit.
const Unbounded = -1
