package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
)

// Trace is the trace of an event, in the form of W3C Trace Context. The zero value means
// no trace.
type Trace struct{ Parent, State string }

// TraceOf returns the trace of a context. If the trace state is too long for an event, TraceOf
// leaves it out, because the caller cannot shorten it.
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
