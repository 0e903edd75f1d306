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
	// [Event.Validate] finds; nil for nothing. The database takes the word of a writer
	// that says it has checked its rows, so a row can hold what no event can have. An
	// event with a fault matches [ErrInvalidEvent] and is never sent: parts of it that
	// are too large were left out when it was read.
	Fault error
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

	// Unstorable is how many events could not be held as they are since the page
	// before. They are dead, held with nothing but their place in the log, what they
	// were as a text, and the reason.
	Unstorable int

	// More says that the search for late events has not ended: read again at once.
	// What it has found so far is kept.
	More bool

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

	// Owed are the seqs of events that were published, and that the broker has lost.
	// They are published again before newer ones, as they were.
	Owed []int64

	// Late are the seqs of such events where the broker has later ones of their key.
	// They are published again as a rewind is: beside others, and with its mark.
	Late []int64

	// Places are where streams are now known to end, of those where that changed.
	Places []Place

	// Repeated are events of rewinds that are on their way no more, but for those in
	// Held. Their seqs are not those of Published.
	Repeated []Repeated
}

// Empty reports whether there is nothing to record.
func (p *Progress) Empty() bool {
	return len(p.Published)+len(p.Held)+len(p.Returned)+len(p.Owed)+len(p.Late)+len(p.Places)+len(p.Repeated) == 0
}

// Holding says why an event is held and what becomes of it.
type Holding struct {
	Seq int64

	// Key is the key that waits for the event; empty where none does.
	Key string

	// Rewind is the rewind that the event was read for; zero for all others, and for
	// one that was read from held.
	Rewind int64

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
