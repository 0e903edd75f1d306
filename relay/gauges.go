package relay

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/telemetry"
)

// measureEvery is how often a leader measures its lag.
const measureEvery = 15 * time.Second

// gauges are instruments that are read when metrics are collected.
type gauges struct {
	age, events, leader, paused, check metric.Float64ObservableGauge
	held, heldAge, keys, overdue       metric.Float64ObservableGauge
	retention, size, writer            metric.Float64ObservableGauge
	sagas, sagaAge, measured           metric.Float64ObservableGauge
	appended                           metric.Int64ObservableCounter
	lane                               metric.MeasurementOption
	reasons                            map[eventlog.HeldReason]metric.MeasurementOption
	broker, stream, streamCheck        metric.MeasurementOption
	operator                           metric.MeasurementOption
}

// registerGauges registers the gauges of a relay. Call the returned function when Run ends.
func (r *Relay) registerGauges() (end func()) {
	m := r.metrics.meter
	g := &gauges{
		age:       telemetry.Gauge(m, telemetry.RelayLagAge, "s", "Age of the oldest event that is committed and not published."),
		events:    telemetry.Gauge(m, telemetry.RelayLagEvents, "{event}", "Events that are not published, computed from their numbers in the log."),
		leader:    telemetry.Switch(m, telemetry.RelayLeader, "1 while this relay leads."),
		paused:    telemetry.Switch(m, telemetry.RelayPaused, "1 while publishing waits for the broker, a stream or an operator."),
		check:     telemetry.Switch(m, telemetry.CheckFailed, "1 while the set-up is not as it should be."),
		held:      telemetry.Gauge(m, telemetry.HeldEvents, "{event}", "Events in held."),
		heldAge:   telemetry.Gauge(m, telemetry.HeldOldest, "s", "For how long the oldest held event has been held."),
		keys:      telemetry.Gauge(m, telemetry.HeldKeys, "{key}", "Keys that wait for a held event."),
		overdue:   telemetry.Gauge(m, telemetry.HeldOverdue, "s", "For how long a held event has been due."),
		retention: telemetry.Gauge(m, telemetry.RetentionLag, "s", "By how much the oldest event in the log is older than the retention."),
		writer:    telemetry.Gauge(m, telemetry.RelayWriter, "s", "For how long the oldest transaction has been open that wrote to the log."),
		size:      telemetry.Gauge(m, telemetry.TableSize, "By", "Size of a table with its indexes."),
		sagas:     telemetry.Gauge(m, telemetry.SagaInstances, "{instance}", "Instances of sagas that have not ended, counted up to 10,000. Stuck instances are counted among the 10,000 that have waited longest."),
		sagaAge:   telemetry.Gauge(m, telemetry.SagaOldest, "s", "For how long the oldest waiting instance of a saga has waited for a step without a deadline, or since a deadline."),
		measured:  telemetry.Gauge(m, telemetry.MeasuredAge, "s", "How old the other gauges are that are measured in the database."),
		lane:      telemetry.With(telemetry.Lane.String("outbox")),
		reasons:   make(map[eventlog.HeldReason]metric.MeasurementOption),
		broker:    telemetry.With(telemetry.Reason.String("broker")),
		stream:    telemetry.With(telemetry.Reason.String("stream")),
		operator:  telemetry.With(telemetry.Reason.String("operator")),

		streamCheck: telemetry.With(telemetry.Check.String("streams")),
	}
	for _, reason := range []eventlog.HeldReason{eventlog.HeldScheduled, eventlog.HeldRetry, eventlog.HeldKey, eventlog.HeldDead} {
		g.reasons[reason] = telemetry.With(telemetry.Handler.String("outbox"), telemetry.Reason.String(string(reason)))
	}
	g.appended = telemetry.ObservableCounter(m, telemetry.LogAppended, "{event}", "Places of the log that were handed out.")
	registration, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g.observe(o, r)
		return nil
	}, g.age, g.events, g.leader, g.paused, g.check, g.held, g.heldAge, g.keys, g.overdue, g.retention, g.size, g.writer, g.sagas, g.sagaAge, g.measured, g.appended)
	if err != nil {
		r.cfg.Logger.Error("gauges not registered", "error", err)
		return func() {}
	}
	return func() { _ = registration.Unregister() } // this fails only without a registration
}

