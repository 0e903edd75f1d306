package broker

import (
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/wire"
)

// Limits of one atomic batch.
const (
	MaxBatch      = 1000    // events that a relay hands out for a batch at the most
	MaxBatchBytes = 8 << 20 // bytes of their data at the most
)

// Message is an event on its way to the broker. A [Publisher] reads it, and has
// no use of it after it reported the outcome.
type Message struct {
	eventlog.Logged

	// AckGroup is where the message may be acknowledged together with others: with those
	// of the same Group. They go to one stream, which takes events, and nothing speaks
	// against their being stored. Empty: the message needs an acknowledgement of its own.
	// A publisher may clear it.
	AckGroup string

	// Isolated, Lost and Doubts are the publisher's. What it sets there comes back with the
	// message, if that has to be sent again.
	Isolated      bool   // the broker did not take it in a batch: it is sent by itself from now on
	LostSeq       uint64 // the sequence of the message that the stream lost, as a duplicate's answer named it
	FailedLookups int    // how often it could not be found out whether the stream lost it

	// Owner is the relay's. A publisher leaves it as it is.
	Owner any
}

// MessageID returns the id by which the broker drops repetitions of the message, and by
// which [Verifier] finds it.
func (m *Message) MessageID() string {
	return wire.MessageID(m.Event, wire.Copy{Replays: m.Replays, Rewind: m.Rewind, Lost: m.LostSeq})
}
