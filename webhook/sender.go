package webhook

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/filters"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/repeat"
	"github.com/postroom/postroom/internal/sameschema"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/outbound"
	"github.com/postroom/postroom/schema"
	"github.com/postroom/postroom/webhook/internal/lanes"
)

// SenderConfig tunes a [Sender]. Name is required.
type SenderConfig struct {
	// Name is the name of the handler that delivers. It must never change; see inbox.Subscription.
	Name string

	// AccountHeader is the name of an event's header, in upper or lower case. The value of this header
	// is the account to which the event belongs. Only endpoints of that account get the event. No
	// endpoint gets an event without this header.
	//
	// Defaults to none: all events belong to the empty account.
	AccountHeader string

	// Types are the only event types that customers may get, even if an endpoint has no types of
	// its own. The subscription whose handler is FanOut takes its Types from here, if it has none: an
	// inbox refuses a subscription that lacks one of them. FanOut ignores events of other types. Resend
	// reads the log, which also has internal events, so Resend fails without Types.
	//
	// Defaults to none: FanOut accepts deliveries for every event that its subscription gets.
	Types []string

	// AcceptOnly says that this process only accepts deliveries. Other processes, whose Sender has
	// the same Name, make the deliveries.
	AcceptOnly bool

	// Workers is how many deliveries run at the same time in this process. Accounts share them: one
	// account can use half of them, two can use two thirds. Accounts share the memory for events
	// (PullBytes of inbox.Config) in the same way.
	//
	// Defaults to 64.
	Workers int

	// InFlight is how many deliveries to one endpoint may run at the same time in this process. An
	// endpoint that fails gets one delivery at a time.
	//
	// Defaults to 4.
	InFlight int

	// Timeout limits one attempt, from the DNS lookup until the HTTP status arrives. The lookup and
	// the connection together may take half of Timeout.
	//
	// Defaults to 20 seconds.
	Timeout time.Duration

	// AllowedPrefixes are ranges of addresses that are not public and to which webhooks may go, on
	// any port: for instance 10.1.2.0/24, for your own services. Customers who may add endpoints
	// can then reach these addresses.
	//
	// Defaults to none: webhooks go only to public addresses, on port 443.
	AllowedPrefixes []netip.Prefix

	// RootCAs are the authorities whose certificates the sender trusts.
	//
	// Defaults to the authorities of the system.
	RootCAs *x509.CertPool

	// Resolver looks up the names of endpoints' hosts.
	//
	// Defaults to net.DefaultResolver.
	Resolver *net.Resolver

	// Logger receives a line when an endpoint begins to fail, works again or is disabled, and faults.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider

	// TracerProvider receives a span for each attempt.
	//
	// Defaults to the global provider of OpenTelemetry.
	TracerProvider trace.TracerProvider
}

// Standard Webhooks recommends this schedule: ten attempts, the first at once, and the last after
// 75 hours and 35 minutes. Backoff.Delay adds up to 20 % to each wait, at random.
const sendAttempts = 10

