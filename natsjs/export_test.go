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

// MaxGroup is how many events are acknowledged together at the most.
const MaxGroup = maxGroup
