package alerts

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/saga"
)

// observed has the metrics of a leading relay, a standby and an inbox: while all is well, and
// after events that bring out the remaining series.
type observed struct{ well, after series }

// patience bounds each wait. Parts measure themselves every 15 s.
const patience = time.Minute

// runShop runs a shop on real servers and returns its metrics.
func runShop(t *testing.T) observed {
	t.Helper()
	pool, nc := devtest.Pool(t), devtest.NATS(t)
	cfg := jetstream.StreamConfig{Name: "ALERTS", Subjects: []string{"alerts.>"}}
	ensure := func() {
		t.Helper()
		if err := natsjs.EnsureStream(t.Context(), nc, cfg); err != nil {
			t.Fatal(err)
		}
	}
	ensure()

	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	provider, quiet := sdk.NewMeterProvider(sdk.WithReader(reader)), slog.New(slog.DiscardHandler)
	in := inbox.New(pool, nc, inbox.Config{MeterProvider: provider, Logger: quiet})
	in.Handle(inbox.Subscription{Name: "billing", Stream: cfg.Name, Subjects: cfg.Subjects},
		postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
			if ev.Type == "alerts.bad" {
				return postroom.Permanent(errors.New("bad"))
			}
			return nil
		}))
	run(t, relay.New(pool, natsjs.NewPublisher(nc), relay.Config{MeterProvider: provider, Logger: quiet}), in)
	now := func() series {
		t.Helper()
		page := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		return standBy(t, parse(t, page.Body.String()))
	}

	checkout := saga.New(pool, outbox.New(outbox.Config{Source: "/shop"}), saga.Definition[string]{
		Name: "checkout", Version: 1, Steps: []saga.Step[string]{{Name: "pay", Done: saga.OnAny("alerts.paid", func(*string, string) {})}},
	})
	if err := checkout.Check(t.Context()); err != nil { // it records the saga
		t.Fatal(err)
	}
	write(t, pool, postroom.NewEvent("alerts.good", 1))
	var all observed
	wait(t, "an event to be done, none to be pending, and all to be measured", []string{
		`postroom_inbox_deliveries_total{outcome="done"}`, `postroom_inbox_pending`, `postroom_held_events{handler="billing"}`,
		`postroom_relay_lag_age_seconds`, // only a leader reports this, after it has measured
	}, func() series {
		all.well = now()
		for i := range all.well.selects(t, "postroom_inbox_pending") {
			if all.well[i].value != "0" { // the inbox asked the broker before the event was done, and asks again soon
				return nil
			}
		}
		return all.well
	})

	lost, behind := postroom.NewEvent("alerts.good", 2), postroom.NewEvent("alerts.good", 3)
	lost.Subject, lost.Key, behind.Key = "nowhere", "k", "k"
	write(t, pool, postroom.NewEvent("alerts.bad", 1), lost, behind)
	wait(t, "an event to be dead", []string{`postroom_dead_events_total{handler="billing"}`}, now)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	js := devtest.JetStream(t, nc)
	if err := js.DeleteStream(t.Context(), cfg.Name); err != nil {
		t.Fatal(err)
	}
	ensure()
	write(t, pool, postroom.NewEvent("alerts.good", 4)) // its sequence in the stream was used before
	wait(t, "what alerts and panels ask for", expressions(t), func() series { all.after = now(); return all.after })
	return all
}

// run runs parts until the test ends, and fails the test if one of them fails.
func run(t *testing.T, parts ...postroom.Runner) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- postroom.Run(ctx, parts...) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func write(t *testing.T, pool *pgxpool.Pool, events ...postroom.Event) {
	t.Helper()
	shop := outbox.New(outbox.Config{Source: "/shop"})
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, events...) })
	if err != nil {
		t.Fatal(err)
	}
}

// standBy adds the metrics of a standby in another process: that it does not lead.
func standBy(t *testing.T, all series) series {
	t.Helper()
	for i := range all.selects(t, "postroom_relay_leader") {
		all = append(all, one{instance(all[i].labels, "b"), "0"})
	}
	return all
}

// wait waits until the metrics have the series of each expression.
func wait(t *testing.T, what string, expressions []string, now func() series) {
	t.Helper()
	var missing []string
	t.Cleanup(func() {
		if len(missing) > 0 {
			t.Log("missing: " + strings.Join(missing, "; "))
		}
	})
	devtest.Eventually(t, patience, what, func() bool {
		missing = nil
		s := now()
		for _, expr := range expressions {
			missing = append(missing, s.missing(t, expr)...)
		}
		return len(missing) == 0
	})
}

// expressions are those of all alerts and panels.
func expressions(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, rule := range readAlerts(t) {
		all = append(all, rule.Expr)
	}
	for _, panel := range readDashboard(t).graphs() {
		for _, target := range panel.Targets {
			all = append(all, target.query())
		}
	}
	return all
}
