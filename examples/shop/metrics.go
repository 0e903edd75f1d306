package main

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/postroom/postroom/internal/telemetry"
)

// meters reads Postroom's metrics. A service would send the same instruments to its collector;
// here they are read when they are needed.
type meters struct {
	reader   *sdk.ManualReader
	provider *sdk.MeterProvider
}

func newMeters() *meters {
	reader := sdk.NewManualReader()
	return &meters{reader: reader, provider: sdk.NewMeterProvider(sdk.WithReader(reader))}
}

// counts are the instruments that matter here.
type counts struct {
	published       int64 // events that the broker acknowledged
	late            int64 // of these: visible to the relay after later ones
	charge, tallied deliveryCounts
}

// deliveryCounts are the outcomes of the deliveries to one handler.
type deliveryCounts struct {
	done       int64 // handled and committed
	suppressed int64 // decided before, and acknowledged without an effect
	failed     int64 // to be delivered again
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
		// "duplicate": the acknowledgement was lost, and the event stored before.
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
