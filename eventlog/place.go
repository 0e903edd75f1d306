package eventlog

import "time"

// Place is the last message of a stream that the broker acknowledged. Whether the
// stream still has it shows whether it lost anything.
type Place struct {
	Stream    string
	Created   time.Time // when the stream was created; zero where that is not known
	Seq       uint64    // of the message in the stream
	MessageID string    // of the message
}

// Mark is a place of a stream at which the log remembers what it had published: that
// has a message at the place or before it. The zero Mark is before everything.
type Mark struct {
	ID    int64
	Place Place
}

// Entry is an event of the log, as far as it takes to find it in a stream.
type Entry struct {
	// Published reports whether the log calls it published. What it does not may be in
	// the stream or not: it was on its way.
	Published bool

	Seq      int64
	Source   string
	ID       string
	Subject  string
	Key      string
	LoggedAt time.Time // it was not published before
}
