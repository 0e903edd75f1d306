package eventlog

import "time"

// StreamPosition is the last message of a stream that the broker acknowledged. If the
// stream no longer has that message, it lost some.
type StreamPosition struct {
	Stream    string
	Created   time.Time // when the stream was created; zero if that is not known
	Seq       uint64    // of the message in the stream
	MessageID string    // of the message
}

// Checkpoint is what the log knows about one position of a stream: the events that were
// published by then. The stream has each of them at the position or before it. The zero
// Checkpoint comes before all events.
type Checkpoint struct {
	ID       int64
	Position StreamPosition
}

// HistoryEntry is an event of the log, with what it takes to find it in a stream.
type HistoryEntry struct {
	// Published reports whether the log has recorded the event as published. Any other
	// event was on its way, and may be in the stream or not.
	Published bool

	Seq      int64
	Source   string
	ID       string
	Subject  string
	Key      string
	LoggedAt time.Time // it was not published before
}
