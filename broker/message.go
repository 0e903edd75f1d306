package broker

import (
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/wire"
)

// Limits of one atomic batch.
const (
	MaxBatch      = 1000    // the most events in a batch
	MaxBatchBytes = 8 << 20 // the most bytes of their data
)

// Message is an event on its way to the broker. A [Publisher] must not use a Message
// after it reported the outcome: the relay uses it again.
type Message struct {
	eventlog.Event

	// AckGroup names a group of messages: those with the same AckGroup may share one
	// acknowledgement. All of them go to one stream that takes events at the moment. If
	// AckGroup is empty, the message needs its own acknowledgement. A publisher may clear
	// AckGroup.
	AckGroup string

	// Isolated, LostSeq and FailedLookups belong to the publisher. If the relay sends the
	// message again, these fields have the values that the publisher set.
	Isolated      bool   // the broker refused the message in a batch, so it is sent alone from now on
	LostSeq       uint64 // the sequence of the earlier copy: the broker called this message a duplicate of that copy, but the stream lost it
	FailedLookups int    // how many times in a row the publisher could not find out whether the stream lost the message

	// Owner belongs to the relay. A publisher must not change it.
	Owner any
}

// MessageID returns the message id. By this id the broker recognises duplicates, and a
// [Verifier] finds the message.
func (m *Message) MessageID() string {
	return wire.MessageID(m.Event.Event, wire.Copy{Replays: m.Replays, RepublishID: m.RepublishID, Lost: m.LostSeq})
}
