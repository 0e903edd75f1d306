package postroom

import "time"

// Logged is an event as it stands in the log.
type Logged struct {
	// Seq is the place of the event in its log. It orders the events of a key.
	Seq int64

	Event

	// Held reports whether the event comes from held: it was scheduled, or it
	// was refused before, or an earlier event of its key was.
	Held bool

	// Unordered reports whether no order is promised between this event and
	// others of its key: it was scheduled.
	Unordered bool

	// Attempts is how often the broker has refused the event.
	Attempts int
}

// Page is what one pass over the log found.
type Page struct {
	// Events are committed events in the order in which they are to be
	// published. Whoever reads the page owns the slice.
	Events []Logged

	// Late is how many of Events became visible after events with a higher
	// Seq had been read: their transactions were open for longer.
	Late int

	// Scheduled is how many events were put aside for later. The next recording
	// makes that last.
	Scheduled int

	// Missing is how many events were owed but are gone from the log: somebody
	// deleted rows that were not published.
	Missing int64
}

// Progress is what became of events that were read, since it was last recorded.
type Progress struct {
	// Published are the seqs of events that the broker has.
	Published []int64

	// Held are events to be put into held, or back into it.
	Held []Holding

	// Returned are the seqs of events that were read from held and not
	// published. They stay in held as they are.
	Returned []int64
}

// Empty reports whether there is nothing to record.
func (p *Progress) Empty() bool { return len(p.Published)+len(p.Held)+len(p.Returned) == 0 }

// Holding says why an event is held and what becomes of it.
type Holding struct {
	Seq int64

	// Key is the key that waits for the event; empty where none does.
	Key string

	// Failure is what went wrong; nil for an event that only waits behind its
	// key.
	Failure *Failure
}

// Failure is one failure of an event.
type Failure struct {
	Class    string        // from a closed set
	Text     string        // what to tell an operator; never a payload
	Attempts int           // spent so far, this one included where it counts
	Dead     bool          // no attempt follows
	After    time.Duration // otherwise, when the next one is made
}
