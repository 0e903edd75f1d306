package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/repeat"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/schema"
)

// acceptor stores events for handlers: an [inbox.Inbox], or a fake of a test.
type acceptor interface {
	AcceptAll(ctx context.Context, all ...inbox.Acceptance) ([]inbox.AcceptResult, error)
}

// Receiver is an [http.Handler] that receives webhooks from one source. Make it with [NewReceiver].
// It is safe for concurrent use. Any number of processes may serve one source.
type Receiver struct {
	cfg     ReceiverConfig
	in      acceptor
	fault   error
	inbox   *inbox.Inbox  // nil if a test has only an acceptor
	intake  *inbox.Intake // nil if there is no inbox
	signals *signals
	lines   repeat.Lines
	chosen  atomic.Pointer[Scheme] // the scheme that Choose returned last
	ignored atomic.Int64           // how many requests were ignored
	took    atomic.Bool            // a request was not ignored

	mu      sync.Mutex
	tenants map[string]map[string]Scheme // by name in lower case, and name
	many    int                          // how many names there are
}

// NewReceiver returns a receiver that stores events in an inbox, for the handler that cfg names. It
// does no I/O. If cfg is not valid, [Receiver.Check] returns the faults, and each request is
// answered 500. An inbox calls Check before it starts, so call NewReceiver before inbox.Inbox.Run.
func NewReceiver(in *inbox.Inbox, cfg ReceiverConfig) *Receiver { return newReceiver(in, in, cfg) }

func newReceiver(in acceptor, of *inbox.Inbox, cfg ReceiverConfig) *Receiver {
	cfg = cfg.defaults()
	r := &Receiver{cfg: cfg, in: in, inbox: of, signals: newSignals(cfg), tenants: make(map[string]map[string]Scheme)}
	if err := cfg.validate(); err != nil {
		r.fault = fmt.Errorf("webhook: %w", postroom.Unrecoverable(err))
	}
	//guard:webhook-receiver-is-checked-by-its-inbox false
	if of != nil {
		r.intake = of.AddIntake(cfg.Handler, cfg.Source, r.check)
	}
	return r
}

// Check returns all faults of the Config, an error if Scheme is not set up correctly, and an error
// if the inbox does not have the handler. It also returns an error if Types has a type that the
// scheme's events cannot have, or that the handler does not take. Its errors match
// postroom.ErrUnrecoverable. Check does not use the database. An inbox calls Check in its own Check,
// and before it starts.
func (r *Receiver) Check(ctx context.Context) error { return r.check(ctx, r.intake) }

// check is Check. The inbox may call it before NewReceiver has returned, so it does not use r.intake.
func (r *Receiver) check(ctx context.Context, intake *inbox.Intake) error {
	faults := []error{r.fault}
	if r.cfg.Scheme != nil {
		if _, err := verify(r.cfg.Scheme, http.Header{}, nil); errors.Is(err, postroom.ErrUnrecoverable) {
			faults = append(faults, err)
		}
	}
	// The inbox looks for the handler first. It does not store this event, which has no type.
	_, err := r.in.AcceptAll(ctx, inbox.Acceptance{Handler: r.cfg.Handler})
	if err != nil && !errors.Is(err, postroom.ErrInvalidEvent) {
		faults = append(faults, postroom.Unrecoverable(err))
	}
	if err := r.typeFaults(intake); err != nil {
		faults = append(faults, postroom.Unrecoverable(fmt.Errorf("webhook: config: %w", err)))
	}
	return errors.Join(faults...)
}

// ServeHTTP receives a request. It answers 200 after the commit, even if the event is a duplicate.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, span := r.signals.begin(req.Context())
	defer span.End()
	res := r.receive(ctx, w, req)
	res.remote = req.RemoteAddr
	res.send(w)
	r.tell(ctx, span, res)
}

