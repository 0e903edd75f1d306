package operator

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// RepublishState is the state of a republish.
type RepublishState string

// States of a republish.
const (
	RepublishRunning   RepublishState = "running"
	RepublishDone      RepublishState = "done"      // all events of the republish were published, skipped or held
	RepublishCancelled RepublishState = "cancelled" // an operator cancelled the republish
)

// Republish is an order to publish events of the log again, and its progress.
type Republish struct {
	ID        int64     `json:"id"`
	Kind      string    `json:"kind"` // range: events of a time, a type or a key; reconcile: events that a comparison found missing
	CreatedAt time.Time `json:"created_at"`
	Actor     string    `json:"actor"`
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	Types     []string  `json:"types,omitempty"`
	Keys      []string  `json:"keys,omitempty"`
	First     int64     `json:"first_seq"`
	Last      int64     `json:"last_seq"`
	Rate      float64   `json:"rate"`

	State     RepublishState `json:"state"`
	Events    int64          `json:"events"`    // the number of events when the republish was ordered; events that were committed later are not counted
	Published int64          `json:"published"` // how many of Events were published
	Skipped   int64          `json:"skipped"`   // events that the relay left out when their turn came: held, discarded, cancelled, or not yet published for the first time
	Held      int64          `json:"held"`      // events that the broker refused, now in the table held
	EndedAt   time.Time      `json:"ended_at,omitzero"`

	// AlreadyRunning reports whether a republish of the same request was running already,
	// so that no new republish was stored.
	AlreadyRunning bool `json:"already_running,omitempty"`

	// Log is how far back the log reached when the republish was ordered.
	Log *LogExtent `json:"log,omitempty"`
}

// Left returns the number of events that are not yet published, skipped or held.
func (r Republish) Left() int64 { return max(r.Events-r.Published-r.Skipped-r.Held, 0) }

// LogExtent says how far back a log reaches.
type LogExtent struct {
	FirstSeq int64     `json:"first_seq"` // the seq of the oldest event; zero if there is no event
	BeginsAt time.Time `json:"begins_at,omitzero"`

	// Gone reports whether the log may lack requested events, because retention removed
	// events that were written before BeginsAt.
	Gone bool `json:"gone"`
}

// RepublishPreview says what a republish would publish.
type RepublishPreview struct {
	Events   int64     `json:"events"`
	First    int64     `json:"first_seq"`
	Last     int64     `json:"last_seq"`
	Earliest time.Time `json:"earliest,omitzero"` // when the oldest of the events was written
	Latest   time.Time `json:"latest,omitzero"`
	Log      LogExtent `json:"log"`

	// Running is the republish of the same request that is running already, if there is
	// one.
	Running *Republish `json:"running,omitempty"`
}

func scanRepublish(row pgx.CollectableRow) (r Republish, err error) {
	var since, until, ended *time.Time
	err = row.Scan(&r.ID, &r.Kind, &r.CreatedAt, &r.Actor, &r.Reason, &since, &until, &r.Types, &r.Keys, &r.First, &r.Last, &r.Rate,
		&r.State, &r.Events, &r.Published, &r.Skipped, &r.Held, &ended)
	r.Since, r.Until, r.EndedAt = timeOf(since), timeOf(until), timeOf(ended)
	return r, err
}

// timeOf returns the time, or the zero time for nil.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
