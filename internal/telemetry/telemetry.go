// Package telemetry has the names of all metrics, attributes and spans. They are in one place,
// because they follow OpenTelemetry's messaging conventions, which still change.
package telemetry

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of all meters and tracers.
const Scope = "github.com/postroom/postroom"

// schemaURL names the version of the semantic conventions that the names follow.
const schemaURL = "https://opentelemetry.io/schemas/1.43.0"

// Names of instruments. docs/reference/metrics.md explains each instrument.
const (
	SentMessages      = "messaging.client.sent.messages"
	OperationDuration = "messaging.client.operation.duration"

	RelayLagAge      = "postroom.relay.lag.age"
	RelayLagEvents   = "postroom.relay.lag.events"
	RelayCommitToAck = "postroom.relay.commit_to_ack.duration"
	RelayEvents      = "postroom.relay.events"
	RelayFlushSize   = "postroom.relay.flush.size"
	RelayLeader      = "postroom.relay.leader"
	RelayTakeovers   = "postroom.relay.takeovers"
	RelayFenced      = "postroom.relay.fenced"
	RelayPaused      = "postroom.relay.paused"
	RelayLate        = "postroom.relay.late.events"
	RelayWriter      = "postroom.relay.oldest_transaction.age"
	RelayDataLost    = "postroom.relay.data_lost"
	RelayRepaired    = "postroom.relay.repaired.events"
	RelayRepublished = "postroom.relay.republished.events"

	LogAppended = "postroom.log.appended"
	HeldEvents  = "postroom.held.events"
	HeldOldest  = "postroom.held.oldest.age"
	HeldKeys    = "postroom.held.keys"
	HeldOverdue = "postroom.held.overdue.age"
	DeadEvents  = "postroom.dead.events"

	RetentionLag = "postroom.retention.lag.age"
	RowsRemoved  = "postroom.rows.removed"
	TableSize    = "postroom.table.size"
	CheckFailed  = "postroom.check.failed"

	ConsumedMessages = "messaging.client.consumed.messages"
	ProcessDuration  = "messaging.process.duration"

	InboxDelivered  = "postroom.inbox.deliveries"
	InboxCritical   = "postroom.inbox.critical_time"
	InboxInFlight   = "postroom.inbox.in_flight"
	InboxCapacity   = "postroom.inbox.capacity"
	InboxPending    = "postroom.inbox.pending"
	InboxPaused     = "postroom.inbox.paused"
	InboxAckPending = "postroom.inbox.ack_pending"
	InboxLeaseLost  = "postroom.inbox.lease_lost"
	InboxDataLost   = "postroom.inbox.data_lost"

	HTTPDuration     = "http.client.request.duration"
	OutboundAttempts = "postroom.outbound.attempts"
	OutboundRetries  = "postroom.outbound.retries"
	OutboundEnded    = "postroom.outbound.given_up"
	OutboundDelay    = "postroom.outbound.retry.delay"
	OutboundBreaker  = "postroom.outbound.breaker.state"

	WebhookReceived  = "postroom.webhook.received"
	WebhookDelivered = "postroom.webhook.delivered"
	WebhookDisabled  = "postroom.webhook.endpoints.disabled"

	MeasuredAge = "postroom.measured.age"

	SagaStep      = "postroom.saga.step.duration"
	SagaIgnored   = "postroom.saga.ignored"
	SagaInstances = "postroom.saga.instances"
	SagaOldest    = "postroom.saga.oldest.age"

	IdempotentCreated    = "idempotent.created"
	IdempotentReplayed   = "idempotent.replayed"
	IdempotentConflict   = "idempotent.conflict"
	IdempotentInProgress = "idempotent.in_progress"
	IdempotentStoreError = "idempotent.store_error"
	IdempotentTakeover   = "idempotent.takeover"
)

