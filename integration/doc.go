// Package integration tests the whole system. The tests run relays as separate processes and kill
// them, and they stop brokers. The promises have to hold nevertheless.
//
// Every scenario ends with the same checks:
//
//  1. NoLoss: every event that was committed has taken effect at every handler.
//  2. NoGhost: no event of a transaction that rolled back is in the stream.
//  3. EffectOnce: no event has taken effect twice at a handler.
//  4. KeyOrder: in the stream, the first occurrences of a key's events are in the
//     order in which their transactions committed.
package integration
