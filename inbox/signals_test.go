package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// The first run is a child of the producer's span. A run from held has its own trace. Both link to
// the producer.
func TestSpans(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := tracetest.NewSpanRecorder()
	cfg := b.config()
	cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	b.in = inbox.New(b.pool, b.nc, cfg)
	runs := 0
	inside := make(chan trace.SpanContext, 2)
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
		inside <- trace.SpanContextFromContext(ctx)
		if runs++; runs == 1 {
			return errors.New("once")
		}
		return nil
	}))
	b.publishEvent(postroom.Event{
		ID: "a", Source: "/shop", Type: b.stream + ".placed", Data: []byte("1"), CorrelationID: "c",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	b.run()
	b.eventually("two runs", func() bool { return len(spans.Ended()) == 2 })
	producer := "0af7651916cd43dd8448eb211c80319c"
	for i, span := range spans.Ended() {
		if got := <-inside; got.SpanID() != span.SpanContext().SpanID() {
			t.Errorf("run %d: the handler's context has another span", i)
		}
		if span.Name() != "process "+b.stream || span.SpanKind() != trace.SpanKindConsumer {
			t.Errorf("run %d: %s, %s", i, span.Name(), span.SpanKind())
		}
		if child := span.SpanContext().TraceID().String() == producer; child != (i == 0) {
			t.Errorf("run %d: child of the producer's: %t", i, child)
		}
		if links := span.Links(); len(links) != 1 || links[0].SpanContext.TraceID().String() != producer {
			t.Errorf("run %d: links %v", i, links)
		}
		have := attribute.NewSet(span.Attributes()...)
		want := map[attribute.Key]string{
			"messaging.consumer.group.name": "h", "messaging.message.id": "a", "messaging.message.conversation_id": "c",
			"cloudevents.event_source": "/shop", "postroom.outcome": []string{"failed", "done"}[i],
		}
		for key, value := range want {
			if got, _ := have.Value(key); got.AsString() != value {
				t.Errorf("run %d: %s is %q, want %q", i, key, got.AsString(), value)
			}
		}
		if n, _ := have.Value("postroom.attempt"); n.AsInt64() != int64(i+1) {
			t.Errorf("run %d: attempt %d", i, n.AsInt64())
		}
	}
}

// Gauges show for each handler how many events are held, and how many the broker still has.
func TestGauges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("h")
	b.exec("UPDATE postroom.held SET next_at = NULL, dead_at = now() - interval '1 h', chain = 'k'")
	inbox.LookOften(b.in, 1e7)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	want := map[string]float64{
		"postroom.held.events reason=dead": 1, "postroom.held.events reason=retry": 0, "postroom.held.keys ": 1,
		"postroom.inbox.capacity ": 17, "postroom.inbox.pending ": 0, "postroom.inbox.ack_pending ": 0, "postroom.check.failed check=consumer": 0,
	}
	b.eventually("the gauges", func() bool {
		got := b.gauges()
		for name, value := range want {
			if v, ok := got[name]; !ok || v != value {
				return false
			}
		}
		return got["postroom.held.oldest.age reason=dead"] >= 3600 && got["postroom.measured.age lane=inbox"] > 0
	})
}

// gauges returns all gauges, by name and their attribute beside the handler.
func (b *bench) gauges() map[string]float64 {
	b.Helper()
	var all metricdata.ResourceMetrics
	if err := b.meter.Collect(b.Context(), &all); err != nil {
		b.Fatal(err)
	}
	got := make(map[string]float64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			gauge, ok := m.Data.(metricdata.Gauge[float64])
			if !ok {
				continue
			}
			for _, point := range gauge.DataPoints {
				name := m.Name + " "
				for _, kv := range point.Attributes.ToSlice() {
					if kv.Key != "handler" {
						name += string(kv.Key) + "=" + kv.Value.AsString()
					}
				}
				got[name] = point.Value
			}
		}
	}
	return got
}
