package webhook

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/internal/telemetry"
)

// Limits for a gauge that asks the database.
const (
	countEvery    = 15 * time.Second // the least time between two counts
	countPatience = 2 * time.Second
)

// disabledGauge counts the disabled endpoints when the metrics are read.
type disabledGauge struct {
	sender *Sender
	gauge  metric.Float64ObservableGauge

	mu    sync.Mutex
	at    time.Time // time of the last count; zero before the first count
	count float64
	known bool
}

// measureDisabled registers the gauge. The gauge exists as long as the meter provider.
func measureDisabled(s *Sender) {
	m := telemetry.Meter(s.cfg.MeterProvider)
	g := &disabledGauge{sender: s, gauge: telemetry.Gauge(m, telemetry.WebhookDisabled, "{endpoint}", "Webhook endpoints that are disabled.")}
	if _, err := m.RegisterCallback(g.observe, g.gauge); err != nil {
		s.cfg.Logger.Error("gauges not registered", "error", err)
	}
}

// observe reports how many endpoints are disabled. It counts the endpoints again when countEvery
// has passed since the last count. If the database does not answer, it reports no value.
func (g *disabledGauge) observe(ctx context.Context, o metric.Observer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() || time.Since(g.at) >= countEvery {
		ctx, cancel := context.WithTimeout(ctx, countPatience)
		defer cancel()
		err := g.sender.endpoints.db.QueryRow(ctx, g.sender.endpoints.sql.Disabled).Scan(&g.count)
		g.at, g.known = time.Now(), err == nil
		if err != nil {
			g.sender.cfg.Logger.DebugContext(ctx, "disabled endpoints not counted", "error", g.sender.endpoints.explain(err))
		}
	}
	if g.known {
		o.ObserveFloat64(g.gauge, g.count)
	}
	return nil
}
