package outbound_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
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
		// The first call gets 503, 503 and 200. The second gets 503 three times, and the breaker
		// opens. The third call finds it open.
		for range 3 {
			_, _ = c.Fetch(request(outbound.WithKey(t.Context(), "k1"), t, "POST", "x"))
		}
		got := readMetrics(t, reader)
		for name, want := range map[string]float64{
			"postroom.outbound.attempts api.vendor.example unavailable":            5,
			"postroom.outbound.attempts api.vendor.example ok":                     1,
			"postroom.outbound.retries api.vendor.example unavailable":             4,
			"postroom.outbound.given_up api.vendor.example breaker":                2,
			"postroom.outbound.retry.delay api.vendor.example unavailable":         4,
			"postroom.outbound.breaker.state api.vendor.example":                   2,
			"http.client.request.duration api.vendor.example POST 503 unavailable": 5,
			"http.client.request.duration api.vendor.example POST 200":             1,
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

// Retries and changes of a breaker are logged, with the key or its digest. The log has nothing else
// of the request.
func TestLogs(t *testing.T) {
	for redact, key := range map[bool]string{false: "secret-key", true: "85dbe15d"} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			c := outbound.NewClient(outbound.Config{
				Next: always(503), RedactKeys: redact, Attempts: 2, Schedule: outbound.Exponential{Jitter: outbound.NoJitter}, Breaker: outbound.Breaker{Failures: 2},
				Logger: slog.New(slog.NewJSONHandler(&log, nil)),
			})
			_, _ = c.Fetch(request(outbound.WithKey(t.Context(), "secret-key"), t, "POST", "a body"))
			for _, want := range []string{
				`"level":"INFO","msg":"outbound call is tried again","host":"api.vendor.example","method":"POST","attempt":1,"reason":"unavailable","wait":200000000,"key":"` + key + `"}`,
				`"level":"WARN","msg":"circuit breaker opened: calls fail at once","host":"api.vendor.example","for":10000000000}`,
			} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("%s is not in the log:\n%s", want, log.String())
				}
			}
			for _, secret := range []string{"hush", "charges", "a body", "answer"} {
				if strings.Contains(log.String(), secret) {
					t.Errorf("%s is in the log:\n%s", secret, log.String())
				}
			}
			if redact && strings.Contains(log.String(), "secret-key") {
				t.Errorf("the key is in the log:\n%s", log.String())
			}
		})
	}
}

// An unknown method does not appear in metrics and spans, because callers could create any number
// of names.
func TestUnusualMethodsAreOneInMetrics(t *testing.T) {
	reader := metric.NewManualReader()
	c := outbound.NewClient(outbound.Config{Next: always(200), Logger: quiet, MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	for _, method := range []string{"PURGE", "BREW"} {
		if _, err := c.Fetch(request(t.Context(), t, method, "")); err != nil {
			t.Fatal(err)
		}
	}
	if got := readMetrics(t, reader); got["http.client.request.duration api.vendor.example _OTHER 200"] != 2 {
		t.Errorf("metrics are %v", got)
	}
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
		for _, key := range []attribute.Key{"server.address", "outcome", "reason", "http.request.method", "http.response.status_code", "error.type"} {
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
