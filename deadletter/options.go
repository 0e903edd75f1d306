package deadletter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// ReplayOptions says how to replay events. The zero value replays all events that match, each with
// one attempt, as fast as handlers run them. Such a replay stops if more than a tenth of its events
// fail.
type ReplayOptions struct {
	// Limit is the largest number of events in the replay. The replay takes the events that died
	// first. Zero means all.
	Limit int `json:"limit,omitempty"`

	// Attempts is how many attempts an event has before it is dead again: 1 to 1,000.
	//
	// Defaults to 1.
	Attempts int `json:"attempts"`

	// Rate is how many events the replay releases per second, at most. Zero means no limit.
	Rate float64 `json:"rate,omitempty"`

	// Canary is how many events the replay releases first, as a test. When all of these events have
	// ended, the replay releases the other events, if the share that failed is at most StopAt. If
	// an event of the canary is skipped, because it is no longer dead or waits behind a dead event
	// of its key, another event takes its place. The replay releases all events of a key together,
	// so it may release more than Canary events first. Zero means no canary.
	Canary int `json:"canary,omitempty"`

	// StopAt is a share from 0 to 1. The replay stops when a larger share of the events that have
	// ended has failed. Except during a canary, it compares the share only after ten events have
	// ended. With 0 the first failure stops the replay. With 1 no failure does.
	//
	// Defaults to 0.1.
	StopAt *float64 `json:"stop_at"`

	// AsNew gives each outgoing event the time of its release as its log time. Use it for events
	// that are older than the time for which their consumers keep inbox rows. Without AsNew a
	// consumer holds such an event as dead.
	AsNew bool `json:"as_new,omitempty"`
}

func (o ReplayOptions) defaults() ReplayOptions {
	if o.Attempts == 0 {
		o.Attempts = 1
	}
	if o.StopAt == nil {
		o.StopAt = new(0.1)
	}
	return o
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
	//guard:a-rate-is-a-number 1 = o.Rate < 0 || math.IsInf(o.Rate, 0)
	add(!(o.Rate >= 0 && o.Rate <= math.MaxFloat64), "Rate is %g, want 0 or more", o.Rate)
	add(o.Canary < 0, "Canary is %d, want 0 or more", o.Canary)
	add(!(*o.StopAt >= 0 && *o.StopAt <= 1), "StopAt is %g, want a share from 0 to 1", *o.StopAt)
	return errors.Join(faults...)
}

// DryRunOptions says how to try events. The zero value tries one event of each cause.
type DryRunOptions struct {
	// Limit is the largest number of events in the replay that the dry run is about, as in
	// [ReplayOptions]. Zero means all.
	Limit int

	// Each is how many events of one cause are tried, at most.
	//
	// Defaults to 1.
	Each int

	// Wait is how long the dry run waits for results. The verdict of an event without a result is
	// [DryRunUnanswered].
	//
	// Defaults to 30 seconds.
	Wait time.Duration
}

func (o DryRunOptions) defaults() DryRunOptions {
	return DryRunOptions{o.Limit, cmp.Or(o.Each, 1), cmp.Or(o.Wait, 30*time.Second)}
}

func (o DryRunOptions) validate() error {
	if o.Limit < 0 || o.Each < 0 || o.Wait < 0 {
		return fmt.Errorf("deadletter: dry run options: Limit is %d, Each is %d, and Wait is %v, want 0 or more of each", o.Limit, o.Each, o.Wait)
	}
	return nil
}

// RunOptions says how to run a replay. The zero value is ready to use.
type RunOptions struct {
	// Progress is called after each step with the state of the replay, unless it is nil.
	Progress func(Replay)
}

// ChangeOptions says how [Store.Discard] and [Store.Reopen] change events. The zero value changes all
// that match.
type ChangeOptions struct {
	// Limit is how many events are changed, at most. Zero means all.
	Limit int

	// Progress is called after each transaction that changed events, with the number of events that
	// were changed so far, unless it is nil.
	Progress func(n int64)
}

// ExportOptions says how to export events. The zero value is ready to use.
type ExportOptions struct {
	// Progress is called now and then with the number of events that were written, unless it is nil.
	Progress func(n int64)
}

// PurgeOptions says what to purge.
type PurgeOptions struct {
	// Before is a time: what was discarded, edited or ended before is old. It is required.
	Before time.Time

	// Progress is called now and then with the number of events that were written, unless it is nil.
	Progress func(n int64)
}

// Replay is an operator's order to run dead events again, and its progress.
type Replay struct {
	ID        int64         `json:"id"`
	CreatedAt time.Time     `json:"created_at"`
	Actor     string        `json:"actor"`
	Reason    string        `json:"reason,omitempty"`
	Filter    Filter        `json:"filter"`
	Options   ReplayOptions `json:"options"`
	State     ReplayState   `json:"state"`
	Phase     ReplayPhase   `json:"phase"`

	Events    int `json:"events"`    // events of the replay
	Released  int `json:"released"`  // of these, how many were released
	Succeeded int `json:"succeeded"` // events that took effect or were published
	Failed    int `json:"failed"`    // events that are dead again
	Skipped   int `json:"skipped"`   // events that no process began, or that were no longer dead

	LastStepAt time.Time `json:"last_step_at,omitzero"` // when RunReplay last stored a step: while it runs, at least every six seconds
	EndedAt    time.Time `json:"ended_at,omitzero"`

	// Idle is the time since the last step, by the database's clock. A running replay makes
	// progress only while a process runs it with [Store.RunReplay].
	// In JSON it is idle_seconds.
	Idle time.Duration `json:"-"`
}

// MarshalJSON writes durations in seconds.
func (j Replay) MarshalJSON() ([]byte, error) {
	type fields Replay
	return json.Marshal(struct {
		fields

		IdleSeconds float64 `json:"idle_seconds"`
	}{fields(j), j.Idle.Seconds()})
}

// Open returns how many released events have not ended.
func (j Replay) Open() int { return max(j.Released-j.Succeeded-j.Failed, 0) }

// Remaining returns how many events have not ended. It counts released events and events that are
// not released yet.
func (j Replay) Remaining() int { return max(j.Events-j.Succeeded-j.Failed-j.Skipped, 0) }

// ReplayState is the state of a replay.
type ReplayState string

// States of a replay.
const (
	ReplayRunning   ReplayState = "running"   // it has events that have not ended
	ReplayDone      ReplayState = "done"      // every event has ended
	ReplayStopped   ReplayState = "stopped"   // too many events failed; events that had not begun are still dead
	ReplayCancelled ReplayState = "cancelled" // an operator cancelled it; events that had not begun are still dead
)

// ReplayPhase is the phase of a running replay.
type ReplayPhase string

// Phases of a replay.
const (
	PhaseCanary ReplayPhase = "canary" // only events of the canary are released: their outcomes decide whether the replay releases the rest
	PhaseRest   ReplayPhase = "rest"
	PhaseEnding ReplayPhase = "ending" // it was stopped or cancelled, and waits for events that run
)
