package outbound_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/postroom/postroom/outbound"
)

func TestMetricsAndSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, recorder := metric.NewManualReader(), tracetest.NewSpanRecorder()
		v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n%4 == 3 {
				return status(200), nil
			}
			return status(503), nil
		}}
		c := outbound.NewClient(outbound.Config{
			Next: v, Logger: quiet, RedactKeys: true, Breaker: outbound.Breaker{Failures: 5, Ratio: 0.1},
			MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
			TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(recorder)),
		})
		// 503, 503, 200; 503, 503, 503 and the breaker opens; the third finds it open.
		for range 3 {
			_, _ = c.Fetch(request(outbound.WithKey(t.Context(), "k1"), t, "POST", "x"))
		}
		got := readMetrics(t, reader)
		for name, want := range map[string]float64{
			"postroom.outbound.attempts api.vendor.example unavailable": 5,
			"postroom.outbound.attempts api.vendor.example ok":          1,
			"postroom.outbound.retries api.vendor.example unavailable":  4,
			"postroom.outbound.given_up api.vendor.example breaker":     2,
			"postroom.outbound.retry.delay api.vendor.example":          4,
			"postroom.outbound.breaker.state api.vendor.example":        2,
		} {
			if got[name] != want {
				t.Errorf("%s = %g, want %g: %v", name, got[name], want, got)
			}
		}
		spans := recorder.Ended()
		if len(spans) != v.count() {
			t.Fatalf("%d spans of %d attempts", len(spans), v.count())
		}
		attributes := attribute.NewSet(spans[1].Attributes()...)
		for key, want := range map[attribute.Key]string{
			"postroom.attempt": "2", "http.request.resend_count": "1", "http.response.status_code": "503",
			"server.address": "api.vendor.example", "http.request.method": "POST", "error.type": "unavailable",
			"postroom.key": "6ab9f1eb", // of SHA-256
		} {
			if v, _ := attributes.Value(key); v.String() != want {
				t.Errorf("%s = %q, want %q", key, v.String(), want)
			}
		}
	})
}

// readMetrics returns the sum of each instrument, by its name and attributes; the
// count of a histogram.
func readMetrics(t *testing.T, reader *metric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	name := func(of string, set attribute.Set) string {
		for _, key := range []attribute.Key{"server.address", "outcome", "reason"} {
			if v, ok := set.Value(key); ok {
				of += " " + v.String()
			}
		}
		return of
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[name(m.Name, p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					got[name(m.Name, p.Attributes)] = float64(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[name(m.Name, p.Attributes)] = float64(p.Count)
				}
			}
		}
	}
	return got
}
