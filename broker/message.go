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

// Message is an event on its way to the broker. A [Publisher] does not touch it after it
// reported the outcome: the relay uses it again.
type Message struct {
	eventlog.Event

	// AckGroup names the messages that may share one acknowledgement with this one: those
	// with the same AckGroup. They all go to one stream that takes events at the moment.
	// If it is empty, the message needs an acknowledgement of its own. A publisher may
	// clear it.
	AckGroup string

	// Isolated, LostSeq and FailedLookups belong to the publisher. If the message has to
	// be sent again, it comes back with what the publisher set.
	Isolated      bool   // the broker refused it in a batch: it is sent by itself from now on
	LostSeq       uint64 // the stream lost the message with this sequence, of which the broker called this one a duplicate
	FailedLookups int    // how many times in a row the publisher could not find out whether the stream lost it

	// Owner belongs to the relay. A publisher does not change it.
	Owner any
}

// MessageID returns the id by which the broker drops duplicates of the message, and by
// which [Verifier] finds it.
func (m *Message) MessageID() string {
	return wire.MessageID(m.Event.Event, wire.Copy{Replays: m.Replays, RepublishID: m.RepublishID, Lost: m.LostSeq})
}
