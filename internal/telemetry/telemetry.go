// Package telemetry holds the names under which Postroom reports itself, in one
// place, because OpenTelemetry's messaging conventions still change.
package telemetry

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Scope names the meter of every instrument.
const Scope = "github.com/postroom/postroom"

// Instruments. docs/operations.md says what each answers.
const (
	RelayEvents    = "postroom.relay.events"
	RelayLate      = "postroom.relay.late.events"
	RelayTakeovers = "postroom.relay.takeovers"
	InboxDelivered = "postroom.inbox.deliveries"
	InboxCritical  = "postroom.inbox.critical_time"
)

// Attributes. Their values come from closed sets: never a key, an id or a text
// of an error.
const (
	Outcome = attribute.Key("outcome")
	Handler = attribute.Key("handler")
)

// Meter returns the meter of the given provider, or of the global one where it
// is nil.
func Meter(provider metric.MeterProvider) metric.Meter {
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	return provider.Meter(Scope)
}

// Counter returns a counter of the given unit. An instrument that cannot be
// made, which only a fault of the name can cause, panics in every test.
func Counter(m metric.Meter, name, unit, about string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	if err != nil {
		panic(fmt.Sprintf("telemetry: %s: %v", name, err))
	}
	return c
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

// With returns a measurement option for a set of attributes, made once and used
// for each measurement.
func With(attributes ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}
