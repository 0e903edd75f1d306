package eventlog

import "github.com/postroom/postroom/relay/broker"

// RepublishPage is the result of one read of the republishes. A republish is an
// operator's order to publish events of the log again.
type RepublishPage struct {
	// RepublishStatus is the status of the running republish. Its ID is zero if no
	// republish runs.
	RepublishStatus

	// Events are the next events of that republish, in the order of their seqs. The
	// caller owns the slice.
	Events []broker.Event

	// Begins reports whether this is the first read of the republish in this term.
	Begins bool

	// Advanced reports whether the read moved forward in the log. If it is false, the republish
	// waits for events that are on their way.
	Advanced bool

	// Ended are the republishes that ended since the last read.
	Ended []RepublishStatus
}

// RepublishStatus is the progress of a republish.
type RepublishStatus struct {
	ID        int64
	Rate      float64 // the most events that are published in a second
	Events    int64   // the number of events when the republish was ordered
	Published int64
	Skipped   int64 // events left out: held, discarded, cancelled, or not published yet
	Held      int64 // events that the broker refused
	Cancelled bool
}

// RepublishResult is what happened to one event of a republish.
type RepublishResult struct {
	RepublishID, Seq int64

	// Dropped reports whether the event was not published because its republish was
	// cancelled. If it is false, the broker has the event.
	Dropped bool
}
