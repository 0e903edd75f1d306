// Package idempotency answers a repeated request with its first answer, without a second effect. It
// implements Idempotency-Key for net/http, and does the same for any function.
//
// A [Guard] keeps answers in PostgreSQL. [Guard.Handler] puts the guard in front of an
// [http.Handler]. [Do] guards a function without HTTP, and [Job] guards a run of a scheduled job. A
// request is identified by its key, its operation (method and route) and its caller. A guard
// refuses a different request with the same key.
//
// # Transaction mode
//
// This is the default. The handler gets a transaction from [Tx]. Everything that it writes in this
// transaction, also events of an outbox, commits together with its answer, and the guard sends the
// answer after the commit. So an effect never exists without its answer:
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
// Use it for handlers that call other systems, because a call must not keep a transaction open. The
// guard first claims the key for a limited time. The handler works in phases ([Phase]) and calls
// ([Call]), and the guard records each of them. If the process dies, the next attempt with the key
// continues after the last recorded step. A claim has a fence: an attempt that lost its claim can
// record nothing. If a vendor recognises keys only for a time, or not at all, use [VendorWindow]
// and [Lookup]. Then the guard also records the beginning of each call. If the outcome of a call is
// unknown, the guard asks the Lookup, and never repeats the call blindly.
//
// # What is not covered
//
// A key protects as long as its row is kept ([Route.TTL]). Two requests with different keys are
// two operations, even if they are otherwise equal. Unless [Route.Store] says so, the guard
// does not keep an error: it had no effect, and the client may try the same key again.
package idempotency
