package eventlog

import "time"

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

	// Late are the seqs of events that the broker has lost while it has later ones of
	// their key. They are published again as a rewind is: beside others, and with its mark.
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

	// Key is the key that waits for the event; empty if none does.
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
