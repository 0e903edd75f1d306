package inbox

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/internal/telemetry"
)

// outcome is how a delivery ended.
type outcome string

const (
	done        outcome = "done"        // handled and committed
	duplicate   outcome = "duplicate"   // decided before, acknowledged
	conflict    outcome = "conflict"    // decided before, for another content
	skipped     outcome = "skipped"     // of a type that the handler does not take
	undecodable outcome = "undecodable" // no event
	failed      outcome = "failed"      // the handler failed; delivered again later
	released    outcome = "released"    // handed back at shutdown
)

// metrics are the instruments of an inbox.
type metrics struct {
	delivered metric.Int64Counter
	critical  metric.Float64Histogram
}

func newMetrics(provider metric.MeterProvider) *metrics {
	m := telemetry.Meter(provider)
	return &metrics{
		delivered: telemetry.Counter(m, telemetry.InboxDelivered, "{delivery}", "How deliveries ended."),
		critical:  telemetry.Seconds(m, telemetry.InboxCritical, "From the producer's log to the committed effect."),
	}
}

// handlerMetrics are the instruments of one handler, with its attributes made
// once.
type handlerMetrics struct {
	*metrics

	handler  metric.MeasurementOption
	outcomes map[outcome]metric.MeasurementOption
}

func (m *metrics) of(handler string) handlerMetrics {
	name := telemetry.Handler.String(handler)
	h := handlerMetrics{metrics: m, handler: telemetry.With(name), outcomes: make(map[outcome]metric.MeasurementOption)}
	for _, o := range []outcome{done, duplicate, conflict, skipped, undecodable, failed, released} {
		h.outcomes[o] = telemetry.With(name, telemetry.Outcome.String(string(o)))
	}
	return h
}

// ended counts a delivery; loggedAt is when its event was written, where known.
func (m handlerMetrics) ended(ctx context.Context, o outcome, loggedAt time.Time) {
	m.delivered.Add(ctx, 1, m.outcomes[o])
	if o == done && !loggedAt.IsZero() {
		m.critical.Record(ctx, time.Since(loggedAt).Seconds(), m.handler)
	}
}
