package broker

import (
	"github.com/postroom/postroom/internal/wire"
)

// Limits of one atomic batch.
const (
	MaxBatch      = 1000    // the most events in a batch
	MaxBatchBytes = 8 << 20 // the most bytes of data and headers in a batch
)

// Message is an event on its way to the broker. A [Publisher] must not use a Message after it
// reported the outcome, because the relay uses the Message again.
type Message struct {
	Event

	// AckGroup names a group of messages. The publisher may send messages with the same AckGroup
	// together and wait for all their acknowledgements before it reports them. All messages of a
	// group go to one stream, and the relay knows no outage of this stream. If AckGroup is empty,
	// the publisher must report the message as soon as its own acknowledgement comes. A publisher
	// may clear AckGroup.
	AckGroup string

	// Only the publisher sets Isolated, LostSeq and FailedLookups. If the relay sends the message
	// again, these fields still have the publisher's values.
	Isolated      bool   // the broker refused the message in a batch, so the publisher sends it alone from now on
	LostSeq       uint64 // 0, or the sequence of a copy that is lost or may be lost: the broker called this message a duplicate of that copy
	FailedLookups int    // how many times in a row the publisher could not find out whether the stream lost the message

	// Only the relay uses Owner. A publisher must not change it.
	Owner any
}

// MessageID returns the message id. The broker recognises duplicates by this id, and a [Publisher]
// finds the message by it.
func (m *Message) MessageID() string {
	return wire.MessageID(m.Event.Event, wire.Copy{Replays: m.Replays, RepublishID: m.RepublishID, Lost: m.LostSeq})
}
