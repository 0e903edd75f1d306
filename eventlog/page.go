package eventlog

// PageBytes limits the memory of one read. A read finds events of several kinds: late events, the
// next events, held events that are due, events of a republish. The read stops adding events of a
// kind when the data of these events reaches PageBytes bytes.
const PageBytes = 4 << 20

// Page is the result of one read of the log.
type Page struct {
	// Events are committed events in the order in which they must be published. The
	// caller owns the slice.
	Events []Event

	// Late is the number of Events that became visible only after the relay had read events with a
	// higher Seq. The transactions that wrote these late events were open for longer.
	Late int

	// Scheduled is the number of events that the read found and that must be published later. The
	// valid ones are not in Events: the next Record moves them to held.
	Scheduled int

	// Unstorable is the number of events that the table held refused to store unchanged since the
	// last page. These events are dead. Their rows of held have the seq, the event's texts and
	// body, and the reason.
	Unstorable int

	// More reports whether another read would find more now, because the search for late events has
	// not ended, or the data reached PageBytes. If More is true, read again at once, even if Events
	// is short or empty.
	More bool

	// Missing is the number of events that were due but are gone from the log: their rows
	// were deleted before the events were published.
	Missing int64
}
