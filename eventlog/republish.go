package eventlog

// Rewound is what one look at the rewinds of a log found: events that are published
// again by an operator's wish.
type Rewound struct {
	// Rewinding is the rewind that runs. Its ID is zero if none does.
	Rewinding

	// Events are the next of its events, in the order of their seqs. Whoever reads
	// them owns the slice.
	Events []Logged

	// Begins reports whether this term sees the rewind for the first time.
	Begins bool

	// Moved reports whether the rewind came further. Where it did not, it waits for
	// what is on its way.
	Moved bool

	// Ended are the rewinds that ended since the last look.
	Ended []Rewinding
}

// Rewinding is how far a rewind is.
type Rewinding struct {
	ID        int64
	Rate      float64 // events a second, at the most
	Events    int64   // how many there were when it was asked for
	Published int64
	Skipped   int64 // they are held or discarded, or were not published yet
	Held      int64 // the broker refused them
	Cancelled bool
}

// Repeated is what became of an event of a rewind.
type Repeated struct {
	Rewind, Seq int64

	// Dropped reports whether it was not published, because its rewind was
	// cancelled; otherwise the broker has it.
	Dropped bool
}
