// Package idempotency answers a repeated request with the answer to the first one, without a second
// effect. It implements Idempotency-Key for net/http, and also guards any function.
//
// A [Guard] keeps answers in PostgreSQL. [Guard.Handler] puts the guard in front of an
// [http.Handler]. [Do] guards a function without HTTP, and [Job] guards a run of a scheduled job. A
// guard identifies a request by its key, its operation (method and route) and its caller. It
// refuses a different request with the same key.
//
// # Transaction mode
//
// This is the default. The handler gets a transaction from [Tx]. Everything that the handler writes
// in this transaction, including events of an outbox, commits together with the answer. So an
// effect never exists without its answer. The guard sends the answer after the commit. For example:
//
//	mux.Handle("POST /refunds", guard.Handler(idempotency.Route{}, http.HandlerFunc(
//		func(w http.ResponseWriter, r *http.Request) {
//			tx := idempotency.Tx(r.Context())
//			…
//		})))
//
// The transaction does not cover effects elsewhere, for instance through another pool or at a
// vendor. A request uses a connection of the pool while its handler runs. Give the pool as many
// connections as handlers run at once, and a few more.
//
// # Lease mode
//
// Lease mode is for handlers that call other systems, because a call must not keep a transaction
// open. The guard claims the key for a limited time. The handler works in phases ([Phase]) and
// calls ([Call]), which the guard records. If the process dies, the next attempt continues after
// the last recorded step. A claim has a fence, a number that rises with each takeover, so an
// attempt that lost its claim can record nothing. If a vendor recognises keys only for a time, or
// not at all, use [VendorWindow] and [Lookup]. Then the guard also records when a call begins. If a
// call's outcome is unknown and the vendor may no longer recognise the key, the guard asks the
// Lookup. The guard repeats the call only if the Lookup says that the call did not happen.
//
// # What is not covered
//
// A key prevents a second effect only while its row is kept ([Route.TTL]). Two requests with
// different keys are two operations, even if they are otherwise equal. By default the guard does
// not keep errors, and the client may send the same key again. [Route.Store] can change that. In
// transaction mode, after an error answer, the guard rolls back what the handler wrote with [Tx].
package idempotency
