package main

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/postroom/postroom/internal/telemetry"
)

// meters reads Postroom's metrics. A service would send the same metrics to its collector. The
// example reads the metrics when it needs them.
type meters struct {
	reader   *sdk.ManualReader
	provider *sdk.MeterProvider
}

func newMeters() *meters {
	reader := sdk.NewManualReader()
	return &meters{reader: reader, provider: sdk.NewMeterProvider(sdk.WithReader(reader))}
}

// counts are the values of the metrics that the example needs.
type counts struct {
	published       int64 // events that the broker acknowledged
	late            int64 // events that became visible to the relay after later events
	charge, tallied deliveryCounts
}

// deliveryCounts are the outcomes of the deliveries to one handler.
type deliveryCounts struct {
	done       int64 // the handler ran, and its transaction committed
	suppressed int64 // the event was decided before, so this delivery had no effect
	failed     int64 // the event will be delivered again
}

func (m *meters) read(ctx context.Context) (counts, error) {
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(ctx, &all); err != nil {
		return counts{}, err
	}
	var c counts
	for _, scope := range all.ScopeMetrics {
		for _, instrument := range scope.Metrics {
			sum, ok := instrument.Data.(metricdata.Sum[int64])
			if !ok {
				continue
			}
			for _, point := range sum.DataPoints {
				c.add(instrument.Name, point.Attributes, point.Value)
			}
		}
	}
	return c, nil
}

func (c *counts) add(instrument string, attributes attribute.Set, n int64) {
	outcome, _ := attributes.Value(telemetry.Outcome)
	handler, _ := attributes.Value(telemetry.Handler)
	switch instrument {
	case telemetry.RelayLate:
		c.late += n
	case telemetry.RelayEvents:
		// "duplicate": the stream had the event already, because an earlier acknowledgement was
		// lost.
		if outcome.AsString() == "stored" || outcome.AsString() == "duplicate" {
			c.published += n
		}
	case telemetry.InboxDelivered:
		h := &c.charge
		if handler.AsString() == analyticsCount {
			h = &c.tallied
		}
		switch outcome.AsString() {
		case "done":
			h.done += n
		case "duplicate":
			h.suppressed += n
		case "failed":
			h.failed += n
		}
	}
}
