// Package idempotency lets a request that is sent again have the answer it had, and no
// second effect: an Idempotency-Key for net/http, and the same for any function.
//
// A [Guard] keeps answers in PostgreSQL. [Guard.Handler] puts it in front of an
// [http.Handler]; [Do] is the same without HTTP, and [Job] names the run of a scheduled
// job. A request is known by its key, within the operation (method and route) and the
// caller; the same key with another request is refused.
//
// # Transaction mode
//
// The default. The handler is given a transaction, with [Tx]; what it writes there,
// events of an outbox included, commits together with its answer, and the answer leaves
// after the commit. So there is no moment at which one exists without the other:
//
//	mux.Handle("POST /refunds", guard.Handler(idempotency.Route{}, http.HandlerFunc(
//		func(w http.ResponseWriter, r *http.Request) {
//			tx := idempotency.Tx(r.Context())
//			…
//		})))
//
// What a handler does elsewhere, with a pool of its own or at a vendor's, is not a part of
// it. A request holds a connection of the pool for as long as its handler runs: give the
// pool as many as handlers run at once, and a few beside.
//
// # Lease mode
//
// For handlers that call other systems, which must not be done under an open transaction.
// The key is claimed first, for a time, and the handler does its work in phases
// ([Phase]) and calls ([Call]), each of which is recorded. When the process dies, the next
// attempt with the key goes on behind the last of them. A claim has a fence: whoever lost
// it records nothing any more. A vendor that recognises keys for a time, or takes none, is
// called with [KeyWindow] and [Lookup]: that a call begins is recorded as well then, and one
// whose outcome nobody knows is looked up, and never made blindly again.
//
// # What is not covered
//
// A key protects for as long as its row is kept ([Route.TTL]). Two keys are two
// operations, whatever they ask for. What was answered with an error is not kept, unless
// [Route.Store] says so: it had no effect, and the same key may be tried again.
package idempotency
