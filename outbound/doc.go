// Package outbound calls the HTTP interfaces of other systems. If a call fails and is safe to
// repeat, the package repeats it with the same key. The package limits these repetitions.
//
// A [Transport] is an [http.RoundTripper]. One [http.Request] is one operation. It has one or more
// attempts, which all send the same key. The Transport makes another attempt if three conditions
// are true. First, another attempt may end differently: there was no connection, a timeout, 408,
// 425, 429, some 409 and 202, or most 5xx. Second, it is safe to repeat the call: the method is
// idempotent, the vendor gets a key, or nothing was sent. Third, an attempt, time and budget are
// left, and the circuit breaker is not open. As [http.RoundTripper] demands, the Transport returns
// the vendor's last answer as a response, with any status. [CheckResponse] turns a failure into a
// typed [Error], which also says why there was no further attempt. [Client.Do] makes the call and
// calls CheckResponse.
//
// Two limits protect the vendor, and each host has its own. The budget limits retries to a tenth of
// the requests and a few more, so that retries do not multiply the load when all calls fail. The
// circuit breaker stops calls for a while if at least half of them fail. [NewHosts] lets several
// transports share budgets and breakers.
//
// docs/reference/outbound.md lists defaults, protocols, errors and figures.
//
// # Calls from a handler of events
//
// A step of an external handler has a key that remains the same if the process restarts: pass it
// with [WithKey]. [ForHandler] turns an error into the error that a handler should return, and
// [NotApplied] says whether the vendor certainly did nothing. The inbox runs a handler again if its
// event failed, so [Config.Attempts] can be low there.
//
// # What is not covered
//
// A vendor that accepts no keys cannot recognise a repetition. Use [NoKeys] for such a vendor: then
// a POST is repeated only if nothing was sent. This package stores nothing: after a crash it does
// not know that a call began. A step with receipts stores this: use inbox.Step
// in a handler of events, and idempotency.Call for requests and jobs. Both ask the vendor about a
// call, or return an error that says that the outcome is unknown. They never repeat a call blindly.
// Each process has its own budgets and breakers.
//
// [http.Transport] itself repeats a request if an idle connection turns out to be closed,
// and the request has an Idempotency-Key or an idempotent method. That repetition has the
// same key and counts as the same attempt.
package outbound
