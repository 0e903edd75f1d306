package outbound

import (
	"context"
	"net/http"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom/internal/telemetry"
)

// metrics are the instruments of a transport.
type metrics struct {
	attempts metric.Int64Counter
	retries  metric.Int64Counter
	ends     metric.Int64Counter
	delay    metric.Float64Histogram
	took     metric.Float64Histogram
	breaker  metric.Int64Gauge
	tracer   trace.Tracer
}

func newMetrics(cfg Config) *metrics {
	m := telemetry.Meter(cfg.MeterProvider)
	return &metrics{
		attempts: telemetry.Counter(m, telemetry.OutboundAttempts, "{attempt}", "Attempts at calls, by how they ended."),
		retries:  telemetry.Counter(m, telemetry.OutboundRetries, "{attempt}", "Attempts after the first, by how the previous attempt ended."),
		ends:     telemetry.Counter(m, telemetry.OutboundEnded, "{call}", "Calls that failed and were not tried again, by reason."),
		delay:    telemetry.Seconds(m, telemetry.OutboundDelay, "Waits before attempts after the first."),
		took:     telemetry.Seconds(m, telemetry.HTTPDuration, "How long attempts took until their response began, or failed."),
		breaker:  telemetry.Level(m, telemetry.OutboundBreaker, "{state}", "State of the circuit breaker: 0 closed, 1 half open, 2 open."),
		tracer:   telemetry.Tracer(cfg.TracerProvider),
	}
}

func (m *metrics) breakerIs(host string, state gobreaker.State) {
	m.breaker.Record(context.Background(), int64(state), telemetry.With(telemetry.Server.String(host)))
}

func (m *metrics) retried(ctx context.Context, host string, class Class, wait time.Duration) {
	why := telemetry.With(telemetry.Server.String(host), telemetry.Reason.String(string(class)))
	m.retries.Add(ctx, 1, why)
	m.delay.Record(ctx, wait.Seconds(), why)
}

// ended counts a call that ended with a reason other than ReasonFinal.
func (m *metrics) ended(ctx context.Context, host string, reason Reason) {
	m.ends.Add(ctx, 1, telemetry.With(telemetry.Server.String(host), telemetry.Reason.String(string(reason))))
}

// begin starts the span of an attempt.
func (m *metrics) begin(ctx context.Context, op *operation) (context.Context, trace.Span) {
	ctx, span := m.tracer.Start(ctx, methodOf(op.req), trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		span.SetAttributes(telemetry.Method.String(methodOf(op.req)), telemetry.Server.String(op.host.name), telemetry.Attempt.Int(op.attempts))
		if op.attempts > 1 {
			span.SetAttributes(telemetry.Resend.Int(op.attempts - 1))
		}
		if op.key != "" {
			span.SetAttributes(telemetry.Key.String(op.shown(op.t.cfg.RedactKeys)))
		}
	}
	return ctx, span
}

// propagate adds the span to the headers with the application's propagator, which by
// default adds nothing.
func (m *metrics) propagate(ctx context.Context, h http.Header) {
	otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(h))
}

// attempted counts an attempt and its duration, and ends the attempt's span.
func (m *metrics) attempted(ctx context.Context, op *operation, span trace.Span, r result, took time.Duration) {
	outcome := string(r.class)
	if outcome == "" {
		outcome = "ok"
	}
	m.attempts.Add(ctx, 1, telemetry.With(telemetry.Server.String(op.host.name), telemetry.Outcome.String(outcome)))
	about := []attribute.KeyValue{telemetry.Server.String(op.host.name), telemetry.Method.String(methodOf(op.req))}
	var ended []attribute.KeyValue
	if r.resp != nil {
		ended = append(ended, telemetry.Status.Int(r.resp.StatusCode))
	}
	if r.class != "" {
		ended = append(ended, telemetry.ErrorType.String(outcome))
	}
	m.took.Record(ctx, took.Seconds(), telemetry.With(append(about, ended...)...))
	if span.IsRecording() {
		span.SetAttributes(ended...)
		if r.class != "" {
			span.SetStatus(codes.Error, outcome)
		}
	}
	span.End()
}

// methodOf returns a request's method for metrics. As OpenTelemetry's conventions demand, a method
// that HTTP does not define is "_OTHER".
func methodOf(req *http.Request) string {
	switch req.Method {
	case "":
		return http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return req.Method
	}
	return "_OTHER"
}