// Keys of attributes. An attribute of a metric has few possible values, so that there are few time
// series. The key of an event or of a request, an id, or the text of an error may be a value only
// in an attribute of a span.
const (
	Outcome   = attribute.Key("outcome")
	Handler   = attribute.Key("handler")
	Reason    = attribute.Key("reason")
	Lane      = attribute.Key("lane")
	Source    = attribute.Key("source")
	Table     = attribute.Key("table")
	Check     = attribute.Key("check")
	Saga      = attribute.Key("saga")
	Step      = attribute.Key("step")
	State     = attribute.Key("state")
	ErrorType = attribute.Key("error.type")

	System        = attribute.Key("messaging.system")
	Operation     = attribute.Key("messaging.operation.name")
	OperationType = attribute.Key("messaging.operation.type")
	Destination   = attribute.Key("messaging.destination.name")
	BatchCount    = attribute.Key("messaging.batch.message_count")
	MessageID     = attribute.Key("messaging.message.id")
	Group         = attribute.Key("messaging.consumer.group.name")
	Conversation  = attribute.Key("messaging.message.conversation_id")

	EventID     = attribute.Key("cloudevents.event_id")
	EventSource = attribute.Key("cloudevents.event_source")
	EventType   = attribute.Key("cloudevents.event_type")
	Attempt     = attribute.Key("postroom.attempt")
	RunOutcome  = attribute.Key("postroom.outcome")

	Server = attribute.Key("server.address")
	Method = attribute.Key("http.request.method")
	Resend = attribute.Key("http.request.resend_count")
	Status = attribute.Key("http.response.status_code")
	Key    = attribute.Key("postroom.key") // only on spans, never on metrics
	Scoped = attribute.Key("scope")
)

// NATS is the name of the messaging system.
const NATS = "nats"

// Meter returns the meter of the given provider, or of the global provider if the given one is nil.
func Meter(provider metric.MeterProvider) metric.Meter {
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	return provider.Meter(Scope, metric.WithSchemaURL(schemaURL))
}

// Tracer returns the tracer of the given provider, or of the global provider if it is nil.
func Tracer(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer(Scope, trace.WithSchemaURL(schemaURL))
}

// Counter returns a counter with the given unit. It panics if it cannot create the instrument. The
// only possible cause is an invalid name. Each test that runs the calling code finds this fault.
func Counter(m metric.Meter, name, unit, about string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	if err != nil {
		panic(fmt.Sprintf("telemetry: %s: %v", name, err))
	}
	return c
}

// Gauge returns a gauge. Its value comes from a callback, which OpenTelemetry calls when it reads
// the metrics. Like Counter, Gauge panics if it cannot create the instrument.
func Gauge(m metric.Meter, name, unit, about string) metric.Float64ObservableGauge {
	g, err := m.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
	if err != nil {
		panic(fmt.Sprintf("telemetry: %s: %v", name, err))
	}
	return g
}

// Switch returns a gauge whose value is 0 or 1. Like Counter, it can panic. The gauge has no unit:
// with the unit 1, an exporter for Prometheus would append _ratio to its name.
func Switch(m metric.Meter, name, about string) metric.Float64ObservableGauge {
	return Gauge(m, name, "", about)
}

// Level returns a gauge that the caller sets when the value changes. Like Counter, it can panic.
func Level(m metric.Meter, name, unit, about string) metric.Int64Gauge {
	g, err := m.Int64Gauge(name, metric.WithUnit(unit), metric.WithDescription(about))
	if err != nil {
		panic(fmt.Sprintf("telemetry: %s: %v", name, err))
	}
	return g
}

// ObservableCounter returns a counter. Its sum comes from a callback, which OpenTelemetry calls
// when it reads the metrics. Like Counter, it can panic.
func ObservableCounter(m metric.Meter, name, unit, about string) metric.Int64ObservableCounter {
	c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
	if err != nil {
		panic(fmt.Sprintf("telemetry: %s: %v", name, err))
	}
	return c
}

// Sizes returns a histogram whose values are numbers of events, with buckets from 1 to 1,000.
func Sizes(m metric.Meter, name, unit, about string) metric.Int64Histogram {
	h, err := m.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000))
	if err != nil {
		panic(fmt.Sprintf("telemetry: %s: %v", name, err))
	}
	return h
}

// Seconds returns a histogram of seconds with buckets from 1 ms to 10 minutes.
func Seconds(m metric.Meter, name, about string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600))
	if err != nil {
		panic(fmt.Sprintf("telemetry: %s: %v", name, err))
	}
	return h
}

// With returns a measurement option for a set of attributes. To build the set takes time, so make
// the option once and use it for each measurement.
func With(attributes ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}
