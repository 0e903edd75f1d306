package eventlog

import (
	"time"

	"github.com/postroom/postroom/relay/broker"
)

// Checkpoint connects a position of a stream with the log: the log knows which events were
// published before the stream reached that position. The stream has each of these events at the
// position or before it. The zero Checkpoint comes before all events. A log makes no Checkpoint of
// a position that has a NextSeq.
type Checkpoint struct {
	ID       int64
	Position broker.StreamPosition
}

// HistoryEntry is an event of the log, with what is needed to find it in a stream.
type HistoryEntry struct {
	// Published reports whether the log has recorded the event as published. If Published is false,
	// the event was on its way, and may or may not be in the stream.
	Published bool

	// Late reports whether a comparison once found that a stream lacked the event, and its copy was
	// ordered. Handlers may have had later events of its key by then.
	Late bool

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
