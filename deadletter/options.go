package deadletter

import (
	"errors"
	"fmt"
	"time"
)

// ReplayOptions says how events are replayed. The zero value replays all events that match,
// each with one attempt, as fast as handlers run them, and stops if more than a tenth fail.
type ReplayOptions struct {
	// Limit is the most events to replay, the first to die first. Zero is all.
	Limit int `json:"limit,omitempty"`

	// Attempts is how many attempts an event has before it is dead again, 1 to 1,000.
	//
	// Defaults to 1.
	Attempts int `json:"attempts"`

	// Rate is the most events to release in a second. Zero is no limit.
	Rate float64 `json:"rate,omitempty"`

	// Canary is how many events are released first. The others follow when all of these
	// have ended and no more of them failed than StopAt allows. If an event of the canary
	// is left out, because it is not dead any more or waits behind a dead one of its key,
	// another takes its place. Events of a key are released together, so the canary can be
	// larger. Zero is no canary.
	Canary int `json:"canary,omitempty"`

	// StopAt is a share from 0 to 1. The replay stops when a larger share of the events
	// that have ended has failed. Without a canary the share counts once ten events have
	// ended, or one with [StopAtFirstFailure]. [NeverStop] is the other extreme.
	//
	// Defaults to 0.1.
	StopAt float64 `json:"stop_at"`

	// AsNew gives outgoing events the time of their release as the time at which they were
	// logged. Consumers hold events that were logged before the time from which their
	// inbox has all rows.
	AsNew bool `json:"as_new,omitempty"`
}

// Values of [ReplayOptions.StopAt].
const (
	NeverStop          = 1.0  // any share may fail
	StopAtFirstFailure = 1e-9 // the first failure stops the replay
)

func (o ReplayOptions) defaults() ReplayOptions {
	if o.Attempts == 0 {
		o.Attempts = 1
	}
	if o.StopAt == 0 {
		o.StopAt = 0.1
	}
	return o
}

// limit is the most events to replay; nil is all.
func (o ReplayOptions) limit() *int {
	if o.Limit == 0 {
		return nil
	}
	return &o.Limit
}

func (o ReplayOptions) validate() error {
	var faults []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("deadletter: replay options: "+format, args...))
		}
	}
	add(o.Limit < 0, "Limit is %d, want 0 or more", o.Limit)
	add(o.Attempts < 1 || o.Attempts > 1000, "Attempts is %d, want 1 to 1000", o.Attempts)
	add(o.Rate < 0, "Rate is %g, want 0 or more", o.Rate)
	add(o.Canary < 0, "Canary is %d, want 0 or more", o.Canary)
	add(o.StopAt < 0 || o.StopAt > 1, "StopAt is %g, want a share from 0 to 1", o.StopAt)
	return errors.Join(faults...)
}

// Replay is an operator's order to run dead events again, and how far it is.
//
// Wide because it is a JSON document, as programs read it.
type Replay struct {
	ID        int64         `json:"id"`
	CreatedAt time.Time     `json:"created_at"`
	Actor     string        `json:"actor"`
	Reason    string        `json:"reason,omitempty"`
	Filter    Filter        `json:"filter"`
	Options   ReplayOptions `json:"options"`
	State     ReplayState   `json:"state"`
	Phase     ReplayPhase   `json:"phase"`

	Events    int `json:"events"`    // events that it has
	Released  int `json:"released"`  // of these, those that were released
	Succeeded int `json:"succeeded"` // that took effect, or were published
	Failed    int `json:"failed"`    // that are dead again
	Skipped   int `json:"skipped"`   // that it left as they were: no process began them, or they were not dead any more

	LastStepAt *time.Time `json:"last_step_at,omitempty"` // when RunReplay last advanced it
	EndedAt    *time.Time `json:"ended_at,omitempty"`

	// Idle is the time since the last step, by the database's clock. A running replay
	// without a process that runs it makes no progress until [Store.RunReplay] is called.
	Idle time.Duration `json:"idle_ns"`
}

// Open is how many events are released and have not ended.
func (j Replay) Open() int { return max(j.Released-j.Succeeded-j.Failed, 0) }

// Remaining is how many events have not ended, released or not.
func (j Replay) Remaining() int { return max(j.Events-j.Succeeded-j.Failed-j.Skipped, 0) }

// ReplayState is the state of a replay.
type ReplayState string

// States of a replay.
const (
	ReplayRunning   ReplayState = "running"   // it has events that have not ended
	ReplayDone      ReplayState = "done"      // every event has ended
	ReplayStopped   ReplayState = "stopped"   // too many events failed; the others are dead as before
	ReplayCancelled ReplayState = "cancelled" // an operator cancelled it; the others are dead as before
)

// ReplayPhase is the phase of a running replay.
type ReplayPhase string

// Phases of a replay.
const (
	PhaseCanary ReplayPhase = "canary" // the canary's events run: they decide whether the others follow
	PhaseRest   ReplayPhase = "rest"
	PhaseEnding ReplayPhase = "ending" // it was stopped or cancelled, and waits for events that run
)
