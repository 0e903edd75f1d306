package natsjs

import "github.com/postroom/postroom/relay/broker"

// Usual marks messages so that they may share an acknowledgement, as if their stream is known
// and takes events.
func Usual(messages []*broker.Message) []*broker.Message {
	for _, m := range messages {
		m.AckGroup = "S"
	}
	return messages
}

// ExamineAtomicStream returns the faults of a stream for relay.Config.Atomic.
var ExamineAtomicStream = examineAtomicStream

// MaxGroup is how many events are acknowledged together at the most.
const MaxGroup = maxGroup