func sendSchedule() postroom.Backoff {
	return postroom.Backoff{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// disableAfter is how long an endpoint may fail, without any success, until a sender disables it.
const disableAfter = 5 * 24 * time.Hour

// unsentWait is how long an event waits if it was not sent because of a fault on our side.
const unsentWait = 15 * time.Second

// alike is the VendorWindow of a delivery's step: how long receivers recognise a webhook-id. It is
// very long, because a receiver must recognise a repeated request by its webhook-id, even if the
// request comes very late.
const alike = 10 * 365 * 24 * time.Hour

func (c SenderConfig) defaults() SenderConfig {
	c.Workers = cmp.Or(c.Workers, 64)
	c.InFlight = cmp.Or(c.InFlight, 4)
	c.Timeout = cmp.Or(c.Timeout, 20*time.Second)
	c.Logger = guard.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

func (c SenderConfig) validate() error {
	var faults []error
	if c.InFlight < 1 {
		faults = append(faults, fmt.Errorf("config: InFlight is %d, want at least 1", c.InFlight))
	}
	if c.Timeout < time.Millisecond || c.Timeout > time.Minute {
		faults = append(faults, fmt.Errorf("config: Timeout is %s, want 1ms to 1m", c.Timeout))
	}
	for _, t := range c.Types {
		if !isEventType(t) {
			faults = append(faults, fmt.Errorf("config: Types: %.100q is not a valid event type", t))
		}
	}
	if c.AccountHeader != "" && (postroom.Event{Type: "a", Headers: map[string]string{c.AccountHeader: "a"}}).Validate() != nil {
		faults = append(faults, fmt.Errorf("config: AccountHeader: %.100q is not a header that an event can have", c.AccountHeader))
	}
	for _, p := range c.AllowedPrefixes {
		if !p.IsValid() || p != p.Masked() {
			faults = append(faults, fmt.Errorf("config: AllowedPrefixes: %s is not a prefix, or has bits behind it", p))
		}
	}
	return errors.Join(faults...)
}

// Sender delivers events to endpoints in the format of Standard Webhooks. It is safe for concurrent
// use.
type Sender struct {
	cfg       SenderConfig
	endpoints *Endpoints
	in        *inbox.Inbox
	intake    *inbox.Intake
	err       error // the fault of the config
	out       *outbound.Transport
	lanes     *lanes.Lanes
	schedule  postroom.Backoff
	delivered metric.Int64Counter
	filter    *filters.Filter
	lines     repeat.Lines
}

// NewSender registers the external handler that delivers, and returns a sender, which has its endpoints
// in the schema of the inbox. The inbox runs the handler. NewSender does no I/O and returns no error:
// [Sender.Check] returns the faults of the config. The inbox calls Check before it starts. Like
// inbox.HandleExternal, NewSender panics if the inbox has the handler already.
func NewSender(in *inbox.Inbox, cfg SenderConfig) *Sender {
	cfg = cfg.defaults()
	pool, name := in.Tables()
	s := &Sender{
		cfg: cfg, endpoints: NewEndpoints(pool, EndpointsConfig{Schema: name}), in: in, schedule: sendSchedule(),
		delivered: telemetry.Counter(telemetry.Meter(cfg.MeterProvider), telemetry.WebhookDelivered, "{attempt}", "Attempts to deliver webhooks, by outcome."),
	}
	s.lanes = lanes.New(cfg.Workers, cfg.InFlight, func() int { return s.intake.Memory() })
	s.out = outbound.NewTransport(outbound.Config{
		Next: newTransport(cfg), Attempts: 1, AttemptTimeout: cfg.Timeout, Total: cfg.Timeout, Logger: cfg.Logger,
		//guard:webhook-no-breaker remove
		Breaker: outbound.Breaker{Off: true}, Budget: outbound.Budget{Off: true}, // these work for a host, which may have endpoints of several customers; the sender has pauses and lanes for each endpoint instead
		TracerProvider: cfg.TracerProvider, MeterProvider: noop.NewMeterProvider(), // no metrics of outbound: they would contain the names of customers' hosts
	})
	s.filter = filters.New(pool, cmp.Or(s.endpoints.schema, schema.DefaultName), filters.Sender, cfg.Name, cfg.Logger)
	if err := errors.Join(cfg.validate(), s.endpoints.err); err != nil {
		s.err = postroom.Unrecoverable(fmt.Errorf("webhook: %w", err))
	} else {
		measureDisabled(s)
	}
	sub := inbox.Subscription{
		Name: cfg.Name, Workers: cfg.Workers, DedupeKey: dedupeKey, Attempts: sendAttempts, Schedule: s.schedule,
		Timeout: cfg.Timeout + 10*time.Second, VendorWindow: alike,
		Pause: inbox.Pause{Off: true}, // one endpoint that fails must not stop the deliveries to all endpoints
	}
	if cfg.AcceptOnly {
		in.Declare(sub)
	} else {
		in.HandleExternal(sub, s.deliver)
	}
	//guard:webhook-faulty-sender-is-refused 3 = func(context.Context, *inbox.Intake) error { return nil }
	s.intake = in.AddIntake(cfg.Name, cfg.Name, func(ctx context.Context, _ *inbox.Intake) error { return s.Check(ctx) })
	s.intake.Harmless() // a hanging delivery would otherwise stop all handlers of a process after others died
	return s
}

// dedupeKey identifies a delivery: an event and an endpoint. The event keeps its source and id, so
// that operators can find it by these, and so that the id can be the webhook-id. The id of an
// endpoint, a source and an id of an event contain no space.
func dedupeKey(ev postroom.Event) string { return ev.Key + " " + ev.Source + " " + ev.ID }

// faultyWait is how long an event waits if the config is faulty. The event loses no attempt, so that
// it is still due when a process with a correct config runs.
const faultyWait = time.Minute

// Check returns the faults of the config, and an error if the database lacks the tables that the
// sender needs. Faults of the config match postroom.ErrUnrecoverable. An inbox calls Check, also one
// that has only FanOut as a handler: then Check returns an error if that inbox has another schema.
func (s *Sender) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	//guard:webhook-fan-out-has-the-schema-of-its-sender false
	if err := sameschema.Check(ctx, "the inbox of the webhook sender", s.endpoints.schema); err != nil {
		return err
	}
	return s.endpoints.Check(ctx)
}

// fanOut is the handler of FanOut.
type fanOut struct{ *Sender }

// FanOut returns a transactional handler. In its transaction, it accepts a delivery for each
// endpoint that is enabled, belongs to the event's account and gets the event's type. If
// SenderConfig.Types is set, the subscription needs no Types, and FanOut ignores events of other
// types. If such a FanOut reads no stream, inbox.Accept refuses events of other types. If
// SenderConfig.AccountHeader is set, FanOut counts and logs an event without an account, which no
// endpoint gets. FanOut itself sends nothing, so an endpoint that hangs does not delay FanOut.
//
// An endpoint that is disabled at that moment gets the event only if you call [Sender.Resend].
func (s *Sender) FanOut() postroom.Handler { return fanOut{s} }

// Types returns SenderConfig.Types. A subscription without Types takes them from here.
func (s fanOut) Types() []string { return s.cfg.Types }

// CheckSubscription returns an error if the subscription lacks a type of SenderConfig.Types: no
// endpoint would get events of that type. The inbox calls it.
func (s fanOut) CheckSubscription(types []string, _ string) error {
	if types == nil { // the subscription has all types of its subjects, or accepts all types
		return nil
	}
	var faults []error
	for _, t := range s.cfg.Types {
		//guard:webhook-fanned-out-types-are-subscribed false
		if !slices.Contains(types, t) {
			faults = append(faults, fmt.Errorf("webhook: SenderConfig.Types has %s, which Types of the subscription lacks", t))
		}
	}
	return errors.Join(faults...)
}

// Handle accepts the deliveries of an event.
func (s fanOut) Handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	if s.err != nil {
		return postroom.Snooze(faultyWait, s.err)
	}
	//guard:webhook-types-of-fanned-out 2 false
	if len(s.cfg.Types) > 0 && !slices.Contains(s.cfg.Types, ev.Type) {
		s.filter.Note(ctx, ev.Type, filters.Excluded)
		return nil
	}
	account := s.accountOf(ev)
	//guard:webhook-event-without-an-account-goes-nowhere 2 false
	if account == "" && s.cfg.AccountHeader != "" {
		s.filter.Note(ctx, ev.Type, filters.Unwanted)
		s.count(ctx, "no_account")
		s.lines.Warn(ctx, s.cfg.Logger, "webhook not sent: its event has no account", fmt.Errorf("an event of type %s lacks header %s", ev.Type, s.cfg.AccountHeader),
			"handler", s.cfg.Name, "source", ev.Source, "event_id", ev.ID)
		return nil
	}
	rows, _ := tx.Query(ctx, s.endpoints.sql.Matching, account, ev.Type) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("webhook: find the endpoints of an event: %w", s.endpoints.explain(err))
	}
	if len(ids) == 0 {
		s.filter.Note(ctx, ev.Type, filters.Unwanted)
		return nil
	}
	s.filter.Note(ctx, ev.Type, filters.Taken)
	//guard:webhook-bytes-of-fanned-out 2 = @2
	for some := range slices.Chunk(ids, min(max(bytesAtOnce/size(ev), 1), acceptAtOnce)) {
		all := make([]inbox.Acceptance, len(some))
		for i, id := range some {
			all[i] = s.acceptance(ev, id)
		}
		if _, err := s.in.AcceptTx(ctx, tx, all...); err != nil {
			return fmt.Errorf("webhook: accept deliveries: %w", err)
		}
	}
	return nil
}

