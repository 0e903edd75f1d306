// Package integration holds tests of the whole: relays as processes that are
// killed, brokers that go away, and what is promised in spite of it.
//
// Every scenario ends in the same checks:
//
//  1. NoLoss: every event that was committed has taken effect at every handler.
//  2. NoGhost: no event of a transaction that rolled back is in the stream.
//  3. EffectOnce: no event has taken effect twice at a handler.
//  4. KeyOrder: the first occurrences of a key's events stand in the stream in
//     the order in which their transactions committed.
package integration