// receive carries out a request, and returns its result.
func (r *Receiver) receive(ctx context.Context, w http.ResponseWriter, req *http.Request) result {
	limited := r.limit(w)
	switch {
	case r.fault != nil:
		return result{outcome: misconfigured, err: r.fault}
	case req.Method != http.MethodPost:
		return result{outcome: otherMethod}
	//guard:webhook-compressed-body false
	case isEncoded(req.Header):
		return result{outcome: encoded, err: errEncoded}
	}
	body, outcome, err := r.read(w, req, limited)
	if err != nil {
		return result{outcome: outcome, err: err}
	}
	// The sender may disconnect. Even then, a request that arrived completely is stored.
	//guard:webhook-outlives-its-sender 1 = @1
	//guard:webhook-patience = context.WithCancel(@1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Patience)
	defer cancel()
	do := func() (result, error) {
		m, within, err := r.verify(ctx, req, body)
		if err != nil {
			return r.notVerified(err), nil
		}
		return r.take(ctx, m, within, req.Header, body), nil
	}
	// The functions of the Config and the scheme need not return when ctx ends.
	//guard:webhook-patience-with-functions = do()
	res, err := guard.Apart(r.cfg.Patience+lateness, do)
	switch {
	case errors.Is(err, guard.ErrTimeout):
		return result{outcome: unavailable, err: fmt.Errorf("a function of the Config, or the scheme: %w", err)}
	case err != nil:
		return result{outcome: misconfigured, err: err}
	}
	return res
}

// lateness is how long after ReceiverConfig.Patience the inbox may return an error that says what it waited
// for.
const lateness = 250 * time.Millisecond

// verify verifies a request. If there are tenants, it uses the scheme of the request's tenant. The
// result within names the tenant: this result is appended to the event's source.
func (r *Receiver) verify(ctx context.Context, req *http.Request, body []byte) (m Message, within string, err error) {
	if r.cfg.Choose == nil {
		m, err = verify(r.cfg.Scheme, req.Header, body)
		return m, "", err
	}
	tenant, scheme, err := r.choose(ctx, req, body)
	switch {
	case errors.Is(err, ErrUnknownTenant):
		//guard:webhook-unknown-tenant-takes-as-long remove
		_, _ = verify(scheme, req.Header, body) // so that the answer takes as long as for a known tenant
		return Message{}, "", refused(UnknownTenant)
	case err != nil:
		return Message{}, "", &chooseError{err}
	}
	m, err = verify(scheme, req.Header, body)
	if err == nil {
		r.remember(tenant, scheme)
	}
	//guard:webhook-tenant-is-escaped 2 = "/" + @2.1 + url.PathEscape("")
	return m, "/" + url.PathEscape(tenant), err
}

// remember remembers the scheme of a tenant whose request was verified.
func (r *Receiver) remember(tenant string, s Scheme) {
	r.mu.Lock()
	defer r.mu.Unlock()
	folded := strings.ToLower(tenant)
	//guard:webhook-repeated-requests-make-no-receiver-forget true
	if r.tenants[folded][tenant] == nil {
		r.many++
	}
	if r.many > manyTenants {
		clear(r.tenants)
		r.many = 1
	}
	if r.tenants[folded] == nil {
		r.tenants[folded] = make(map[string]Scheme)
	}
	r.tenants[folded][tenant] = s
}

// manyTenants is how many names of tenants a receiver remembers. At the next name it forgets all others.
// It does not count requests: the sender of a captured request can send it any number of times.
const manyTenants = 100_000

// respelled returns an error if the inbox has the event under another name of the tenant, one that
// differs in upper and lower case and that a request had before, and not under this name: a captured
// event would take effect once under each name. Two names are of different tenants if the secret that
// the other name had last does not verify the request.
func (r *Receiver) respelled(ctx context.Context, ev postroom.Event, within string, h http.Header, body []byte) error {
	tenant, err := url.PathUnescape(strings.TrimPrefix(within, "/"))
	if err != nil || r.inbox == nil {
		return nil //nolint:nilerr // a name that PathEscape made has no fault
	}
	r.mu.Lock()
	others := maps.Clone(r.tenants[strings.ToLower(tenant)])
	r.mu.Unlock()
	delete(others, tenant)
	names := make(map[string]string) // by the dedupe key of the event
	for other, s := range others {
		//guard:webhook-tenants-that-differ-in-case-are-apart true
		if _, err := verify(s, h, body); err == nil {
			names[identity.DedupeKey(strings.TrimSuffix(ev.Source, within)+"/"+url.PathEscape(other), ev.ID)] = other
		}
	}
	if len(names) == 0 {
		return nil
	}
	pool, name := r.inbox.Tables()
	if name, err = schema.Name(name); err != nil || pool == nil {
		return nil //nolint:nilerr // the inbox itself returns a fault of its config
	}
	own := identity.DedupeKey(ev.Source, ev.ID)
	rows, _ := pool.Query(ctx, schema.In(name, written.Decided), r.cfg.Handler, slices.AppendSeq([]string{own}, maps.Keys(names))) // CollectRows reports the error
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	//guard:webhook-known-event-is-a-duplicate-under-its-spelling 3 false
	if err != nil || len(known) == 0 || slices.Contains(known, own) {
		return err
	}
	return postroom.Unrecoverable(fmt.Errorf("webhook: ReceiverConfig.Choose returned the tenant %.100q, and earlier %.100q for the same event: return the stored name of a tenant", tenant, names[known[0]]))
}

