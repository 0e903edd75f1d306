package idempotency

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Mode says how an operation is kept from having two effects.
type Mode int

// Modes.
const (
	// TxMode has one transaction hold claim, effects and answer.
	TxMode Mode = iota

	// LeaseMode claims the key for a time, and records what is done step by step.
	LeaseMode
)

// StorePolicy says which answers are kept.
type StorePolicy int

// Policies.
const (
	// StoreSuccess keeps 2xx and 3xx. After any other answer the effects are rolled
	// back, and the same key may be tried again.
	StoreSuccess StorePolicy = iota

	// StoreFinal keeps those 4xx as well that another attempt would have, too: all but
	// 401, 403, 408, 409, 421, 423, 425 and 429. Their effects are rolled back.
	StoreFinal

	// StoreAll keeps whatever a handler answers, 500 included. Only the effects of 2xx
	// and 3xx are committed.
	StoreAll
)

// TTLBasis says from when on the time counts for which an answer is kept.
type TTLBasis int

// Bases.
const (
	FromCompletion TTLBasis = iota // from when the answer was kept
	FromCreation                   // from when the operation began
	FromLastUse                    // from when it was last asked for
)

// Oversize says what becomes of an answer that is larger than [Route.MaxResponse].
type Oversize int

// What becomes of it.
const (
	// OversizeFails rolls back and answers 500. Lease mode cannot, and does what
	// OversizeDrops does.
	OversizeFails Oversize = iota

	// OversizeDrops sends it, and keeps that it was sent: whoever asks again is
	// answered 409, and the handler does not run.
	OversizeDrops
)

// Route is how one operation treats keys. The zero value is ready to use.
//
// Wide because each field is one decision of whoever writes the service, and all but two or
// three are left as they are: in groups, each of those would be written in a literal of its own.
type Route struct {
	// Mode says how two effects are kept apart: by a transaction, or by a claim.
	Mode Mode

	// Required and Optional are the methods that must and may carry a key. Others are
	// passed on as they are. Without a key, an optional one runs as ever, in a
	// transaction of its own, and is not kept.
	//
	// Required defaults to POST and PATCH, but for those in Optional, and Optional to PUT
	// and DELETE, but for those in Required; an empty list is none.
	Required, Optional []string

	// Unsupported answers 400 to a request that carries a key, and passes on all others:
	// for an operation that does not recognise a repetition.
	Unsupported bool

	// Headers are those that carry the key; the first that is there counts.
	//
	// Defaults to Idempotency-Key.
	Headers []string

	// Key says which keys are taken.
	Key KeyFormat

	// Scope names the operation, from a small set of names. Two routes of one name
	// share keys. What was taken off the path before, as by http.StripPrefix, is in neither:
	// have a name for each if several prefixes lead here.
	//
	// Defaults to the method and the pattern of http.ServeMux.
	Scope func(r *http.Request) string

	// TTL is for how long an answer is kept, and From is when that begins.
	//
	// Defaults to 24 hours from completion.
	TTL  time.Duration
	From TTLBasis

	// RetryWindow is the longest time over which a client repeats a request. A TTL of
	// less than twice that is a fault. Zero: not known.
	RetryWindow time.Duration

	// Print is what requests are compared by; PrintHeaders are compared beside it, and
	// PrintFunc, if it is set, is compared instead. Multipart has multipart bodies
	// compared by their parts; without it they are refused with 415, as a client writes
	// them anew each time.
	//
	// Defaults to PrintRequest.
	Print        Print
	PrintHeaders []string
	PrintFunc    func(r *http.Request, body []byte) []byte
	Multipart    bool

	// MismatchStatus is the status of a request whose key was used for another: 422,
	// 409 or 400.
	//
	// Defaults to 422.
	MismatchStatus int

	// Wait is how long a request waits for the one with its key that runs. It holds no
	// connection meanwhile. After that, or at once if it is 0, it is answered 409.
	Wait time.Duration

	// StatusURL, if it is set, has a request whose key is in progress answered with
	// 202 and this Location instead of 409.
	StatusURL func(r *http.Request, k Key) string

	// RetryAfter is what those are told that should come again.
	//
	// Defaults to a second.
	RetryAfter time.Duration

	// Store says which answers are kept.
	Store StorePolicy

	// ReplayStatus, if it is set, makes the status of a repeated answer from the kept
	// one: [CreatedAs200].
	ReplayStatus func(kept int) int

	// OmitHeaders are headers that a repeated answer does not have, beside those that
	// belong to one answer or one caller and are never repeated: cookies, credentials, dates,
	// limits, request ids and headers of the connection.
	OmitHeaders []string

	// AuthorizeReplay, if it is set, has a say before an answer is repeated: the
	// handler, with its own checks, is not asked. After an error it is 403, or 503 if a time
	// limit or a context ended while it asked.
	AuthorizeReplay func(r *http.Request, rec Record) error

	// Render makes an answer of the reference that the handler gave with [KeepRef], in
	// place of an answer that is kept.
	Render func(ctx context.Context, ref string) (Response, error)

	// MaxBody is the most bytes of a request's body; a longer one is answered 413.
	//
	// Defaults to 1 MiB.
	MaxBody int64

	// MaxResponse is the most bytes of an answer's body that are kept, and Oversize says
	// what becomes of a longer one.
	//
	// Defaults to 1 MiB.
	MaxResponse int64
	Oversize    Oversize

	// Timeout bounds the handler, by its context. That does not end with the client's
	// connection: work that has begun is finished, and a retry finds it.
	//
	// Defaults to 30 seconds.
	Timeout time.Duration

	// TimeoutHeader names a header in which a client says how many milliseconds it
	// waits: the handler then has no longer. None is read if it is empty.
	TimeoutHeader string

	// CancelOnDisconnect ends the handler's context with the client's connection, and
	// rolls back. Transaction mode only.
	CancelOnDisconnect bool

	// Lease is for how long a claim holds when its process has died. It is renewed
	// meanwhile. Lease mode only.
	//
	// Defaults to a minute.
	Lease time.Duration

	// Isolation is that of the transaction. Above read committed, a handler may now and
	// then run in vain when its twin has just committed; its effects are rolled back.
	//
	// Defaults to the database's.
	Isolation pgx.TxIsoLevel

	// TxRetries is how often a handler is run again that lost against another transaction
	// (SQLSTATE 40001 and 40P01). It must have no effects outside the transaction.
	TxRetries int

	// TxRequired makes it an error to answer with success and not to have asked for the
	// transaction: for tests.
	TxRequired bool
}

