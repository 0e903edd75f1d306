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

	"github.com/postroom/postroom/idempotency/internal/header"
)

// Mode says how the guard prevents two effects of an operation.
type Mode int

// The modes of a route.
const (
	// TxMode uses one transaction for the claim, the effects and the answer.
	TxMode Mode = iota

	// LeaseMode claims the key for a limited time, and records each completed step.
	LeaseMode
)

// StorePolicy says which answers are kept.
type StorePolicy int

// The policies for keeping answers.
const (
	// StoreSuccess keeps 2xx and 3xx. After any other answer, transaction mode rolls the effects
	// back, and the client may send the same key again.
	StoreSuccess StorePolicy = iota

	// StoreFinal also keeps 4xx answers that another attempt would get too: all except 401, 403,
	// 408, 409, 421, 423, 425 and 429. Transaction mode rolls their effects back.
	StoreFinal

	// StoreAll keeps every answer of a handler, even 500. Transaction mode commits only the effects
	// of 2xx and 3xx.
	StoreAll
)

// TTLBasis says when the TTL of an answer begins.
type TTLBasis int

// The bases of a TTL.
const (
	FromCompletion TTLBasis = iota // when the answer was kept
	FromCreation                   // when the operation began
	FromLastUse                    // when the answer was last requested
)

// Oversize says what happens to an answer that is larger than [Route.MaxResponse].
type Oversize int

// What happens to a large answer.
const (
	// OversizeFails rolls the effects back and answers 500. In lease mode it does what
	// OversizeDrops does, because lease mode cannot roll back.
	OversizeFails Oversize = iota

	// OversizeDrops sends the answer, and records that it was too large to be kept. A repeated
	// request gets 409, and the handler does not run.
	OversizeDrops
)

// Route says how a guard treats keys of one operation. The zero value is ready to use.
type Route struct {
	// Mode says how the guard prevents two effects: with a transaction or with a claim.
	Mode Mode

	// Required lists the methods whose requests must have a key. Optional lists the methods whose
	// requests may have a key. The guard passes requests with other methods on to the handler. If a
	// request with a method in Optional has no key, the guard does not keep its answer. In
	// transaction mode, such a request runs in its own transaction too.
	//
	// Required defaults to POST and PATCH, without methods in Optional. Optional defaults to PUT
	// and DELETE, without methods in Required. An empty list that is not nil means no methods.
	Required, Optional []string

	// Unsupported makes the guard answer 400 to a request with a key, and pass all other requests
	// on. Use it for operations that do not recognise a repetition.
	Unsupported bool

	// Headers are the headers that may have the key, in the order in which the guard looks for it.
	//
	// Defaults to Idempotency-Key.
	Headers []string

	// Key says which keys the guard accepts.
	Key KeyFormat

	// Scope returns the operation's name, from a small set of names. Two routes with the same name
	// share keys. The default name does not contain a prefix that http.StripPrefix removed. If
	// several prefixes lead to this route, return a different name for each.
	//
	// Defaults to the method and the pattern of http.ServeMux, without the names of wildcards.
	Scope func(r *http.Request) string

	// TTL is how long an answer is kept, and From says when that time begins. With [FromCreation]
	// too, the guard keeps an answer for at least half of TTL after it stored the answer.
	//
	// Defaults to 24 hours from completion.
	TTL  time.Duration
	From TTLBasis

	// RetryWindow is the longest time over which a client repeats a request. [Guard.Check] refuses
	// a TTL that is shorter than twice RetryWindow. Zero means that the time is not known.
	RetryWindow time.Duration

	// Print says how requests are compared. Headers in PrintHeaders are compared too; in that list,
	// Host means the host to which the request was sent. If PrintFunc is set, its result replaces
	// Print. If Multipart is set, multipart bodies are compared by their parts. If neither
	// PrintFunc nor Multipart is set, the guard answers 415 to a multipart body, because a client
	// writes it differently each time.
	//
	// Defaults to PrintRequest.
	Print        Print
	PrintHeaders []string
	PrintFunc    func(r *http.Request, body []byte) []byte
	Multipart    bool

	// MismatchStatus is the status of the answer if the key was used for another request:
	// 422, 409 or 400.
	//
	// Defaults to 422.
	MismatchStatus int

	// Wait is how long a request waits for a running request with the same key. While it waits, it
	// holds no connection of the pool. After Wait the guard answers the request with 409.
	Wait time.Duration

	// StatusURL, if set, returns a URL. If the key of a request is in progress, the guard answers
	// 202 with this URL as Location instead of 409.
	StatusURL func(r *http.Request, k Key) string

	// RetryAfter is the Retry-After header of answers to requests that the client should
	// send again.
	//
	// Defaults to a second.
	RetryAfter time.Duration

	// Store says which answers the guard keeps.
	Store StorePolicy

	// ReplayStatus, if set, returns the status of a repeated answer. Its parameter is the status of
	// the kept answer. [CreatedAs200] is an example.
	ReplayStatus func(kept int) int

	// OmitHeaders are headers that a repeated answer does not have. Some headers are never
	// repeated, because they are only for one answer or one caller: cookies, credentials, dates,
	// rate limits, request ids and headers of the connection.
	OmitHeaders []string

	// AuthorizeReplay, if set, can refuse to repeat an answer. For a repeated answer the handler
	// and its own checks do not run. If AuthorizeReplay returns an error, the guard answers 403, or
	// 503 if the error says that a time limit or a context ended. Both say that the request was
	// carried out.
	AuthorizeReplay func(r *http.Request, rec Record) error

	// Render makes the answer to a repeated request from the reference that the handler gave to
	// [KeepRef].
	Render func(ctx context.Context, ref string) (Response, error)

	// MaxBody is the largest request body in bytes. The guard answers 413 to a larger one.
	//
	// Defaults to 1 MiB.
	MaxBody int64

	// MaxResponse is the size in bytes of the largest answer body that the guard keeps. Oversize
	// says what happens to a larger answer.
	//
	// Defaults to 1 MiB.
	MaxResponse int64
	Oversize    Oversize

	// Timeout limits the time of the handler, through its context. The context does not end when
	// the client's connection ends, so the handler finishes its work, and a retry finds the answer.
	//
	// Defaults to 30 seconds.
	Timeout time.Duration

	// TimeoutHeader names a header in which a client says how many milliseconds it will wait. The
	// handler gets no more time. If TimeoutHeader is empty, the guard reads no such header.
	TimeoutHeader string

	// CancelOnDisconnect makes the guard end the handler's context and roll back when the client's
	// connection ends. It is for transaction mode only.
	CancelOnDisconnect bool

	// Lease is how long a claim lasts if it is not renewed. A live process renews its claim until
	// Timeout. Lease is for lease mode only.
	//
	// Defaults to a minute.
	Lease time.Duration

	// Isolation is the transaction's isolation level. At a level above read committed, a handler
	// may run although another attempt has just committed. Then the guard rolls the effects back.
	//
	// Defaults to the database's default.
	Isolation pgx.TxIsoLevel

	// TxRetries is how many times a handler runs again after a conflict with another transaction:
	// SQLSTATE 40001 or 40P01, or 55P03 if the handler ignored the error and succeeded. The handler
	// must have no effects outside its transaction.
	TxRetries int

	// TxRequired makes it an error if a handler succeeds without calling Tx. It is for tests.
	TxRequired bool
}

