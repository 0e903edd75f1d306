package broker

import "github.com/postroom/postroom"

// Event is an event of the log, with what a relay needs to know to publish it.
type Event struct {
	// Seq is the event's number in its log. It orders the events of a key.
	Seq int64

	postroom.Event

	// Held reports whether the event was read from the table held: it was scheduled, the broker
	// refused it before, or it waited behind an earlier event of its key.
	Held bool

	// LastHeld reports whether the event was read from the table held, and that table had no later
	// event of its key then.
	LastHeld bool

	// Unordered reports whether the event has no order among other events of its key, because it
	// was scheduled or its key is not valid.
	Unordered bool

	// Attempts is the number of times the broker refused the event.
	Attempts int

	// LastAttempt is the number of the last attempt: if it fails, the event is dead. LastAttempt is
	// zero if no operator set it.
	LastAttempt int

	// Replays is the number of times an operator replayed the dead event. Each replay has a new
	// message id, because the broker may remember the previous id and drop the message.
	Replays int

	// RepublishID is the id of the republish for which the event was read; zero if the event is
	// published for the first time. The relay sends an event of a republish with an extra header
	// and a message id of its own. The event does not delay other events of its key, and does not
	// wait for held events of its key.
	RepublishID int64

	// Fault says what is wrong with the row of the event, besides what [postroom.Event.Validate]
	// finds; nil if nothing is wrong. A row can have values that no event may have: if a writer
	// itself sets the column "checked", the database may not check the row. A Fault matches
	// [postroom.ErrInvalidEvent]. The relay never sends an event with a Fault. The log shortens or
	// leaves out those parts of the event that are too large.
	Fault error
}

// OrderKey returns the key in whose order the event is published. It returns "" if the event has no
// order.
func (e *Event) OrderKey() string {
	if e.Unordered {
		return ""
	}
	return e.Key
}

// Size returns about how many bytes the event takes: its data and its headers.
func (e *Event) Size() int {
	n := len(e.Data)
	//guard:headers-count-for-the-memory remove
	for name, value := range e.Headers {
		n += len(name) + len(value)
	}
	return n
}