// observe reports the gauges. Only a leader reports the lag: only a leader measures it.
func (g *gauges) observe(o metric.Observer, r *Relay) {
	h := r.Health()
	leads := h.State == Leading
	o.ObserveFloat64(g.leader, truth(leads), g.lane)
	o.ObserveFloat64(g.check, truth(len(h.Faults) > 0), g.streamCheck)
	o.ObserveFloat64(g.paused, truth(leads && !h.Connected), g.broker)
	o.ObserveFloat64(g.paused, truth(h.State == Paused), g.operator)
	o.ObserveFloat64(g.paused, truth(leads && len(h.UnavailableStreams) > 0), g.stream)
	if !leads {
		return
	}
	last := h.LagMeasuredAt
	if last.Before(h.Since) { // by an earlier term
		last = h.Since
	}
	o.ObserveFloat64(g.measured, time.Since(last).Seconds(), g.lane)
	if h.LagMeasuredAt.IsZero() {
		return
	}
	b := h.measured
	o.ObserveFloat64(g.age, b.Age.Seconds(), g.lane)
	o.ObserveFloat64(g.events, float64(b.Events), g.lane)
	o.ObserveInt64(g.appended, b.Appended)
	for reason, count := range b.Held {
		o.ObserveFloat64(g.held, float64(count.Events), g.reasons[reason])
		o.ObserveFloat64(g.heldAge, count.Age.Seconds(), g.reasons[reason])
	}
	o.ObserveFloat64(g.keys, float64(b.HeldKeys), telemetry.With(telemetry.Handler.String("outbox")))
	o.ObserveFloat64(g.overdue, b.Overdue.Seconds(), telemetry.With(telemetry.Handler.String("outbox")))
	if b.OldestWriterAge > 0 || b.HiddenWriters == 0 { // otherwise the age is not known
		o.ObserveFloat64(g.writer, b.OldestWriterAge.Seconds())
	}
	for table, bytes := range b.Bytes {
		o.ObserveFloat64(g.size, float64(bytes), telemetry.With(telemetry.Table.String(table)))
	}
	for _, s := range b.Sagas {
		name := telemetry.Saga.String(s.Saga)
		o.ObserveFloat64(g.sagas, float64(s.Running), telemetry.With(name, telemetry.State.String("running")))
		o.ObserveFloat64(g.sagas, float64(s.Compensating), telemetry.With(name, telemetry.State.String("compensating")))
		o.ObserveFloat64(g.sagas, float64(s.Stuck), telemetry.With(name, telemetry.State.String("stuck")))
		o.ObserveFloat64(g.sagaAge, s.Oldest.Seconds(), telemetry.With(name))
	}
	if keep := r.cfg.Retention; keep > 0 {
		o.ObserveFloat64(g.retention, max(0, b.OldestEventAge-keep).Seconds(), r.metrics.log)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// measure measures the lag again and again while the relay leads, until ctx ends.
func (r *Relay) measure(ctx context.Context) {
	failed := false
	for wait := measureEvery / 3; sleep.For(ctx, wait); wait = measureEvery {
		if r.Health().State != Leading {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, readTimeout)
		b, err := r.log.Lag(attempt)
		cancel()
		if err != nil {
			if ctx.Err() == nil && !failed {
				r.cfg.Logger.WarnContext(ctx, "lag not measured: the gauges keep their last values", "error", err)
				failed = true
			}
			continue
		}
		failed = false
		r.state.setLag(b)
	}
}
