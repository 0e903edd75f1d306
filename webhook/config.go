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

// ChangePolicy says how to treat a request with a known id and another body.
type ChangePolicy int

// Policies for a request with a known id and another body.
const (
	// ChangedDefault is IgnoreChanged for a scheme whose [Message] Varies, as Stripe's does, and
	// HoldChanged for all other schemes.
	ChangedDefault ChangePolicy = iota

	// HoldChanged keeps the event as a conflict: it is dead, and an operator decides.
	HoldChanged

	// IgnoreChanged drops the event, like a duplicate.
	IgnoreChanged
)

// Config says what a [Receiver] receives. Source, Handler, and Scheme or Choose are required.
//
// Wide because each field is an independent choice.
type Config struct {
	// Source is the source of the events. An id is unique within its source, so give each endpoint
	// at the provider its own source, such as "/webhooks/acme". If Choose is set, Source is the
	// beginning of the tenants' sources. Required.
	Source string

	// Handler is the handler of the events, registered with the inbox by Handle, HandleExternal or
	// Declare. Required.
	Handler string

	// Scheme verifies requests. Required, unless Choose is set.
	Scheme Scheme

	// Choose returns the tenant that a request names, for instance in its path, and the scheme with
	// the tenant's secrets. The source of the tenant's events is Source + "/" + tenant, escaped as
	// url.PathEscape does, even if Event sets another source. So no tenant can use an id of another
	// tenant, and handlers know whose secret verified an event. An empty tenant is answered 500.
	//
	// Choose may read the body. The request is not verified yet. For an unknown tenant it returns
	// [ErrUnknownTenant]: the sender gets the same answer as for a wrong signature. The answer
	// takes the same time too, because the receiver still verifies the request, with Scheme or the
	// last scheme that Choose returned, and ignores the result. Other errors are answered 503.
	// Choose may be called concurrently, and its context ends after Patience.
	Choose func(r *http.Request) (tenant string, s Scheme, err error)

	// Key returns an event's key. It may be called concurrently.
	//
	// Defaults to no key.
	Key func(ev postroom.Event) string

	// Event returns the event for a verified request. If it leaves Source or ID empty, the receiver
	// sets them. If it fails, the sender gets 500 and sends the request again. It may be called
	// concurrently.
	//
	// Defaults to an event with the provider's id, the type "<scheme>.<provider's type>", the time
	// of signing, and the body as data. In the type, '_' replaces characters that a type must not
	// have.
	Event func(m Message, h http.Header, body []byte) (postroom.Event, error)

	// Types are the event types to store, such as "stripe.charge.succeeded". '*' matches one part
	// between dots, '>' matches one or more parts at the end. Requests of other types are answered
	// 200 and not stored.
	//
	// Defaults to all.
	Types []string

	// Changed says how to treat a request with a known id and another body.
	//
	// Defaults to ChangedDefault.
	Changed ChangePolicy

	// MaxBody is the largest body, in bytes. A larger body is answered 413 before it is hashed.
	//
	// Defaults to postroom.MaxData (960 KiB), which is also the maximum.
	MaxBody int

	// Patience limits the time for the answer to a request, counted from when its body was read.
	// After that the answer is 503. Reading the body may take ten times as long.
	//
	// Defaults to 3 seconds.
	Patience time.Duration

	// Logger receives the reasons why requests are refused, and faults.
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

// ErrUnknownTenant is the error that [Config.Choose] returns for a tenant that does not exist.
var ErrUnknownTenant = errors.New("webhook: unknown tenant")

func (c Config) defaults() Config {
	c.MaxBody = cmp.Or(c.MaxBody, postroom.MaxData)
	c.Patience = cmp.Or(c.Patience, 3*time.Second)
	c.Logger = guard.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

func (c Config) validate() error {
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
	add(c.MaxBody < 0 || c.MaxBody > postroom.MaxData, "MaxBody is %d, want 1 to %d", c.MaxBody, postroom.MaxData)
	add(c.Patience < 0, "Patience is %s, want more than 0", c.Patience)
	return errors.Join(faults...)
}
