package eventlog

import (
	"time"

	"github.com/postroom/postroom/relay/broker"
)

// Progress says what has happened, since the last Record, to the events that the relay read.
type Progress struct {
	// Published are the seqs of events that the broker has.
	Published []int64

	// Held has the events that Record must insert into table "held", or update there.
	Held []Deferral

	// Returned are the seqs of events that were read from the table held and not published. They
	// stay in that table as they are.
	Returned []int64

	// Lost are the seqs of events that were published and that the broker has lost. They
	// are published again unchanged, before newer events.
	Lost []int64

	// LostBehindKey are the seqs of the lost events for which the broker has later events of the same
	// key, or may have. Their order cannot be restored. So the relay treats them like events that an
	// operator wants to have republished, and publishes them in parallel with other events.
	LostBehindKey []int64

	// Positions are the new positions of streams whose position changed.
	Positions []broker.StreamPosition

	// Republished has the results of republished events: the broker has the event, or the relay
	// dropped it because its republish was cancelled. Events in Held or Published are not in it.
	Republished []RepublishResult
}

// Empty reports whether there is nothing to record.
func (p *Progress) Empty() bool {
	return len(p.Published)+len(p.Held)+len(p.Returned)+len(p.Lost)+len(p.LostBehindKey)+len(p.Positions)+len(p.Republished) == 0
}

// Deferral says why an event goes to the table held, and when it is tried again.
type Deferral struct {
	Seq int64

	// Key is the key of the event if later events of the key wait for it. Otherwise it is "".
	Key string

	// RepublishID is the id of the republish for which the event was read. It is zero if there was
	// no such republish, and for an event that was read from the table held.
	RepublishID int64

	// Failure is what went wrong. It is nil if the event only waits for an earlier event of its
	// key.
	Failure *Failure
}

// Failure is one failure of an event.
type Failure struct {
	Class    string        // the class, from a closed set
	Text     string        // tells an operator what happened; never contains the event's data
	Attempts int           // the attempts so far; some failures, as in an outage, do not count
	Dead     bool          // no attempt follows
	After    time.Duration // if not Dead: how long until the next attempt
}
