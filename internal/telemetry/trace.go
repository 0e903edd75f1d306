package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
)

// Trace is the trace that an event belongs to, as W3C Trace Context writes it. The zero
// value is none.
type Trace struct{ Parent, State string }

// TraceOf returns the trace of a context. A state that is too long for an event is left
// out, because that is not the caller's fault.
func TraceOf(ctx context.Context) Trace {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return Trace{}
	}
	carrier := make(propagation.MapCarrier, 2)
	propagation.TraceContext{}.Inject(ctx, carrier)
	t := Trace{Parent: carrier["traceparent"], State: carrier["tracestate"]}
	if len(t.State) > postroom.MaxTraceState {
		t.State = ""
	}
	return t
}
