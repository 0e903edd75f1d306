package postroom

// Logged is an event as it stands in the log: the event and its place.
type Logged struct {
	// Seq is the place of the event in its log. It orders the events of a key.
	Seq int64

	Event
}

// Page is what one pass over the log found.
type Page struct {
	// Events are committed events in the order in which they are to be
	// published. Whoever reads the page owns the slice.
	Events []Logged

	// Late is how many of Events became visible after events with a higher
	// Seq had been read: their transactions were open for longer.
	Late int

	// Held is how many events were put aside for later. The next recording
	// makes that last.
	Held int

	// Missing is how many events were owed but are gone from the log: somebody
	// deleted rows that were not published.
	Missing int64
}
