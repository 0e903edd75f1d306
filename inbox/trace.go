package inbox

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom/internal/telemetry"
)

// trace begins the span of one run of a handler. The first is a child of the
// context in which the event was written; a run from held has a trace of its own
// and a link, as a trace must not last for days.
func (c *consumer) trace(ctx context.Context, t task) (context.Context, trace.Span) {
	carrier := propagation.MapCarrier{"traceparent": t.ev.TraceParent, "tracestate": t.ev.TraceState}
	producer := propagation.TraceContext{}.Extract(ctx, carrier)
	name, options := "process", []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			telemetry.System.String(telemetry.NATS), telemetry.Operation.String("process"), telemetry.OperationType.String("process"),
			telemetry.Group.String(c.sub.Name), telemetry.MessageID.String(t.ev.ID), telemetry.Attempt.Int(t.attempt),
			telemetry.EventID.String(t.ev.ID), telemetry.EventSource.String(t.ev.Source), telemetry.EventType.String(t.ev.Type)),
	}
	if c.sub.Stream != "" {
		name += " " + c.sub.Stream
		options = append(options, trace.WithAttributes(telemetry.Destination.String(c.sub.Stream)))
	}
	if t.ev.CorrelationID != "" {
		options = append(options, trace.WithAttributes(telemetry.Conversation.String(t.ev.CorrelationID)))
	}
	if link := trace.LinkFromContext(producer); link.SpanContext.IsValid() {
		options = append(options, trace.WithLinks(link))
	}
	if t.retried {
		return c.inbox.tracer.Start(ctx, name, append(options, trace.WithNewRoot())...)
	}
	return c.inbox.tracer.Start(producer, name, options...)
}

func endSpan(span trace.Span, err error) {
	result := done
	if err != nil {
		result = "failed"
		class := errorType(err)
		span.SetStatus(codes.Error, class)
		span.SetAttributes(telemetry.ErrorType.String(class))
	}
	span.SetAttributes(telemetry.RunOutcome.String(string(result)))
	span.End()
}
