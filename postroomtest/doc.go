// Package postroomtest tests code that uses Postroom: producers, handlers, and their behaviour if a
// process or a connection ends at the worst moment.
//
//	evs := postroomtest.RequireWritten(t, tx, postroomtest.Want{Type: "order.placed", Key: "o-1", JSON: `{"id":"o-1"}`})
//	got := postroomtest.Apply(t, pool, handler, ev)
//	postroomtest.Drain(t, relay, in)
//	postroomtest.Crash(t, scenario, check)
//
// [RequireWritten] checks the events that a transaction wrote. [Apply] makes one delivery to a
// handler, and [ApplyExternal] runs a handler that calls other systems until it is done. [Drain]
// runs relays and inboxes until they have nothing left to do. [Crash] cuts the connection to the
// database at each statement, and checks whether the outcome is still right. [External] is a vendor
// that times out, answers late or answers twice.
//
// Package servers, below this package, starts PostgreSQL and NATS for a test.
package postroomtest
