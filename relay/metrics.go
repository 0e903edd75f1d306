package relay

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/internal/telemetry"
)

// metrics counts what the relay did. Outcomes are counted once for each
// recording, not for each event.
type metrics struct {
	events, late, takeovers metric.Int64Counter

	stored, duplicate, retried, held, dead metric.MeasurementOption
}

func newMetrics(provider metric.MeterProvider) *metrics {
	m := telemetry.Meter(provider)
	outcome := func(s string) metric.MeasurementOption { return telemetry.With(telemetry.Outcome.String(s)) }
	return &metrics{
		events:    telemetry.Counter(m, telemetry.RelayEvents, "{event}", "Outcomes of publishing."),
		late:      telemetry.Counter(m, telemetry.RelayLate, "{event}", "Events that became visible after later ones."),
		takeovers: telemetry.Counter(m, telemetry.RelayTakeovers, "{takeover}", "Terms that this relay began."),
		stored:    outcome("stored"),
		duplicate: outcome("duplicate"),
		retried:   outcome("retried"),
		held:      outcome("held"),
		dead:      outcome("dead"),
	}
}

func (m *metrics) tookOver(ctx context.Context) { m.takeovers.Add(ctx, 1) }

func (m *metrics) published(ctx context.Context, c counts) {
	add := func(n int64, outcome metric.MeasurementOption) {
		if n > 0 {
			m.events.Add(ctx, n, outcome)
		}
	}
	add(c.stored, m.stored)
	add(c.duplicate, m.duplicate)
	add(c.retried, m.retried)
	add(c.held, m.held)
	add(c.dead, m.dead)
}

// counts are outcomes since they were last reported.
type counts struct{ stored, duplicate, retried, held, dead int64 }
