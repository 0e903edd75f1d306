// Package outbound calls the HTTP interfaces of other systems. It repeats a call if that
// is safe, with the same key, and limits repetitions.
//
// A [Transport] is an [http.RoundTripper]. One [http.Request] is one operation. It has one or more
// attempts, which all send the same key. The Transport makes another attempt if three conditions
// are true. Another attempt may end differently: there was no connection, a timeout, 408, 425, 429,
// or most 5xx. Repeating is safe: the method is idempotent, the vendor gets a key, or nothing was
// sent. And there is time, an attempt and budget left. As [http.RoundTripper] demands, the
// Transport returns the vendor's last answer as a response, with any status. [Check] turns a
// failure into a typed [Error], which also says why there was no further attempt. [Client.Do] does
// both.
//
// Two limits protect the vendor. Each host has both. The budget limits retries to a tenth of the
// requests and a few more, so load does not multiply when everything fails. The circuit breaker
// stops calls for a while when most of them fail. [NewHosts] lets several transports share budgets
// and breakers.
//
// docs/reference/outbound.md has defaults, protocols, errors and figures on one page.
//
// # Calls from a handler of events
//
// A step of an external handler has a key that remains the same if the process restarts: pass it
// with [WithKey]. [ForHandler] turns an error into the error that a handler should return, and
// [NotApplied] says whether the vendor certainly did nothing. A handler's events have their own
// retry schedule, so [Config.Attempts] can be low there.
//
// # What is not covered
//
// A vendor that accepts no keys cannot recognise a repetition. Use [NoKeys] for it: then a POST is
// repeated only if nothing was sent. This package stores nothing: after a crash it does not know
// that a call began. Steps with receipts do: Attempt.Step of package inbox in a handler of events,
// and idempotency.Call for requests and jobs. Both ask the vendor about a call, or say that its
// outcome is unknown, and never repeat it blindly. Each process has its own budgets and breakers.
//
// [http.Transport] itself repeats a request if an idle connection turns out to be closed,
// and the request has an Idempotency-Key or an idempotent method. That repetition has the
// same key and counts as the same attempt.
package outbound
