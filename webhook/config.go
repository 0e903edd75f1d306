package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
)

// ChangePolicy says what the receiver does with a request whose id is already stored, but with a
// different body.
type ChangePolicy int

// Policies for a request with a known id and another body.
const (
	// ChangedDefault means IgnoreChanged if the scheme sets Message.Varies, as [Stripe] does, and
	// HoldChanged if it does not.
	ChangedDefault ChangePolicy = iota

	// HoldChanged holds the event as a conflict: the event is dead, and an operator decides.
	HoldChanged

	// IgnoreChanged drops the event, like a duplicate.
	IgnoreChanged
)

// ReceiverConfig says what a [Receiver] receives. Source, Handler, and Scheme or Choose are required.
type ReceiverConfig struct {
	// Source is the source of the events. An id is unique within its source, so give each endpoint
	// that you set up at a provider its own source, such as "/webhooks/acme". If Choose is set, the
	// source of each tenant begins with Source. Required.
	Source string

	// Handler is the name of the events' handler. Register the handler with the inbox, by Handle,
	// HandleExternal or Declare. Required.
	Handler string

	// Scheme verifies requests. Required, unless Choose is set.
	Scheme Scheme

	// Choose returns the tenant that a request names, for instance in its path, and the scheme with
	// the tenant's secrets. The receiver appends "/" and the tenant, escaped by url.PathEscape, to
	// the source of each event, even to a source that the function Event set. So events of two
	// tenants may have the same id, and handlers know whose secret verified an event. For an empty
	// tenant the answer is 500. Return the name that you stored, and not the one in the request: if
	// your lookup ignores case, one tenant would have several sources. If the inbox has an event
	// under a name that differs only in case, and not under the name of the request, the answer is
	// 500: a captured request takes no effect again.
	//
	// Choose may read the body. The request is not verified yet. For an unknown tenant Choose
	// returns [ErrUnknownTenant]: the sender gets the same answer as for a wrong signature. The
	// answer takes the same time too: the receiver verifies the request with Scheme (if Scheme is
	// nil, with the last scheme that Choose returned), and ignores the result. For an error that
	// matches postroom.ErrUnrecoverable the answer is 500, and for other errors it is 503. Choose
	// may be called concurrently. The context of r ends after Patience.
	Choose func(r *http.Request) (tenant string, s Scheme, err error)

	// Key returns an event's key. It may be called concurrently.
	//
	// Defaults to no key.
	Key func(ev postroom.Event) string

	// Event returns the event for a verified request. If Event leaves Source or ID empty, the
	// receiver sets them. If Event returns an error, the sender gets 500 and sends the request
	// again. Event may be called concurrently.
	//
	// Defaults to an event with the provider's id, the type "<scheme>.<provider's type>", the time
	// of signing, and the body as data. In the type, '_' replaces characters that a type must not
	// have.
	Event func(m Message, h http.Header, body []byte) (postroom.Event, error)

	// Types are the event types to store, such as "stripe.charge.succeeded". '*' matches one part
	// between dots, '>' matches one or more parts at the end. The receiver answers 200 to requests
	// of other types, and does not store them. Check returns an error for a type that no event of
	// Scheme can have, or that the handler does not take. If no event of a request's scheme can have
	// one of the types, the answer is 500.
	//
	// Defaults to the types of the handler, if its subscription has Types or if it has a method
	// Types, as a postroom.Mux does. Otherwise defaults to all types.
	Types []string

	// Changed says what the receiver does with a request that has a known id and another body.
	//
	// Defaults to ChangedDefault.
	Changed ChangePolicy

	// MaxBody is the largest body, in bytes. A larger body is not verified: the answer is 413.
	//
	// Defaults to 2 MiB: a [Sender] makes a body of 1.3 MiB of the largest event that goes through a
	// broker, if its data is not JSON. The maximum is postroom.MaxAccepted (8 MiB).
	MaxBody int

	// Patience limits the time from the end of a request's body until the answer, including the time
	// of your functions. If this time is over, the answer is 503, and the functions go on. The body may
	// take ten times as long to arrive, even if the receiver does not read it. Patience is at most an
	// hour.
	//
	// Defaults to 3 seconds.
	Patience time.Duration

	// Logger receives a line for each refused request, with the reason, and for faults.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider

	// TracerProvider receives a span for each request.
	//
	// Defaults to the global provider of OpenTelemetry.
	TracerProvider trace.TracerProvider
}

// ErrUnknownTenant is the error that [ReceiverConfig.Choose] returns for a tenant that does not exist.
var ErrUnknownTenant = errors.New("webhook: unknown tenant")

const defaultBody = 2 << 20

func (c ReceiverConfig) defaults() ReceiverConfig {
	c.MaxBody = cmp.Or(c.MaxBody, defaultBody)
	c.Patience = cmp.Or(c.Patience, 3*time.Second)
	c.Logger = guard.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

func (c ReceiverConfig) validate() error {
	var faults []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("config: "+format, args...))
		}
	}
	if err := (postroom.Event{Type: "a", Source: c.Source}).Validate(); err != nil {
		add(true, "%w", err)
	}
	add(c.Source == "", "Source is required")
	add(c.Handler == "", "Handler is required")
	add(c.Scheme == nil && c.Choose == nil, "Scheme is required, unless Choose is set")
	for _, t := range c.Types {
		add(t == "", "Types has an empty type")
	}
	add(c.Changed < ChangedDefault || c.Changed > IgnoreChanged, "Changed is %d, want ChangedDefault, HoldChanged or IgnoreChanged", c.Changed)
	add(c.MaxBody < 0 || c.MaxBody > postroom.MaxAccepted, "MaxBody is %d, want 1 to %d", c.MaxBody, postroom.MaxAccepted)
	//guard:webhook-patience-has-a-limit 1.2 false
	add(c.Patience < 0 || c.Patience > time.Hour, "Patience is %s, want more than 0 and at most an hour", c.Patience)
	return errors.Join(faults...)
}
