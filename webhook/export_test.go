package webhook

import "github.com/postroom/postroom/inbox"

// Acceptor stores events for handlers.
type Acceptor = acceptor

// Over returns a receiver that stores events with in. If of is not nil, that inbox checks the receiver.
func Over(in Acceptor, of *inbox.Inbox, cfg ReceiverConfig) *Receiver {
	return newReceiver(in, of, cfg)
}
