package broker

import (
	"time"

	"github.com/postroom/postroom/eventlog"
)

// SeqRange is a part of a stream.
type SeqRange struct {
	From  uint64    // its first sequence
	Since time.Time // or, unless zero, when its first message was stored
	To    uint64    // its last sequence
}

// StoredMessage is an event as a stream has it. Source and ID are empty for a message that
// Postroom did not write.
type StoredMessage struct {
	Seq    uint64
	Source string
	ID     string
}

// Verdict says what became of what a stream had.
type Verdict string

// The verdicts.
const (
	// Intact: it has it.
	Intact Verdict = "kept"

	// LostTail: it ends before it, or has another message in its place.
	LostTail Verdict = "lost_tail"

	// Recreated: it was deleted and made again.
	Recreated Verdict = "recreated"

	// Missing: there is no such stream.
	Missing Verdict = "absent"
)

// StreamState is how a stream stands.
type StreamState struct {
	Verdict Verdict

	// Last is the place at which the stream ends. Its message id is empty where the
	// stream has no message there.
	Last eventlog.Place

	// First is the sequence of the stream's first message, FirstTime when it was
	// stored; zero where there is none.
	First     uint64
	FirstTime time.Time

	// Subjects are those that the stream takes.
	Subjects []string

	// Limits reports whether the stream keeps messages until a limit is reached, and
	// not until they are consumed.
	Limits bool
}
