package broker

import (
	"time"

	"github.com/postroom/postroom/eventlog"
)

// SeqRange is a part of a stream.
type SeqRange struct {
	From  uint64    // the first sequence
	Since time.Time // if set, the range begins with the first message stored at this time or later, and From is ignored
	To    uint64    // the last sequence
}

// StoredMessage is an event in a stream. Source and ID are empty for a message that Postroom
// did not write.
type StoredMessage struct {
	Seq    uint64
	Source string
	ID     string
}

// Verdict says whether a stream still has the messages that it acknowledged.
type Verdict string

// The verdicts.
const (
	// Intact: it has them.
	Intact Verdict = "intact"

	// LostTail: it ends before the last of them, or has another message in its place.
	LostTail Verdict = "lost_tail"

	// Recreated: it was deleted and created again.
	Recreated Verdict = "recreated"

	// Missing: there is no such stream.
	Missing Verdict = "missing"
)

// StreamState describes a stream at one moment.
type StreamState struct {
	Verdict Verdict

	// Last is the position of the stream's last message. Its message id is empty if the
	// stream has no message there.
	Last eventlog.StreamPosition

	// First is the sequence of the stream's first message, and FirstTime is when the stream
	// stored it. FirstTime is zero if the stream has no messages.
	First     uint64
	FirstTime time.Time

	// Subjects are those that the stream takes.
	Subjects []string

	// Limits reports whether the stream keeps messages until a limit is reached. Otherwise
	// it drops messages that were consumed.
	Limits bool
}
