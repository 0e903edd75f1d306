// Package postmill joins Watermill with Postroom. Code that is written against Watermill's
// interfaces gets an outbox and an inbox, and events get to the brokers that Watermill
// supports:
//
//   - [Publisher] is a message.Publisher that writes to an outbox, in the transaction of the
//     change that a message announces.
//   - [Handler] runs a Watermill handler in an inbox. Its effect, and the messages that it
//     returns, commit together. This is the way to move existing handlers.
//   - [Subscriber] is a message.Subscriber for a Router that is to stay. [Middleware] passes
//     the transaction on to the messages that handlers return.
//   - [Relay] publishes an outbox to Kafka, AMQP, Redis and others, through their Watermill
//     publishers.
//
// docs/howto/migrate-from-watermill.md has a program before and after.
//
// # A message as an event
//
// UUID, metadata and payload arrive as they were. A UUID is no identity, because Watermill
// publishes one UUID on several topics, and again after a failure: it travels in the header
// watermill-uuid, and the event has an id of its own, unless [PublisherConfig].Dedupe makes
// one of UUID and topic. The metadata is JSON in the header watermill-metadata, of at most
// 32 KiB with all other headers. The topic is the type of the event and, behind "wm.", its
// subject. The content type and the correlation id of the metadata are those of the event,
// too. What Watermill's own publisher for JetStream sends arrives as it was as well.
//
// # Nacks
//
// Most of Watermill's subscribers deliver a nacked message again at once, and for ever. An inbox
// waits as the schedule of its subscription says, and the event is dead after the last
// attempt: see inbox.Subscription.
//
// # What Relay cannot do
//
// A Watermill publisher publishes, and says nothing of its broker. So a relay over [Relay]
// has no:
//
//   - Repair: if the broker loses what it acknowledged, the relay does not notice, and does
//     not publish it again. [broker.NotVerified] accepts this.
//   - Preflight: the relay does not check that topics exist and keep their messages.
//     [broker.NotInspected] accepts this.
//   - Deduplication by the broker: what the relay publishes again, after an error or a crash,
//     comes again. [MetadataID] and [MetadataSource] identify it, so that consumers drop it.
//   - Batches: each message is a call of Publish.
//   - Refusals, unless [RelayConfig].Classify knows them: the relay repeats an event that the
//     broker will never take, and the later ones of its key wait.
//
// What remains: each committed event is published until Publish returned nil (NoLoss), none
// of a transaction that was rolled back (NoGhost), and those of a key in their order
// (KeyOrder), because the relay has one of a key in flight. This needs a publisher that
// returns nil only after its broker stored the message.
package postmill
