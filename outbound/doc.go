// Package outbound calls the HTTP interfaces of other systems: it repeats what
// may be repeated, under one key, and stops before repetitions become a storm.
//
// A [Transport] is an [http.RoundTripper]. One [http.Request] given to it is one
// operation, of one or more attempts, all of which carry the same key. It repeats
// an attempt if another may end differently (no connection, a timeout, 408, 425,
// 429, most 5xx), if repeating is safe (the method is idempotent, or the vendor
// is given a key, or nothing was sent), and if there is time, an attempt left and
// budget for it. As is the contract of [http.RoundTripper], what the vendor answered
// last is returned as a response, whatever its status; [Check] makes a typed [Error]
// of one that is a failure, which says also why there was no further attempt.
// [Client.Do] does both.
//
// Two things protect the vendor. The budget, for each host, lets retries be no more
// than a tenth of requests, and a few beside: when everything fails, load does not
// multiply. The circuit breaker, for each host, stops calls for a while when most of
// them find the vendor out of order. [NewHosts] has several transports share both.
//
// docs/reference/outbound.md has defaults, protocols, errors and figures on one page.
//
// # Calls from a handler of events
//
// A step of an external handler has a key that outlives the process: give it with
// [WithKey]. [ForHandler] makes of an error what a handler should return, and
// [NotDone] says whether the vendor certainly did nothing. The events of a handler
// are tried again on a schedule of their own, so [Config.Attempts] can be low there.
//
// # What is not covered
//
// A vendor that takes no keys cannot recognise a repetition: say so with [NoKeys],
// and a POST is repeated only if nothing was sent. This package keeps nothing beyond
// the process: after a crash it does not know that a call was begun. A local guard with
// receipts does: Call.Step of package inbox in a handler of events, and idempotency.Call
// for requests and jobs. Both ask the vendor what came of a call, or say that it is not
// known, and never call blindly again. Budget and breaker are those of one process.
//
// [http.Transport] itself repeats a request once more when a connection that it had
// kept turns out to be closed, if the request has an Idempotency-Key or an
// idempotent method. Such a repetition has the same key and counts as the same attempt.
package outbound
