package eventlog

import "github.com/postroom/postroom"

// Logged is an event as it stands in the log.
type Logged struct {
	// Seq is the place of the event in its log. It orders the events of a key.
	Seq int64

	postroom.Event

	// Held reports whether the event comes from held: it was scheduled, or it
	// was refused before, or an earlier event of its key was.
	Held bool

	// Unordered reports whether no order is promised between this event and
	// others of its key: it was scheduled, or its key is not valid.
	Unordered bool

	// Attempts is how often the broker has refused the event.
	Attempts int

	// LastAttempt is the attempt after which it is dead, where an operator said so;
	// otherwise zero.
	LastAttempt int

	// Replays is how often an operator released the event when it was dead. Each
	// time it is published under an id of its own: the broker may remember the last.
	Replays int

	// Rewind is the rewind that the event is published again for; zero for the first
	// time. It carries a mark and an id of its own, holds up no other of its key, and
	// waits for none that is held.
	Rewind int64

	// Fault is what is wrong with the event as it stands in the log, beside what
	// [postroom.Event.Validate] finds; nil for nothing. The database takes the word of a writer
	// that says it has checked its rows, so a row can hold what no event can have. An
	// event with a fault matches [postroom.ErrInvalidEvent] and is never sent: parts of it that
	// are too large were left out when it was read.
	Fault error
}

// OrderKey returns the key whose events wait for each other; empty if this one waits
// for none.
func (l *Logged) OrderKey() string {
	if l.Unordered {
		return ""
	}
	return l.Key
}
