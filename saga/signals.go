package saga

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/internal/telemetry"
)

// signals has the instruments of a saga.
type signals struct {
	steps  metric.Float64Histogram
	events metric.Int64Counter
}

func newSignals(provider metric.MeterProvider) *signals {
	m := telemetry.Meter(provider)
	return &signals{
		steps:  telemetry.Seconds(m, telemetry.SagaStep, "How long instances waited for a step, by the way it ended."),
		events: telemetry.Counter(m, telemetry.SagaIgnored, "{event}", "Events of an instance that changed nothing, by reason."),
	}
}

// ignored counts an event that changed nothing.
func (s *signals) ignored(ctx context.Context, saga string, why outcome) {
	s.events.Add(ctx, 1, telemetry.With(telemetry.Saga.String(saga), telemetry.Reason.String(string(why))))
}

// stepEnded records how long a step took. If history is empty, the event was an alarm that ended no
// step, and stepEnded records nothing.
func (s *signals) stepEnded(ctx context.Context, saga string, history []entry, took time.Duration) {
	if len(history) == 0 {
		return
	}
	first := history[0]
	s.steps.Record(ctx, took.Seconds(), telemetry.With(telemetry.Saga.String(saga), telemetry.Step.String(first.step), telemetry.Outcome.String(first.what)))
}
