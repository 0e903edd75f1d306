// Package postroom moves events between services without losing them and
// without applying them twice.
//
// A producer writes a domain change and an event in one PostgreSQL transaction. After the commit a
// relay publishes the event to NATS JetStream, again and again until the broker acknowledges it. A
// consumer records the event in its inbox and applies it, both in one transaction. It acknowledges
// the event after the commit.
//
//	service A                           service B
//	┌───────────────────┐               ┌────────────────────┐
//	│ tx: domain change │               │ tx: inbox row      │
//	│     + outbox row  │               │     + the effect   │
//	└─────────┬─────────┘               └─────────▲──────────┘
//	          │ commit                            │ ack after commit
//	       outbox ─── relay ───► JetStream ─── inbox
//
// # Guarantees
//
//   - NoLoss: if the transaction that wrote an event commits, the event takes effect at
//     every subscribed handler, or it is held until an operator decides.
//   - NoGhost: if the transaction rolls back, the event is never published.
//   - EffectOnce: what a handler writes in its transaction is committed once for each
//     event.
//   - KeyOrder: events with the same key reach the broker in the commit order of their
//     transactions. For this, each transaction must lock the thing that the key names, before it
//     writes the event.
//
// Effects outside the handler's transaction, such as a call to another system, are not covered:
// after a crash the handler can run again. docs/reference/guarantees.md describes each point at
// which a process can crash, and lists what Postroom does not promise.
//
// # Tour
//
// This package has the types and functions that the other packages share: [Event],
// [Handler], [Mux], [Permanent], [RetryAfter], [Backoff]. It does no I/O. Only [Run],
// which runs the parts of a service together, starts goroutines.
//
// Other packages do the work: schema creates the tables, outbox writes events in the
// caller's transaction, relay publishes them, and inbox applies them.
package postroom
