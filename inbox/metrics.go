package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/telemetry"
)

// metrics are the instruments of an inbox.
type metrics struct {
	meter     metric.Meter
	delivered metric.Int64Counter
	consumed  metric.Int64Counter
	critical  metric.Float64Histogram
	process   metric.Float64Histogram
	deaths    metric.Int64Counter
	leaseLost metric.Int64Counter
	removed   metric.Int64Counter
	lost      metric.Int64Counter
	ledger    metric.MeasurementOption
}

func newMetrics(provider metric.MeterProvider) *metrics {
	m := telemetry.Meter(provider)
	return &metrics{
		meter:     m,
		delivered: telemetry.Counter(m, telemetry.InboxDelivered, "{delivery}", "How deliveries, and runs from held, ended."),
		consumed:  telemetry.Counter(m, telemetry.ConsumedMessages, "{message}", "Messages that were delivered."),
		critical:  telemetry.Seconds(m, telemetry.InboxCritical, "From the producer's log to the committed effect."),
		process:   telemetry.Seconds(m, telemetry.ProcessDuration, "How long handlers took."),
		deaths:    telemetry.Counter(m, telemetry.DeadEvents, "{event}", "Events that became dead."),
		leaseLost: telemetry.Counter(m, telemetry.InboxLeaseLost, "{event}", "Held events that another process had claimed meanwhile."),
		removed:   telemetry.Counter(m, telemetry.RowsRemoved, "{row}", "Rows that were removed because of their age."),
		lost:      telemetry.Counter(m, telemetry.InboxDataLost, "{loss}", "How often a stream did not have what it had, or should have had."),
		ledger:    telemetry.With(telemetry.Table.String("inbox")),
	}
}

// handlerMetrics are the instruments of one handler, with its attributes made
// once.
type handlerMetrics struct {
	*metrics

	name     string
	handler  metric.MeasurementOption
	stream   metric.MeasurementOption
	outcomes map[delivery.Outcome]metric.MeasurementOption
	ranWell  metric.MeasurementOption
}

func (m *metrics) of(handler, stream string) handlerMetrics {
	name := telemetry.Handler.String(handler)
	group, system := telemetry.Group.String(handler), telemetry.System.String(telemetry.NATS)
	h := handlerMetrics{
		metrics: m, name: handler, handler: telemetry.With(name), outcomes: make(map[delivery.Outcome]metric.MeasurementOption),
		stream:  telemetry.With(system, telemetry.Operation.String("fetch"), telemetry.Destination.String(stream), group),
		ranWell: telemetry.With(system, telemetry.Operation.String("process"), group),
	}
	for _, o := range []delivery.Outcome{delivery.Done, delivery.Duplicate, delivery.Held, delivery.Dead, delivery.Conflict, delivery.Skipped, delivery.Released} {
		h.outcomes[o] = telemetry.With(name, telemetry.Outcome.String(string(o)))
	}
	return h
}

// ended counts a delivery; loggedAt is when its event was written, where known.
func (m handlerMetrics) ended(ctx context.Context, o delivery.Outcome, loggedAt time.Time) {
	m.delivered.Add(ctx, 1, m.outcomes[o])
	if o == delivery.Done && !loggedAt.IsZero() {
		m.critical.Record(ctx, time.Since(loggedAt).Seconds(), m.handler)
	}
}

// died counts an event that became dead.
func (m handlerMetrics) died(ctx context.Context, class string) {
	m.deaths.Add(ctx, 1, metric.WithAttributes(telemetry.Handler.String(m.name), telemetry.ErrorType.String(class)))
}

// ran notes that a handler returned, and ends its span.
func (m handlerMetrics) ran(ctx context.Context, span trace.Span, took time.Duration, err error) {
	options := m.ranWell
	if err != nil {
		options = telemetry.With(telemetry.System.String(telemetry.NATS), telemetry.Operation.String("process"),
			telemetry.Group.String(m.name), telemetry.ErrorType.String(errorType(err)))
	}
	m.process.Record(ctx, took.Seconds(), options)
	endSpan(span, err)
}

// errorType is the class of an error, from a closed set.
func errorType(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return delivery.FailureOf(err).Class
}
