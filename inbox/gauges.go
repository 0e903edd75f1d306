package inbox

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/telemetry"
)

// measureEvery is how often a process asks what is held.
const measureEvery = 15 * time.Second

// Why an event is held. The metrics of the relay give the same reasons.
const (
	heldRetry = "retry" // it failed and is tried again
	heldKey   = "key"   // it waits behind an earlier event of its key
	heldDead  = "dead"  // an operator has to decide
)

// gauges are read when somebody reads the metrics. It implements postroom.Runner.
type gauges struct {
	inbox *Inbox

	held, age, keys, overdue     metric.Float64ObservableGauge
	inFlight, capacity           metric.Float64ObservableGauge
	pending, ackPending, drifted metric.Float64ObservableGauge

	mu    sync.Mutex
	stock []ledger.Stock
}

func newGauges(in *Inbox) *gauges {
	m := in.metrics.meter
	return &gauges{
		inbox:      in,
		held:       telemetry.Gauge(m, telemetry.HeldEvents, "{event}", "Events in held."),
		age:        telemetry.Gauge(m, telemetry.HeldOldest, "s", "For how long the oldest of them has been held."),
		keys:       telemetry.Gauge(m, telemetry.HeldKeys, "{key}", "Keys that wait for a held event."),
		overdue:    telemetry.Gauge(m, telemetry.HeldOverdue, "s", "For how long a held event has been due."),
		inFlight:   telemetry.Gauge(m, telemetry.InboxInFlight, "{event}", "Events that this process has in hand."),
		capacity:   telemetry.Gauge(m, telemetry.InboxCapacity, "{event}", "How many it takes in hand."),
		pending:    telemetry.Gauge(m, telemetry.InboxPending, "{event}", "Events that the broker has not delivered yet."),
		ackPending: telemetry.Gauge(m, telemetry.InboxAckPending, "{event}", "Events that were delivered and not acknowledged."),
		drifted:    telemetry.Switch(m, telemetry.CheckFailed, "1 while the set-up is not as it should be."),
	}
}

// Run measures until ctx ends, and registers the gauges for as long.
func (g *gauges) Run(ctx context.Context) error {
	registration, err := g.inbox.metrics.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g.observe(o)
		return nil
	}, g.held, g.age, g.keys, g.overdue, g.inFlight, g.capacity, g.pending, g.ackPending, g.drifted)
	if err != nil {
		g.inbox.cfg.Logger.ErrorContext(ctx, "gauges could not be registered", "error", err)
		<-ctx.Done()
		return nil
	}
	defer func() { _ = registration.Unregister() }() // it fails for a callback that was not registered
	for ctx.Err() == nil {
		if err := g.measure(ctx); err != nil && ctx.Err() == nil {
			g.inbox.cfg.Logger.DebugContext(ctx, "held events could not be counted", "error", err)
		}
		sleep(ctx, measureEvery)
	}
	return nil
}

// measure asks what is held.
func (g *gauges) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ledger.WritePatience)
	defer cancel()
	stock, err := g.inbox.db.Backlog(ctx, g.inbox.names())
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stock = stock
	return nil
}

func (g *gauges) observe(o metric.Observer) {
	g.mu.Lock()
	defer g.mu.Unlock()
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
	for _, c := range g.inbox.loops {
		inHand := float64(c.inflight.Len()) + float64(c.retries.claimed.Load())
		o.ObserveFloat64(g.inFlight, inHand, c.metrics.handler)
		o.ObserveFloat64(g.capacity, float64(c.inflight.Most()+cap(c.retries.claims)), c.metrics.handler)
		if view := viewOf(c); view != nil {
			o.ObserveFloat64(g.pending, view.Pending, c.metrics.handler)
			o.ObserveFloat64(g.ackPending, view.AckPending, c.metrics.handler)
			drifted := 0.0
			if view.Drifted {
				drifted = 1
			}
			o.ObserveFloat64(g.drifted, drifted, telemetry.With(telemetry.Check.String("consumer"), telemetry.Handler.String(c.sub.Name)))
		}
	}
}
