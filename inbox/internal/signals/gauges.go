package signals

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/telemetry"
)

// measureEvery is how often a process counts the held events.
const measureEvery = 15 * time.Second

// The reasons why an event is held. The metrics of the relay use the same words.
const (
	heldRetry = "retry" // the event is due, or will be due
	heldKey   = "key"   // the event waits behind an earlier event of its key
	heldDead  = "dead"  // an operator has to decide
)

// Gauges reports the state of the inbox when the metrics are read. It implements postroom.Runner.
type Gauges struct {
	signals  *Signals
	log      *slog.Logger
	backlog  func(ctx context.Context) ([]delivery.Stock, error)
	handlers func() []Level

	held, age, keys, overdue     metric.Float64ObservableGauge
	inFlight, capacity           metric.Float64ObservableGauge
	pending, ackPending, drifted metric.Float64ObservableGauge
	paused, measured             metric.Float64ObservableGauge

	mu    sync.Mutex
	stock []delivery.Stock
	at    time.Time // when stock was measured; before the first time, when Run began
}

// Level says how many events one handler has in memory, and whether the handler is paused.
type Level struct {
	Of                 *Handler
	InFlight, Capacity int
	Consumer           *Consumer // nil if the handler has no consumer, or if the broker has not answered yet
	Paused, Operator   bool      // Paused: because of failures; Operator: an operator has paused the handler
}

// Consumer is the broker's last answer about a handler's consumer.
type Consumer struct {
	Pending, AckPending float64
	Drifted, Paused     bool
}

// NewGauges returns the gauges of an inbox. The function backlog counts the held events in the
// database. The function handlers returns the level of each handler.
func (s *Signals) NewGauges(log *slog.Logger, backlog func(ctx context.Context) ([]delivery.Stock, error), handlers func() []Level) *Gauges {
	m := s.meter
	return &Gauges{
		signals: s, log: log, backlog: backlog, handlers: handlers,
		held:       telemetry.Gauge(m, telemetry.HeldEvents, "{event}", "Events in held."),
		age:        telemetry.Gauge(m, telemetry.HeldOldest, "s", "For how long the oldest held event has been held."),
		keys:       telemetry.Gauge(m, telemetry.HeldKeys, "{key}", "Keys that wait for a held event."),
		overdue:    telemetry.Gauge(m, telemetry.HeldOverdue, "s", "For how long a held event has been due."),
		inFlight:   telemetry.Gauge(m, telemetry.InboxInFlight, "{event}", "Events that this process has in memory."),
		capacity:   telemetry.Gauge(m, telemetry.InboxCapacity, "{event}", "How many events this process may have in memory."),
		pending:    telemetry.Gauge(m, telemetry.InboxPending, "{event}", "Events that the broker has not delivered yet."),
		ackPending: telemetry.Gauge(m, telemetry.InboxAckPending, "{event}", "Events that were delivered and not acknowledged."),
		paused:     telemetry.Switch(m, telemetry.InboxPaused, "1 while the handler is paused."),
		measured:   telemetry.Gauge(m, telemetry.MeasuredAge, "s", "How old the other gauges are that are measured in the database."),
		drifted:    telemetry.Switch(m, telemetry.CheckFailed, "1 while the consumer has drifted."),
	}
}

// Run registers the gauges, and counts the held events every measureEvery, until ctx ends.
func (g *Gauges) Run(ctx context.Context) error {
	g.set(nil)
	registration, err := g.signals.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g.observe(o)
		return nil
	}, g.held, g.age, g.keys, g.overdue, g.inFlight, g.capacity, g.pending, g.ackPending, g.drifted, g.paused, g.measured)
	if err != nil {
		g.log.ErrorContext(ctx, "gauges not registered", "error", err)
		<-ctx.Done()
		return nil
	}
	defer func() { _ = registration.Unregister() }() // fails only if the callback was not registered
	failed := false
	for ctx.Err() == nil {
		stock, err := g.backlog(ctx)
		switch {
		case err == nil:
			g.set(stock)
			failed = false
		case ctx.Err() == nil && !failed:
			g.log.WarnContext(ctx, "held events could not be counted: the gauges keep their last values", "error", err)
			failed = true
		}
		sleep.For(ctx, measureEvery)
	}
	return nil
}

// set stores what was measured now.
func (g *Gauges) set(stock []delivery.Stock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stock, g.at = stock, time.Now()
}

func (g *Gauges) observe(o metric.Observer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o.ObserveFloat64(g.measured, time.Since(g.at).Seconds(), telemetry.With(telemetry.Lane.String("inbox")))
	for _, s := range g.stock {
		handler := telemetry.Handler.String(s.Handler)
		tell := func(reason string, n int64, age float64) {
			with := telemetry.With(handler, telemetry.Reason.String(reason))
			o.ObserveFloat64(g.held, float64(n), with)
			o.ObserveFloat64(g.age, age, with)
		}
		tell(heldRetry, s.Retrying, s.RetryingAge)
		tell(heldKey, s.Waiting, s.WaitingAge)
		tell(heldDead, s.Dead, s.DeadAge)
		o.ObserveFloat64(g.keys, float64(s.Keys), telemetry.With(handler))
		o.ObserveFloat64(g.overdue, s.Overdue, telemetry.With(handler))
	}
	for _, l := range g.handlers() {
		o.ObserveFloat64(g.inFlight, float64(l.InFlight), l.Of.handler)
		o.ObserveFloat64(g.capacity, float64(l.Capacity), l.Of.handler)
		for reason, is := range map[string]bool{"failures": l.Paused, "operator": l.Operator, "broker": l.Consumer != nil && l.Consumer.Paused} {
			o.ObserveFloat64(g.paused, switched(is), telemetry.With(telemetry.Handler.String(l.Of.name), telemetry.Reason.String(reason)))
		}
		if c := l.Consumer; c != nil {
			o.ObserveFloat64(g.pending, c.Pending, l.Of.handler)
			o.ObserveFloat64(g.ackPending, c.AckPending, l.Of.handler)
			o.ObserveFloat64(g.drifted, switched(c.Drifted), telemetry.With(telemetry.Check.String("consumer"), telemetry.Handler.String(l.Of.name)))
		}
	}
}

// switched returns 1 for true, and 0 for false.
func switched(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
