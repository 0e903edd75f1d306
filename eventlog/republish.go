package eventlog

// RepublishPage is what one read of the republishes found. A republish is an operator's
// order to publish events of the log again.
type RepublishPage struct {
	// RepublishStatus is that of the republish that runs. Its ID is zero if none does.
	RepublishStatus

	// Events are its next events, in the order of their seqs. The caller owns the slice.
	Events []Event

	// Begins reports whether this term sees the republish for the first time.
	Begins bool

	// Advanced reports whether the read got any further in the log. If it did not, the
	// republish waits for events that are on their way.
	Advanced bool

	// Ended are the republishes that ended since the last read.
	Ended []RepublishStatus
}

// RepublishStatus is how far a republish is.
type RepublishStatus struct {
	ID        int64
	Rate      float64 // events a second, at most
	Events    int64   // how many there were when it was ordered
	Published int64
	Skipped   int64 // they are held or discarded, or were not published yet
	Held      int64 // the broker refused them
	Cancelled bool
}

// RepublishResult is what became of one event of a republish.
type RepublishResult struct {
	RepublishID, Seq int64

	// Dropped reports whether the event was not published because its republish was
	// cancelled. Otherwise the broker has it.
	Dropped bool
}
