// Package consumer says whether what the broker has of a handler is as it should be: its
// durable consumer, the limits of its stream, and the last message that it decided. The
// inbox looks when it begins to read, and doctor whenever an operator asks.
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

// ErrForeign says that the durable consumer of a handler belongs to
// another Postroom: its inbox knows nothing of what this one decided.
var ErrForeign = errors.New("the durable consumer belongs to another Postroom instance")

// Examine returns what is wrong with a handler's durable consumer: settings that lose events
// or delay them. limits are those that its stream sets; ExamineLimits examines these.
// subjects are those of the handler's row of subscription. Examine returns ErrForeign if the
// consumer belongs to another Postroom or another handler. It does no I/O.
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

// Filter returns the subjects that a consumer gets; none for all.
func Filter(cfg jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}

// Drift says what of a consumer is not as it should be, and would lose or stall.
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

// driftOfAll is the part of Drift that does not depend on the settings of a process.
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

// PausedUntil returns until when an operator has paused a consumer at the broker, and the zero
// time if it is not paused. That is no drift.
func PausedUntil(info *jetstream.ConsumerInfo) time.Time {
	if !info.Paused || info.Config.PauseUntil == nil { // the broker judges by its own clock
		return time.Time{}
	}
	return *info.Config.PauseUntil
}

// Unbounded is how often an event is delivered, and how many may wait for their
// answer.
const Unbounded = -1