// without returns the methods that are not among others.
func without(methods, others []string) []string {
	return slices.DeleteFunc(methods, func(m string) bool { return slices.Contains(others, m) })
}

func (r Route) defaults() Route {
	if r.Required == nil {
		r.Required = without([]string{http.MethodPost, http.MethodPatch}, r.Optional)
	}
	if r.Optional == nil {
		r.Optional = without([]string{http.MethodPut, http.MethodDelete}, r.Required)
	}
	if len(r.Headers) == 0 {
		r.Headers = []string{"Idempotency-Key"}
	}
	r.TTL = cmp.Or(r.TTL, TTLRequests)
	r.Print = cmp.Or(r.Print, PrintRequest)
	r.MismatchStatus = cmp.Or(r.MismatchStatus, http.StatusUnprocessableEntity)
	r.RetryAfter = cmp.Or(r.RetryAfter, time.Second)
	r.MaxBody = cmp.Or(r.MaxBody, 1<<20)
	r.MaxResponse = cmp.Or(r.MaxResponse, 1<<20)
	r.Timeout = cmp.Or(r.Timeout, 30*time.Second)
	r.Lease = cmp.Or(r.Lease, time.Minute)
	return r
}

func (r Route) validate() error {
	var faults faultsOf
	for _, method := range slices.Concat(r.Required, r.Optional) {
		faults.add(isSafe(method), "%s takes no key: it has no effect to repeat", method)
		faults.add(!isToken(method) || method != strings.ToUpper(method), "%.40q is no method", method)
	}
	for _, name := range slices.Concat(r.Headers, r.PrintHeaders, r.OmitHeaders) {
		faults.add(!isToken(name), "%.40q is no name of a header", name)
	}
	faults.add(r.Mode != TxMode && r.Mode != LeaseMode, "Mode is %d, want TxMode or LeaseMode", r.Mode)
	faults.add(r.Store < StoreSuccess || r.Store > StoreAll, "Store is %d, want StoreSuccess, StoreFinal or StoreAll", r.Store)
	faults.add(r.From < FromCompletion || r.From > FromLastUse, "From is %d, want FromCompletion, FromCreation or FromLastUse", r.From)
	faults.add(r.Oversize != OversizeFails && r.Oversize != OversizeDrops, "Oversize is %d, want OversizeFails or OversizeDrops", r.Oversize)
	faults.add(r.Print < PrintRequest || r.Print > PrintJCS, "Print is %d, want PrintRequest, PrintRaw, PrintBody or PrintJCS", r.Print)
	faults.add(r.Key.MaxLen < 0 || r.Key.MaxLen > maxKeyLen, "Key.MaxLen is %d, want 1 to %d", r.Key.MaxLen, maxKeyLen)
	faults.add(r.TTL < 0, "TTL is %s, want more than none", r.TTL)
	faults.add(r.TTL < 2*r.RetryWindow, "TTL is %s, want at least twice RetryWindow, which is %s: a client would repeat what is forgotten", r.TTL, r.RetryWindow)
	faults.add(!slices.Contains([]int{400, 409, 422}, r.MismatchStatus), "MismatchStatus is %d, want 422, 409 or 400", r.MismatchStatus)
	for name, d := range map[string]time.Duration{"Wait": r.Wait, "RetryAfter": r.RetryAfter, "Timeout": r.Timeout, "Lease": r.Lease, "RetryWindow": r.RetryWindow} {
		faults.add(d < 0, "%s is %s, want more than none", name, d)
	}
	faults.add(r.MaxBody < 0, "MaxBody is %d, want more than none", r.MaxBody)
	faults.add(r.MaxResponse < 0, "MaxResponse is %d, want more than none", r.MaxResponse)
	faults.add(r.TxRetries < 0, "TxRetries is %d, want 0 or more", r.TxRetries)
	faults.add(r.TimeoutHeader != "" && !isToken(r.TimeoutHeader), "TimeoutHeader %.40q is no name of a header", r.TimeoutHeader)
	faults.add(r.Mode == LeaseMode && (r.CancelOnDisconnect || r.TxRetries > 0 || r.TxRequired), "CancelOnDisconnect, TxRetries and TxRequired are for transaction mode")
	return errors.Join(faults...)
}

// CreatedAs200 is a [Route.ReplayStatus] that repeats 201 as 200.
func CreatedAs200(kept int) int {
	if kept == http.StatusCreated {
		return http.StatusOK
	}
	return kept
}

// Anonymous is a [Config.Principal] for services without authentication: all callers
// are one, and whoever guesses a key is answered what another was.
func Anonymous(*http.Request) (string, error) { return "(anonymous)", nil }

func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// isToken reports whether s is a token of RFC 9110, as names of headers and methods are.
func isToken(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