// choose returns the tenant and its scheme. If the tenant is unknown, it returns ErrUnknownTenant
// and another scheme, so that the caller can spend the same time on verification.
func (r *Receiver) choose(ctx context.Context, req *http.Request, body []byte) (tenant string, scheme Scheme, err error) {
	req = req.Clone(ctx)
	req.Body = newBody(body)
	err = guard.Call(func() (err error) {
		tenant, scheme, err = r.cfg.Choose(req)
		return guard.Seal(err)
	})
	switch {
	//guard:webhook-tenant-has-a-name 3 false
	case err == nil && scheme != nil && tenant == "":
		return "", nil, postroom.Unrecoverable(errors.New("ReceiverConfig.Choose returned no tenant"))
	case err == nil && scheme != nil:
		r.chosen.Store(&scheme)
		return tenant, scheme, nil
	case err != nil && !errors.Is(err, ErrUnknownTenant):
		return "", nil, err
	}
	other := r.cfg.Scheme
	if last := r.chosen.Load(); other == nil && last != nil {
		other = *last
	}
	if other == nil {
		other = Standard(base64.StdEncoding.EncodeToString([]byte(rand.Text())))
	}
	return "", other, ErrUnknownTenant
}

// chooseError is an error of ReceiverConfig.Choose.
type chooseError struct{ err error }

func (e *chooseError) Error() string { return "webhook: choose the secrets: " + e.err.Error() }
func (e *chooseError) Unwrap() error { return e.err }

// verify calls a scheme. The scheme's code may be a user's, and may panic.
func verify(s Scheme, h http.Header, body []byte) (m Message, err error) {
	err = guard.Call(func() (err error) {
		m, err = s.Verify(h, body, time.Now())
		return guard.Seal(err)
	})
	return m, err
}

// notVerified returns the result for an error of the method verify.
func (r *Receiver) notVerified(err error) result {
	var refusal *VerifyError
	var choosing *chooseError
	var panicked *guard.PanicError
	switch {
	case errors.Is(err, postroom.ErrUnrecoverable), errors.As(err, &panicked):
		return result{outcome: misconfigured, err: err}
	case errors.As(err, &choosing):
		return result{outcome: unavailable, err: err}
	case errors.As(err, &refusal):
		return result{outcome: rejected, reason: refusal.Reason}
	}
	return result{outcome: rejected, reason: OtherReason}
}

// take stores the event of a verified request.
func (r *Receiver) take(ctx context.Context, m Message, within string, h http.Header, body []byte) result {
	switch {
	case m.Reply != nil:
		return result{outcome: handshake, reply: m.Reply}
	case m.Form && r.cfg.Event == nil:
		return result{outcome: form}
	}
	ev, err := r.event(m, within, h, body)
	if err != nil {
		return result{outcome: noEvent, err: err, event: ev}
	}
	types, _ := r.types(r.intake)
	switch {
	//guard:webhook-types-that-match-nothing-are-a-fault false
	case r.cfg.Event == nil && len(types) > 0 && !slices.ContainsFunc(types, fits(m.Scheme)):
		return result{outcome: misconfigured, event: ev, err: fmt.Errorf("webhook: no event of scheme %s has one of the types %s: each type must begin with %q", m.Scheme, strings.Join(types, ", "), prefixOf(m.Scheme))}
	case len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return wildcard.Covers(t, ev.Type) }):
		r.note(ctx, ev, false)
		return result{outcome: ignored, event: ev}
	}
	//guard:webhook-without-id false
	if ev.ID == "" {
		return result{outcome: withoutID, event: ev}
	}
	//guard:webhook-tenant-has-one-spelling false
	if err := r.respelled(ctx, ev, within, h, body); err != nil {
		return accepted(ev, nil, err)
	}
	ignore := r.cfg.Changed == IgnoreChanged || r.cfg.Changed == ChangedDefault && m.Varies
	results, err := r.in.AcceptAll(ctx, inbox.Acceptance{Handler: r.cfg.Handler, Event: ev, IgnoreChanged: ignore, IgnoreType: m.UnsignedType})
	if err == nil {
		r.note(ctx, ev, true)
	}
	return accepted(ev, results, err)
}

