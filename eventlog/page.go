package eventlog

// PageBytes bounds what one read holds in memory: the events of one kind (late ones, the
// next ones, held ones that are due, those of a rewind) end with the one at which their
// data reaches this sum, however many were asked for.
const PageBytes = 4 << 20

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

	// More says that there is more to read, whatever the number of Events: the search for
	// late events has not ended, and what it has found so far is kept; or the data of the
	// events has reached PageBytes. Read again at once.
	More bool

	// Missing is how many events were owed but are gone from the log: somebody
	// deleted rows that were not published.
	Missing int64
}
