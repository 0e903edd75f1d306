package republish

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// State is the state of a republish.
type State string

// States of a republish.
const (
	Running   State = "running"
	Done      State = "done"      // all its events were published, skipped or held
	Cancelled State = "cancelled" // by an operator
)

// Republish is an order to publish events of the log again, and how far it is.
//
// Wide because it has all that the database keeps of a republish, and is its JSON.
type Republish struct {
	ID        int64     `json:"id"`
	Kind      string    `json:"kind"` // range: by time, type and key; reconcile: what a comparison found missing
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

	State     State     `json:"state"`
	Events    int64     `json:"events"`    // how many there were when it was ordered, without those that were committed late
	Published int64     `json:"published"` // of them
	Skipped   int64     `json:"skipped"`   // they were held or discarded, or not published yet
	Held      int64     `json:"held"`      // the broker refused them; they are held, or were
	EndedAt   time.Time `json:"ended_at,omitzero"`

	// AlreadyRunning reports whether a republish of the same request was running already,
	// so that no new one was stored.
	AlreadyRunning bool `json:"already_running,omitempty"`

	// Log is how far back the log reached when the republish was ordered.
	Log *Extent `json:"log,omitempty"`
}

// Left returns how many events are not published, skipped or held yet.
func (r Republish) Left() int64 { return max(r.Events-r.Published-r.Skipped-r.Held, 0) }

// Extent says how far back a log reaches.
type Extent struct {
	FirstSeq int64     `json:"first_seq"` // of the oldest event; zero if there is none
	BeginsAt time.Time `json:"begins_at,omitzero"`

	// Gone reports whether the log may lack events that were asked for, because retention
	// removed those that were written before BeginsAt.
	Gone bool `json:"gone"`
}

// Preview says what a republish would publish.
type Preview struct {
	Events   int64     `json:"events"`
	First    int64     `json:"first_seq"`
	Last     int64     `json:"last_seq"`
	Earliest time.Time `json:"earliest,omitzero"` // when the first of them was written
	Latest   time.Time `json:"latest,omitzero"`
	Log      Extent    `json:"log"`

	// Running is the republish of the same request that runs already, if any.
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

// when returns the time, or nil for the zero time.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