// note notes for 'postroom status' whether the receiver took an event.
func (r *Receiver) note(ctx context.Context, ev postroom.Event, taken bool) {
	if r.intake != nil {
		r.intake.Note(ctx, ev.Type, taken)
	}
}

// accepted converts what the inbox returned for an event to the result of the request.
func accepted(ev postroom.Event, results []inbox.AcceptResult, err error) result {
	res := result{event: ev, err: err}
	switch {
	case errors.Is(err, postroom.ErrUnknownType): // the subscription does not have this type
		return result{event: ev, outcome: ignored}
	case errors.Is(err, postroom.ErrInvalidEvent):
		res.outcome = noEvent
	case errors.Is(err, inbox.ErrUnknownHandler), errors.Is(err, inbox.ErrOrdered), errors.Is(err, postroom.ErrUnrecoverable):
		res.outcome = misconfigured
	case err != nil || len(results) != 1:
		//guard:webhook-error-is-no-success = stored
		res.outcome = unavailable
	case results[0] == inbox.Stored:
		res.outcome = stored
	case results[0] == inbox.Changed:
		res.outcome = changed
	case results[0] == inbox.Conflict:
		res.outcome = conflict
	default:
		res.outcome = duplicate
	}
	return res
}

// event returns the event for a verified request.
func (r *Receiver) event(m Message, within string, h http.Header, body []byte) (postroom.Event, error) {
	ev := postroom.Event{Type: eventType(m), Time: m.Time, ContentType: contentType(h, body), Data: body}
	if r.cfg.Event != nil {
		err := guard.Call(func() (err error) {
			ev, err = r.cfg.Event(m, h, body)
			return guard.Seal(err)
		})
		if err != nil {
			return postroom.Event{}, fmt.Errorf("webhook: make the event: %w", err)
		}
	}
	//guard:webhook-tenants-are-apart 2 = cmp.Or(@1.1, @1.2+@2)
	ev.ID, ev.Source = cmp.Or(ev.ID, m.ID), cmp.Or(ev.Source, r.cfg.Source)+within
	if r.cfg.Key != nil {
		err := guard.Call(func() error {
			ev.Key = r.cfg.Key(ev)
			return nil
		})
		if err != nil {
			return ev, fmt.Errorf("webhook: make the event's key: %w", err)
		}
	}
	return ev, nil
}

// untyped is the provider's type of a request that has no type.
const untyped = "untyped"

// eventType returns "<scheme>.<provider's type>".
func eventType(m Message) string {
	parts := strings.Split(m.Scheme+"."+cmp.Or(m.Type, untyped), ".")
	for i, p := range parts {
		parts[i] = cmp.Or(strings.Map(func(c rune) rune {
			if c < 128 && (c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
				return c
			}
			return '_'
		}, p), "_")
	}
	t := strings.Join(parts, ".")
	return strings.TrimRight(t[:min(len(t), postroom.MaxType)], ".")
}

// contentType returns the Content-Type of a request, or application/octet-stream if the
// Content-Type is not valid in an event, or says JSON and the body is not JSON: the outbox of
// [Forward] would refuse such an event.
func contentType(h http.Header, body []byte) string {
	t := cmp.Or(h.Get("Content-Type"), "application/json")
	if t != "application/json" && (postroom.Event{Type: "a", ContentType: t}).Validate() != nil {
		return "application/octet-stream"
	}
	//guard:webhook-a-body-that-is-no-json-can-be-forwarded false
	if len(body) > 0 && isJSON(t) && !json.Valid(body) {
		return "application/octet-stream"
	}
	return t
}
