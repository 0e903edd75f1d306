package broker

import (
	"time"
)

// SeqRange is a part of a stream.
type SeqRange struct {
	From  uint64    // the first sequence
	Since time.Time // if set, From is ignored, and the range begins with the first message that was stored at this time or later
	To    uint64    // the last sequence
}

// StoredMessage is a message in a stream. If Postroom did not write the message, Source and
// ID are empty.
type StoredMessage struct {
	Seq    uint64
	Source string
	ID     string

	// Subject is the subject under which the stream stored the message, and StoredAt is when it did.
	Subject  string
	StoredAt time.Time

	// LoggedAt is the time at which the event was logged, according to the message. It is zero if the
	// message does not say so.
	LoggedAt time.Time
}

// Verdict says whether a stream still has the messages that it acknowledged.
type Verdict string

// The verdicts.
const (
	// Intact means that the stream still has the messages that it acknowledged.
	Intact Verdict = "intact"

	// LostTail means that the last of these messages is gone: the stream ends before it, or has
	// another message or a gap in its place.
	LostTail Verdict = "lost_tail"

	// Recreated means that the stream was deleted and created again.
	Recreated Verdict = "recreated"

	// Missing means that the stream does not exist.
	Missing Verdict = "missing"
)

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

// StreamState describes a stream at one moment.
type StreamState struct {
	Verdict Verdict

	// Last is the position of the last message that the stream stored. Last.MessageID is empty if
	// the stream no longer has that message, or if it has no id.
	Last StreamPosition

	// First is the sequence of the stream's first message, and FirstTime is when the stream
	// stored it. FirstTime is zero if the stream has no messages.
	First     uint64
	FirstTime time.Time

	// Subjects are the subjects that the stream takes.
	Subjects []string

	// Limits reports whether the stream keeps messages until a limit is reached. If it is
	// false, the stream drops messages that were consumed.
	Limits bool

	// Replaces reports whether a message can replace earlier messages of its subject: at a limit of
	// messages per subject, or as a roll-up.
	Replaces bool

	// Transforms reports whether the stream changes the subjects of messages before it stores them.
	Transforms bool
}
