package inbox

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/telemetry"
)

// observe runs a handler in a span, and notes how long it took.
func (h *handler) observe(ctx context.Context, t delivery.Task, run func(ctx context.Context) error) error {
	began := time.Now()
	ctx, span := h.trace(ctx, t)
	err := run(ctx)
	if err != nil {
		err = &postroom.EventError{Op: "handle", ID: t.Event.ID, Type: t.Event.Type, Err: err}
	}
	h.metrics.ran(ctx, span, time.Since(began), err)
	return err
}

// trace begins the span of one run of a handler. The first is a child of the
// context in which the event was written; a run from held has a trace of its own
// and a link, as a trace must not last for days.
func (h *handler) trace(ctx context.Context, t delivery.Task) (context.Context, trace.Span) {
	options := h.spanOptions
	if t.Event.TraceParent != "" {
		carrier := propagation.MapCarrier{"traceparent": t.Event.TraceParent, "tracestate": t.Event.TraceState}
		producer := propagation.TraceContext{}.Extract(ctx, carrier)
		options = append(slices.Clip(options), trace.WithLinks(trace.LinkFromContext(producer)))
		if !t.Retried {
			ctx = producer
		}
	}
	if t.Retried {
		options = append(slices.Clip(options), trace.WithNewRoot())
	}
	ctx, span := h.tracer.Start(ctx, h.spanName, options...)
	if span.IsRecording() {
		span.SetAttributes(
			telemetry.MessageID.String(t.Event.ID), telemetry.Attempt.Int(t.Attempt),
			telemetry.EventID.String(t.Event.ID), telemetry.EventSource.String(t.Event.Source), telemetry.EventType.String(t.Event.Type))
		if t.Event.CorrelationID != "" {
			span.SetAttributes(telemetry.Conversation.String(t.Event.CorrelationID))
		}
	}
	return ctx, span
}

// spanOf returns the name and the attributes that all spans of a handler have.
func spanOf(sub Subscription) (string, []trace.SpanStartOption) {
	name, attributes := "process", []attribute.KeyValue{
		telemetry.System.String(telemetry.NATS), telemetry.Operation.String("process"), telemetry.OperationType.String("process"),
		telemetry.Group.String(sub.Name),
	}
	if sub.Stream != "" {
		name, attributes = name+" "+sub.Stream, append(attributes, telemetry.Destination.String(sub.Stream))
	}
	return name, []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...)}
}

func endSpan(span trace.Span, err error) {
	if !span.IsRecording() {
		span.End()
		return
	}
	result := delivery.Done
	if err != nil {
		result = "failed"
		class := errorType(err)
		span.SetStatus(codes.Error, class)
		span.SetAttributes(telemetry.ErrorType.String(class))
	}
	span.SetAttributes(telemetry.RunOutcome.String(string(result)))
	span.End()
}
