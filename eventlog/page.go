package eventlog

// PageBytes limits the memory of one read. A read finds events of several kinds: late
// events, the next events, held events that are due, events of a republish. For each
// kind, the read stops after the event with which the data of that kind reaches this many
// bytes.
const PageBytes = 4 << 20

// Page is the result of one read of the log.
type Page struct {
	// Events are committed events in the order in which they must be published. The
	// caller owns the slice.
	Events []Event

	// Late is the number of Events that became visible only after the relay had read
	// events with a higher Seq, because their transactions were open for longer.
	Late int

	// Scheduled is the number of events of this page that must be published later. The
	// next Record moves them to held.
	Scheduled int

	// Unstorable is the number of events since the last page that did not fit the table
	// held. They are dead, and held has their seq, their content as text, and the reason.
	Unstorable int

	// More reports whether another read would find more now, because the search for late
	// events has not ended, or the data reached PageBytes. If so, read again at once,
	// even if Events is short or empty.
	More bool

	// Missing is the number of events that were due but are gone from the log: their rows
	// were deleted before the events were published.
	Missing int64
}
