// Package postroomtest tests code that uses Postroom: producers, handlers, and what they do if a
// process or a connection ends at the worst moment.
//
//	evs := postroomtest.RequireWritten(t, tx, postroomtest.Want{Type: "order.placed", Key: "o-1", JSON: `{"id":"o-1"}`})
//	got := postroomtest.Apply(t, pool, handler, ev)
//	postroomtest.Drain(t, relay, in)
//	postroomtest.Crash(t, scenario, check)
//
// [RequireWritten] checks the events that a transaction wrote. [Apply] delivers an event once to a
// handler. [ApplyExternal] runs an external handler until the event is finished, dead or due later.
// [Drain] runs relays and inboxes until they have nothing left to do. [Crash] cuts the connection
// to the database at each statement, and checks whether the outcome is still right. [Vendor] is a
// vendor that times out, answers late or answers twice.
//
// Package servers, below this package, starts PostgreSQL and NATS for a test.
package postroomtest
