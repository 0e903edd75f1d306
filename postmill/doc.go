// Package postmill connects Watermill with Postroom. Code that is written against Watermill's
// interfaces gets an outbox and an inbox, and events can be published to the brokers that Watermill
// supports:
//
//   - [Publisher] is a message.Publisher that writes to an outbox, in the transaction of the
//     change that a message announces.
//   - [Handler] runs a Watermill handler in an inbox. Its effect, and the messages that it
//     returns, commit together. Use it to move existing handlers to Postroom.
//   - [Subscriber] is a message.Subscriber, for a Router that you keep. [Middleware] passes
//     the transaction on to the messages that handlers return.
//   - [NewBroker] publishes the events of an outbox to Kafka, AMQP, Redis and others, through their
//     Watermill publishers.
//
// docs/howto/migrate-from-watermill.md shows a program before and after the migration.
//
// # A message as an event
//
// UUID, metadata and payload arrive unchanged. A UUID does not identify an event, because Watermill
// publishes one UUID on several topics, and again after a failure. The header watermill-uuid has
// the UUID, and the event has its own id. The Publisher makes this id from UUID and topic only if
// [PublisherConfig].Dedupe is set. The header watermill-metadata has the metadata as JSON. All
// headers of an event have at most 32 KiB together. By default the type is the topic, and the
// subject is "wm." followed by the topic. If the metadata has a content type or a correlation id,
// the event has it too. A message from Watermill's own publisher for JetStream arrives unchanged.
//
// # Nacks
//
// Most of Watermill's subscribers deliver a nacked message again at once, and for ever. An inbox
// waits according to the schedule of its subscription, and the event is dead after the last
// attempt: see inbox.Subscription.
//
// # What a relay to another broker cannot do
//
// A Watermill publisher only publishes, and gives no information about its broker. So a relay with
// [NewBroker] has no:
//
//   - Repair: if the broker loses messages that it acknowledged, the relay does not notice, and
//     does not publish them again. To accept this, put [broker.NotVerified] into
//     relay.Config.AcceptRisks.
//   - Preflight: the relay does not check that topics exist and keep their messages. To accept
//     this, put [broker.NotInspected] into relay.Config.AcceptRisks.
//   - Deduplication by the broker: an event that the relay publishes again, after an error or a
//     crash, arrives again. Consumers recognise it by [MetadataID] and [MetadataSource], and drop it.
//   - Batches: each message is a separate call of Publish.
//   - Refusals, if [BrokerConfig].Classify does not recognise them: the relay repeats an event that
//     the broker will never accept, and the later events of its key wait.
//
// The relay still keeps three promises. It publishes each committed event until Publish returns nil
// (NoLoss). It publishes no event of a transaction that was rolled back (NoGhost). It publishes the
// events of a key in their order (KeyOrder), because it has only one event of a key in flight. For
// these promises, the publisher must return nil only after its broker stored the message.
package postmill
