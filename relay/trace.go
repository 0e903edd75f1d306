package relay

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// maxLinks limits how many events of a batch the span of the batch links to. The SDK
// silently drops further links.
const maxLinks = 128

// batchSpan is the span of a batch with at least one event of a sampled trace. It begins
// when the batch is sent, and ends when the last such event has its outcome.
type batchSpan struct {
	span   trace.Span
	open   int // sampled events without an outcome
	stream string
}

// sampled reports whether the producer's trace is sampled. It reads only the flags of the W3C
// traceparent, because it is called for each event.
func sampled(ev *broker.Event) bool {
	const length = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	return len(ev.TraceParent) == length && ev.TraceParent[length-1]&1 == 1
}

// startSpan begins the span of a batch if one of its events is sampled.
func startSpan(ctx context.Context, tracer trace.Tracer, batch []*broker.Message, now time.Time) {
	var members []*schedule.Entry
	for _, m := range batch {
		f := schedule.EntryOf(m)
		f.Batch = nil
		if sampled(&f.Event) {
			members = append(members, f)
		}
	}
	if len(members) == 0 {
		return
	}
	var links []trace.Link
	for _, f := range members[:min(len(members), maxLinks)] {
		carrier := propagation.MapCarrier{"traceparent": f.TraceParent, "tracestate": f.TraceState}
		producer := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, carrier))
		links = append(links, trace.Link{SpanContext: producer, Attributes: []attribute.KeyValue{telemetry.MessageID.String(f.ID)}})
	}
	_, span := tracer.Start(ctx, "publish", trace.WithSpanKind(trace.SpanKindClient), trace.WithNewRoot(),
		trace.WithTimestamp(now), trace.WithLinks(links...), trace.WithAttributes(
			telemetry.System.String(telemetry.NATS), telemetry.Operation.String("publish"), telemetry.OperationType.String("send"),
			telemetry.BatchCount.Int(len(batch))))
	b := &batchSpan{span: span, open: len(members)}
	for _, f := range members {
		f.Batch = b
	}
}

// done adds the outcome of a sampled event. After the last such event it ends the span.
func (b *batchSpan) done(o broker.Outcome) {
	if o.Stream != "" && b.stream == "" {
		b.stream = o.Stream
		b.span.SetName("publish " + o.Stream)
		b.span.SetAttributes(telemetry.Destination.String(o.Stream))
	}
	if o.Err != nil {
		b.span.SetStatus(otelcodes.Error, o.ErrorType())
		b.span.SetAttributes(telemetry.ErrorType.String(o.ErrorType()))
	}
	if b.open--; b.open == 0 {
		b.span.End()
	}
}