// without returns the given methods, except those that are in the list others too.
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
		faults.add(isSafe(method), "%s accepts no key: it has no effect that could be repeated", method)
		faults.add(!header.IsToken(method) || method != strings.ToUpper(method), "%.40q is not a method", method)
	}
	for _, name := range slices.Concat(r.Headers, r.PrintHeaders, r.OmitHeaders) {
		faults.add(!header.IsToken(name), "%.40q is not a header name", name)
	}
	faults.add(r.Mode != TxMode && r.Mode != LeaseMode, "Mode is %d, want TxMode or LeaseMode", r.Mode)
	faults.add(r.Store < StoreSuccess || r.Store > StoreAll, "Store is %d, want StoreSuccess, StoreFinal or StoreAll", r.Store)
	faults.add(r.From < FromCompletion || r.From > FromLastUse, "From is %d, want FromCompletion, FromCreation or FromLastUse", r.From)
	faults.add(r.Oversize != OversizeFails && r.Oversize != OversizeDrops, "Oversize is %d, want OversizeFails or OversizeDrops", r.Oversize)
	faults.add(r.Print < PrintRequest || r.Print > PrintJCS, "Print is %d, want PrintRequest, PrintRaw, PrintBody or PrintJCS", r.Print)
	faults.add(r.Key.MaxLen < 0 || r.Key.MaxLen > maxKeyLen, "Key.MaxLen is %d, want 1 to %d", r.Key.MaxLen, maxKeyLen)
	for _, name := range append(slices.Clone(r.Headers), r.TimeoutHeader) {
		faults.add(header.IsOfMessage(name), "%q is a header of the message, which a client cannot set", name)
	}
	hasKey := func(name string) bool { return strings.EqualFold(name, r.TimeoutHeader) }
	faults.add(slices.ContainsFunc(r.Headers, hasKey), "TimeoutHeader %q has the key", r.TimeoutHeader)
	//guard:twice-a-window-does-not-overflow 1 = r.TTL < 2*r.RetryWindow
	faults.add(r.TTL/2 < r.RetryWindow, "TTL is %s, want at least twice RetryWindow, which is %s: a client would repeat a request whose answer is forgotten", r.TTL, r.RetryWindow)
	faults.add(!slices.Contains([]int{400, 409, 422}, r.MismatchStatus), "MismatchStatus is %d, want 422, 409 or 400", r.MismatchStatus)
	for name, d := range map[string]time.Duration{"TTL": r.TTL, "RetryAfter": r.RetryAfter, "Timeout": r.Timeout, "Lease": r.Lease} {
		//guard:nanoseconds-are-no-setting 1 = d < 0
		faults.add(d < shortest, "%s is %s, want at least %s", name, d, shortest)
	}
	for name, d := range map[string]time.Duration{"Wait": r.Wait, "RetryWindow": r.RetryWindow} {
		faults.add(d < shortest && d != 0, "%s is %s, want 0, or at least %s", name, d, shortest)
	}
	levels := []pgx.TxIsoLevel{"", pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted, pgx.ReadUncommitted}
	//guard:a-level-that-does-not-exist-is-a-fault 1 false
	faults.add(!slices.Contains(levels, r.Isolation), "Isolation is %.40q, want one of %q", string(r.Isolation), levels[1:])
	faults.add(r.MaxBody < 0, "MaxBody is %d, want more than 0", r.MaxBody)
	faults.add(r.MaxResponse < 0, "MaxResponse is %d, want more than 0", r.MaxResponse)
	faults.add(r.TxRetries < 0, "TxRetries is %d, want 0 or more", r.TxRetries)
	faults.add(r.TimeoutHeader != "" && !header.IsToken(r.TimeoutHeader), "TimeoutHeader %.40q is not a header name", r.TimeoutHeader)
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

// Anonymous is a [Config.Principal] for services without authentication. All callers share their
// keys, so a caller that guesses a key gets the answer of another caller.
func Anonymous(*http.Request) (string, error) { return "(anonymous)", nil }

func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
