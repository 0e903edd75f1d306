package republish

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// State is how a rewind stands.
type State string

// States of a rewind.
const (
	Running   State = "running"
	Done      State = "done"      // all its events were published, skipped or held
	Cancelled State = "cancelled" // by an operator
)

// Rewind is a range of the log that is published again.
//
// Wide because it is all that is kept of one, and its JSON.
type Rewind struct {
	ID        int64     `json:"id"`
	Kind      string    `json:"kind"` // rewind, or reconcile: what a comparison found
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
	Events    int64     `json:"events"`    // how many there were when it was asked for; one that was committed late comes in addition
	Published int64     `json:"published"` // of them
	Skipped   int64     `json:"skipped"`   // they were held or discarded, or not published for the first time
	Held      int64     `json:"held"`      // the broker refused them; they are held, or were
	EndedAt   time.Time `json:"ended_at,omitzero"`

	// RanAlready reports whether the same order was under way: nothing was made.
	RanAlready bool `json:"ran_already,omitempty"`

	// Log is how far back the log reached when the rewind was asked for.
	Log *Reach `json:"log,omitempty"`
}

// Left is how many events are not published, skipped or held.
func (r Rewind) Left() int64 { return max(r.Events-r.Published-r.Skipped-r.Held, 0) }

// Reach says how far back a log reaches.
type Reach struct {
	FirstSeq int64     `json:"first_seq"` // of the oldest event there is; zero where there is none
	BeginsAt time.Time `json:"begins_at,omitzero"`

	// Gone reports whether events that were asked for can be missing: retention
	// removed what was written before BeginsAt.
	Gone bool `json:"gone"`
}

// Preview says what a rewind would publish.
type Preview struct {
	Events   int64     `json:"events"`
	First    int64     `json:"first_seq"`
	Last     int64     `json:"last_seq"`
	Earliest time.Time `json:"earliest,omitzero"` // when the first of them was written
	Latest   time.Time `json:"latest,omitzero"`
	Log      Reach     `json:"log"`

	// Running is the rewind that is under way with the same order, if any.
	Running *Rewind `json:"running,omitempty"`
}

func scanRewind(row pgx.CollectableRow) (r Rewind, err error) {
	var since, until, ended *time.Time
	err = row.Scan(&r.ID, &r.Kind, &r.CreatedAt, &r.Actor, &r.Reason, &since, &until, &r.Types, &r.Keys, &r.First, &r.Last, &r.Rate,
		&r.State, &r.Events, &r.Published, &r.Skipped, &r.Held, &ended)
	r.Since, r.Until, r.EndedAt = timeOf(since), timeOf(until), timeOf(ended)
	return r, err
}

// timeOf returns a time, zero for none.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// when returns a time, nil for none.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
