package eventlog

import "github.com/postroom/postroom"

// Event is an event as the log has it: the event itself, and what a relay has to know to
// publish it.
type Event struct {
	// Seq is the event's number in its log. It orders the events of a key.
	Seq int64

	postroom.Event

	// Held reports whether the event was read from held: it was scheduled, the broker
	// refused it before, or it waited behind an earlier event of its key.
	Held bool

	// Unordered reports whether the event has no order among others of its key: it was
	// scheduled, or its key is not valid.
	Unordered bool

	// Attempts is how often the broker refused the event.
	Attempts int

	// LastAttempt is the attempt after which the event is dead, if an operator set one;
	// otherwise zero.
	LastAttempt int

	// Replays is how often an operator replayed the event when it was dead. Each replay is
	// published under an id of its own, because the broker may remember the last one.
	Replays int

	// RepublishID is the id of the republish that reads the event; zero if the event is
	// published for the first time. An event of a republish has a header and a message id
	// of its own. It delays no other event of its key, and waits for none that is held.
	RepublishID int64

	// Fault says what is wrong with the row of the event, besides what
	// [postroom.Event.Validate] finds; nil if nothing is. A row can have values that no event
	// can have, because the database trusts a writer that says it has checked its rows. An
	// event with a fault matches [postroom.ErrInvalidEvent] and is never sent: the log does
	// not read those parts of it that are too large.
	Fault error
}

// OrderKey returns the key whose events wait for each other; empty if this event waits for
// none.
func (e *Event) OrderKey() string {
	if e.Unordered {
		return ""
	}
	return e.Key
}
