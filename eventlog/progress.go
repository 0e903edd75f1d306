package eventlog

import "time"

// Progress is what became of events that were read, since progress was last recorded.
type Progress struct {
	// Published are the seqs of events that the broker has.
	Published []int64

	// Held are events to be put into held, or back into it.
	Held []Deferral

	// Returned are the seqs of events that were read from held and not published. They
	// stay in held as they are.
	Returned []int64

	// Lost are the seqs of events that were published and that the broker has lost. They
	// are published again before newer ones, as they were.
	Lost []int64

	// LostBehindKey are the seqs of lost events of whose keys the broker still has later
	// ones. Their order cannot be restored, so they are republished: beside other events,
	// and with the header of a republish.
	LostBehindKey []int64

	// Positions are the new positions of streams whose position changed.
	Positions []StreamPosition

	// Republished are events of republishes that are no longer on their way. It has neither
	// those in Held, nor those in Published.
	Republished []RepublishResult
}

// Empty reports whether there is nothing to record.
func (p *Progress) Empty() bool {
	return len(p.Published)+len(p.Held)+len(p.Returned)+len(p.Lost)+len(p.LostBehindKey)+len(p.Positions)+len(p.Republished) == 0
}

// Deferral says why an event goes to held, and what becomes of it there.
type Deferral struct {
	Seq int64

	// Key is the key that waits for the event; empty if none does.
	Key string

	// RepublishID is the id of the republish that read the event; zero for any other event,
	// and for one that was read from held.
	RepublishID int64

	// Failure is what went wrong; nil if the event only waits behind its key.
	Failure *Failure
}

// Failure is one failure of an event.
type Failure struct {
	Class    string        // from a closed set
	Text     string        // tells an operator what happened; never has a payload
	Attempts int           // spent so far, with this one if it counts
	Dead     bool          // no attempt follows
	After    time.Duration // otherwise, how long until the next attempt
}
