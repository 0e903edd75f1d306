package eventlog

import "time"

// StreamPosition is the last message of a stream that the broker acknowledged. If the
// stream no longer has that message, it lost messages.
type StreamPosition struct {
	Stream    string
	Created   time.Time // when the stream was created; zero if that is not known
	Seq       uint64    // the message's sequence in the stream
	MessageID string    // the message's id

	// NextSeq and NextID are the sequence and the id of a message that was acknowledged later, while
	// the stream could not be compared with this position, or was found to lack its message. When the
	// stream has been compared, the position moves to that message. If there is no such message,
	// NextSeq is zero.
	NextSeq uint64
	NextID  string
}

// Checkpoint connects a position of a stream with the log: the log knows which events were
// published before the stream reached that position. The stream has each of these events at the
// position or before it. The zero Checkpoint comes before all events. A log makes no Checkpoint of
// a position that has a NextSeq.
type Checkpoint struct {
	ID       int64
	Position StreamPosition
}

// HistoryEntry is an event of the log, with what is needed to find it in a stream.
type HistoryEntry struct {
	// Published reports whether the log has recorded the event as published. If Published is false,
	// the event was on its way, and may or may not be in the stream.
	Published bool

	Seq     int64
	Source  string
	ID      string
	Subject string
	Key     string

	// CreatedAt is when the event was written. The event was not published before LoggedAt, which is
	// the later of CreatedAt and the time for which the event was scheduled.
	CreatedAt time.Time
	LoggedAt  time.Time

	// Digest is the digest of the event's content. It is nil if the event was scheduled, because such
	// a digest includes the time.
	Digest []byte
}
