package exposition

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// TestPageEqualsThatOfTheExporter compares a page with the page of OpenTelemetry's exporter, byte
// for byte, for each kind of instrument, unit and attribute.
func TestPageEqualsThatOfTheExporter(t *testing.T) {
	registry, ours := prometheus.NewRegistry(), sdk.NewManualReader()
	theirs, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		t.Fatal(err)
	}
	measure(t, sdk.NewMeterProvider(sdk.WithReader(ours), sdk.WithReader(theirs)).Meter("test"))

	want, got := httptest.NewRecorder(), httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(want, httptest.NewRequest("GET", "/metrics", nil))
	Handler(ours, slog.New(slog.DiscardHandler)).ServeHTTP(got, httptest.NewRequest("GET", "/metrics", nil))
	if got.Body.String() != want.Body.String() {
		t.Errorf("the page is\n%s\nthe exporter's is\n%s", got.Body, want.Body)
	}
	if got.Header().Get("Content-Type") != ContentType || !strings.HasPrefix(want.Header().Get("Content-Type"), ContentType) {
		t.Errorf("the page has the type %q, the exporter's %q", got.Header().Get("Content-Type"), want.Header().Get("Content-Type"))
	}
	if lines := strings.Count(got.Body.String(), "\n"); lines < 60 {
		t.Errorf("the page has %d lines, so the test compared little", lines)
	}
}

// measure fills one instrument of each kind.
func measure(t *testing.T, m metric.Meter) {
	t.Helper()
	ctx := context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	events, err := m.Int64Counter("shop.events", metric.WithUnit("{event}"), metric.WithDescription("A \\ and\na line."))
	check(err)
	events.Add(ctx, 3, metric.WithAttributes(attribute.String("outcome", "done"), attribute.String("error.type", "a \"b\" \\ c\nd é")))
	events.Add(ctx, 1<<53+1, metric.WithAttributes(attribute.String("outcome", "dead"), attribute.Int("n", 7), attribute.Bool("yes", true)))
	spent, err := m.Float64Counter("shop.spent", metric.WithUnit("s"))
	check(err)
	spent.Add(ctx, 0.1)
	plain, err := m.Int64Counter("shop.plain")
	check(err)
	plain.Add(ctx, 0)
	open, err := m.Int64UpDownCounter("shop.open", metric.WithUnit("By"))
	check(err)
	open.Add(ctx, -5)
	level, err := m.Int64Gauge("shop.level", metric.WithUnit("{event}"))
	check(err)
	level.Record(ctx, 12)
	share, err := m.Float64Gauge("shop.share", metric.WithUnit("1"))
	check(err)
	share.Record(ctx, 0.25)
	_, err = m.Float64ObservableGauge("shop.age", metric.WithUnit("s"), metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
		o.Observe(1e21, metric.WithAttributes(attribute.String("lane", "outbox")))
		o.Observe(1e-7)
		return nil
	}))
	check(err)
	_, err = m.Int64ObservableCounter("shop.read", metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(41)
		return nil
	}))
	check(err)
	took, err := m.Float64Histogram("shop.took", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(.001, .5, 1, 600))
	check(err)
	for _, n := range []float64{0.0001, 0.001, 0.7, 1e9} {
		took.Record(ctx, n)
		took.Record(ctx, n, metric.WithAttributes(attribute.String("type", "a")))
	}
	sizes, err := m.Int64Histogram("shop.sizes", metric.WithUnit("{event}"))
	check(err)
	sizes.Record(ctx, 7)
	_, err = m.Int64Counter("shop.unused")
	check(err)
}

// TestPageFailsIfAMetricCannotBeRead checks that the handler answers 500 instead of a page that
// lacks a metric.
func TestPageFailsIfAMetricCannotBeRead(t *testing.T) {
	reader := sdk.NewManualReader()
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")
	_, err := meter.Int64ObservableGauge("shop.level", metric.WithInt64Callback(func(context.Context, metric.Int64Observer) error {
		return errors.New("no level")
	}))
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	page := httptest.NewRecorder()
	Handler(reader, slog.New(slog.NewTextHandler(&log, nil))).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	if page.Code != 500 || !strings.Contains(log.String(), "no level") || strings.Contains(page.Body.String(), "no level") {
		t.Errorf("got %d %q, and the log %q", page.Code, page.Body, log.String())
	}
}
