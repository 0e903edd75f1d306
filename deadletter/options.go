package deadletter

import (
	"errors"
	"fmt"
	"time"
)

// ReplayOptions says how events are replayed. The zero value replays all that match, as fast
// as they are handled, each with one attempt, and stops when more than a tenth fail.
type ReplayOptions struct {
	// Limit is how many events are replayed at the most, the first to die first. Zero
	// is all.
	Limit int `json:"limit,omitempty"`

	// Attempts is how many attempts an event has before it is dead again.
	//
	// Defaults to 1.
	Attempts int `json:"attempts"`

	// Rate is how many events are released in a second, at the most. Zero is no bound.
	Rate float64 `json:"rate,omitempty"`

	// Canary is how many events are released first. The others follow when none of
	// these is open any more and no more of them failed than StopAt allows. Events of
	// a key are released together, so it can be more. Zero is none.
	Canary int `json:"canary,omitempty"`

	// StopAt is the share of the events that ended, from 0 to 1, which may fail before
	// the replay stops. Without a canary it counts from ten events on. 1 never stops; a
	// tiny share, such as 1e-9, stops at the first failure that counts.
	//
	// Defaults to 0.1.
	StopAt float64 `json:"stop_at"`

	// AsNew has outgoing events count as logged when they are released. Consumers
	// do not run by themselves what was logged before the time that their ledgers
	// vouch for.
	AsNew bool `json:"as_new,omitempty"`
}

func (o ReplayOptions) defaults() ReplayOptions {
	if o.Attempts == 0 {
		o.Attempts = 1
	}
	if o.StopAt == 0 {
		o.StopAt = 0.1
	}
	return o
}

// limit is how many events are replayed at the most; nil is all.
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
	add(o.Limit < 0, "Limit is %d, want none or more", o.Limit)
	add(o.Attempts < 1 || o.Attempts > 1000, "Attempts is %d, want 1 to 1000", o.Attempts)
	add(o.Rate < 0, "Rate is %g, want more than 0", o.Rate)
	add(o.Canary < 0, "Canary is %d, want none or more", o.Canary)
	add(o.StopAt < 0 || o.StopAt > 1, "StopAt is %g, want a share from 0 to 1", o.StopAt)
	return errors.Join(faults...)
}

// Replay is a replay.
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

	Events    int `json:"events"`    // events that are part of it
	Released  int `json:"released"`  // of them, those that were set ready
	Succeeded int `json:"succeeded"` // were settled, or published
	Failed    int `json:"failed"`    // are dead again
	Skipped   int `json:"skipped"`   // are as they were: nobody tried them, or they were not dead any more

	LastStepAt *time.Time `json:"last_step_at,omitempty"` // when somebody last drove it
	EndedAt    *time.Time `json:"ended_at,omitempty"`

	// Idle is for how long nobody has driven it, by the database's clock. A replay
	// that runs and that nobody drives goes on when somebody does: [Store.RunReplay].
	Idle time.Duration `json:"idle_ns"`
}

// Open is how many events are released and not at an end.
func (j Replay) Open() int { return max(j.Released-j.Succeeded-j.Failed, 0) }

// Remaining is how many events have not ended.
func (j Replay) Remaining() int { return max(j.Events-j.Succeeded-j.Failed-j.Skipped, 0) }

// ReplayState is how a replay stands.
type ReplayState string

// States of a replay.
const (
	ReplayRunning   ReplayState = "running"   // it has events left
	ReplayDone      ReplayState = "done"      // every event has ended
	ReplayStopped   ReplayState = "stopped"   // too many failed; the others are dead as they were
	ReplayCancelled ReplayState = "cancelled" // an operator cancelled it; the others are dead as they were
)

// ReplayPhase is what a replay that runs is at.
type ReplayPhase string

// Phases of a replay.
const (
	PhaseCanary ReplayPhase = "canary" // the first events decide whether the others follow
	PhaseRest   ReplayPhase = "rest"
	PhaseEnding ReplayPhase = "ending" // it was stopped or cancelled, and waits for what runs
)
