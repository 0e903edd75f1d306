package eventlog

// PageBytes limits what one read keeps in memory. A read finds events of several kinds:
// late ones, the next ones, held ones that are due, those of a republish. The events of
// each kind end with the one at which their data reaches this many bytes.
const PageBytes = 4 << 20

// Page is what one read of the log found.
type Page struct {
	// Events are committed events in the order in which they are to be published. The
	// caller owns the slice.
	Events []Event

	// Late is how many of Events became visible after the relay had read events with a
	// higher Seq, because their transactions were open for longer.
	Late int

	// Scheduled is how many events of this page are to be published later. The next
	// recording moves them to held.
	Scheduled int

	// Unstorable is how many events since the last page could not be held as they are.
	// They are dead: held has their seq, their content as text, and the reason.
	Unstorable int

	// More reports whether another read would find more now, however many Events there
	// are: the search for late events has not ended, or the data reached PageBytes. Read
	// again at once.
	More bool

	// Missing is how many events were due but are gone from the log: their rows were
	// deleted before they were published.
	Missing int64
}