// One statement stores at most acceptAtOnce deliveries and at most bytesAtOnce bytes, or one larger
// delivery. So a large event for many endpoints does not fill the memory.
const (
	acceptAtOnce = 1000
	bytesAtOnce  = 4 << 20
)

// size returns about how many bytes an event has. It is at least 1.
func size(ev postroom.Event) int {
	n := 1 + len(ev.Data)
	for name, value := range ev.Headers {
		n += len(name) + len(value)
	}
	return n
}

func (s *Sender) accountOf(ev postroom.Event) string {
	if s.cfg.AccountHeader == "" {
		return ""
	}
	for name, value := range ev.Headers {
		//guard:webhook-account-header-in-any-case = @ && name == s.cfg.AccountHeader
		if strings.EqualFold(name, s.cfg.AccountHeader) { // an event has no two names that differ only in case
			return value
		}
	}
	return ""
}

// acceptance returns the delivery of an event to an endpoint.
func (s *Sender) acceptance(ev postroom.Event, endpoint string) inbox.Acceptance {
	ev.Key, ev.NotBefore = endpoint, time.Time{}
	if ev.Time.IsZero() { // the body contains the time, and must be the same in each attempt
		ev.Time = ev.LoggedAt
	}
	return inbox.Acceptance{Handler: s.cfg.Name, Event: ev}
}
