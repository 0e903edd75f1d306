package webhook

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom/internal/telemetry"
)

// signals has the instruments of a receiver.
type signals struct {
	source   string
	span     string
	received metric.Int64Counter
	tracer   trace.Tracer
}

func newSignals(cfg ReceiverConfig) *signals {
	return &signals{
		source:   cfg.Source,
		span:     "receive " + cfg.Source,
		received: telemetry.Counter(telemetry.Meter(cfg.MeterProvider), telemetry.WebhookReceived, "{request}", "Webhook requests, by outcome."),
		tracer:   telemetry.Tracer(cfg.TracerProvider),
	}
}

// begin starts the span of a request. The span is a child of the server's span. The event gets the
// trace of the request's span.
func (s *signals) begin(ctx context.Context) (context.Context, trace.Span) {
	return s.tracer.Start(ctx, s.span, trace.WithSpanKind(trace.SpanKindConsumer))
}

// tell counts and logs the outcome of a request, also in the request's span.
func (r *Receiver) tell(ctx context.Context, span trace.Span, res result) {
	attributes := telemetry.With(telemetry.Source.String(r.cfg.Source), telemetry.Outcome.String(string(res.outcome)))
	if res.reason != "" {
		attributes = telemetry.With(telemetry.Source.String(r.cfg.Source), telemetry.Outcome.String(string(res.outcome)), telemetry.Reason.String(string(res.reason)))
	}
	r.signals.received.Add(ctx, 1, attributes)
	source := cmp.Or(res.event.Source, r.cfg.Source) // the event's source contains the tenant; in metrics it would have too many values
	if span.IsRecording() {
		span.SetAttributes(telemetry.EventSource.String(source), telemetry.RunOutcome.String(string(res.outcome)), telemetry.Status.Int(res.status()))
		if res.event.ID != "" {
			span.SetAttributes(telemetry.EventID.String(res.event.ID))
		}
		if res.event.Type != "" {
			span.SetAttributes(telemetry.EventType.String(res.event.Type))
		}
		if res.status() >= 500 {
			span.SetStatus(codes.Error, string(res.outcome))
		}
	}
	log := r.cfg.Logger
	switch res.outcome {
	case rejected:
		log.InfoContext(ctx, "webhook refused", "source", source, "remote", res.remote, "reason", string(res.reason))
	case unreadable, encoded, tooSlow, tooLarge:
		log.InfoContext(ctx, "webhook not read", "source", source, "remote", res.remote, "outcome", string(res.outcome), "error", res.err)
	case withoutID, form:
		log.WarnContext(ctx, "webhook cannot be stored", "source", source, "type", res.event.Type, "outcome", string(res.outcome))
	case conflict:
		log.WarnContext(ctx, "webhook held: its id is known with another body", "source", source, "event_id", res.event.ID, "type", res.event.Type)
	case noEvent:
		log.ErrorContext(ctx, "webhook not processed", "source", source, "event_id", res.event.ID, "type", res.event.Type, "error", res.err)
	case misconfigured:
		log.ErrorContext(ctx, "webhook endpoint is not set up correctly", "source", source, "error", res.err)
	case unavailable:
		r.lines.Warn(ctx, log, "webhook not stored", res.err, "source", source)
	default:
		r.tellIgnored(ctx, res)
		log.LogAttrs(ctx, slog.LevelDebug, "webhook received", slog.String("source", source), slog.String("event_id", res.event.ID),
			slog.String("type", res.event.Type), slog.String("outcome", string(res.outcome)))
	}
}

// manyIgnored is how many requests a receiver ignores, without storing any, until it says so.
const manyIgnored = 10

// tellIgnored warns if the receiver ignores a request that has no type, or if it has ignored all of its
// first requests: perhaps Types, or the place of the type in a request, is wrong. The provider got 200
// and will not send these requests again.
func (r *Receiver) tellIgnored(ctx context.Context, res result) {
	if res.outcome != ignored {
		if res.event.ID != "" {
			r.took.Store(true)
		}
		return
	}
	n := r.ignored.Add(1)
	switch {
	//guard:webhook-ignored-request-without-a-type-is-told false
	case strings.HasSuffix(res.event.Type, "."+untyped):
		r.lines.Warn(ctx, r.cfg.Logger, "webhook ignored: it has no type", errors.New("no type was found where the scheme looks for it"), "source", r.cfg.Source, "type", res.event.Type)
	//guard:webhook-receiver-that-ignores-all-says-so false
	case n == manyIgnored && !r.took.Load():
		r.cfg.Logger.WarnContext(ctx, "webhooks ignored: all requests so far have other types", "source", r.cfg.Source, "type", res.event.Type)
	}
}
