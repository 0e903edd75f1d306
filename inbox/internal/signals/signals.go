// Package signals has the metrics and the traces of an inbox.
package signals

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/telemetry"
)

// Signals are the instruments of an inbox.
type Signals struct {
	meter     metric.Meter
	tracer    trace.Tracer
	delivered metric.Int64Counter
	consumed  metric.Int64Counter
	critical  metric.Float64Histogram
	process   metric.Float64Histogram
	deaths    metric.Int64Counter
	leaseLost metric.Int64Counter
	removed   metric.Int64Counter
	lost      metric.Int64Counter
	ledger    metric.MeasurementOption
	outcomes  slog.Leveler // the level at which outcomes are logged; nil for none
}

// New returns instruments of the given providers. If a provider is nil, New uses the global
// provider. If outcomes is not nil, the outcome of each delivery is logged at that level.
func New(metrics metric.MeterProvider, traces trace.TracerProvider, outcomes slog.Leveler) *Signals {
	m := telemetry.Meter(metrics)
	return &Signals{
		meter:     m,
		tracer:    telemetry.Tracer(traces),
		delivered: telemetry.Counter(m, telemetry.InboxDelivered, "{delivery}", "How deliveries, and runs from held, ended."),
		consumed:  telemetry.Counter(m, telemetry.ConsumedMessages, "{message}", "Messages that were delivered."),
		critical:  telemetry.Seconds(m, telemetry.InboxCritical, "Time from the producer's log to the committed effect."),
		process:   telemetry.Seconds(m, telemetry.ProcessDuration, "How long handlers took."),
		deaths:    telemetry.Counter(m, telemetry.DeadEvents, "{event}", "Events that became dead."),
		leaseLost: telemetry.Counter(m, telemetry.InboxLeaseLost, "{event}", "Held events that another process had claimed meanwhile."),
		removed:   telemetry.Counter(m, telemetry.RowsRemoved, "{row}", "Rows that were removed because of their age."),
		lost:      telemetry.Counter(m, telemetry.InboxDataLost, "{loss}", "How often a stream lacked messages that it once had, or should have had."),
		ledger:    telemetry.With(telemetry.Table.String("inbox")),
		outcomes:  outcomes,
	}
}

// Removed counts expired rows that were removed from the table inbox.
func (s *Signals) Removed(ctx context.Context, rows int64) { s.removed.Add(ctx, rows, s.ledger) }

// Handler has the instruments of one handler. The method Of makes the attributes only once, and not
// for each event.
type Handler struct {
	*Signals

	name        string
	log         *slog.Logger
	handler     metric.MeasurementOption
	stream      metric.MeasurementOption
	ends        map[delivery.Outcome]metric.MeasurementOption
	ranWell     metric.MeasurementOption
	spanName    string
	spanOptions []trace.SpanStartOption
}

// Of returns the instruments of a handler. The parameter stream is empty if the handler reads no
// stream.
func (s *Signals) Of(handler, stream string, log *slog.Logger) *Handler {
	name := telemetry.Handler.String(handler)
	group, system := telemetry.Group.String(handler), telemetry.System.String(telemetry.NATS)
	h := &Handler{
		Signals: s, name: handler, log: log, handler: telemetry.With(name), ends: make(map[delivery.Outcome]metric.MeasurementOption),
		stream:  telemetry.With(system, telemetry.Operation.String("fetch"), telemetry.Destination.String(stream), group),
		ranWell: telemetry.With(system, telemetry.Operation.String("process"), group),
	}
	for _, o := range []delivery.Outcome{delivery.Done, delivery.Duplicate, delivery.Held, delivery.Dead, delivery.Conflict, delivery.Discarded, delivery.Skipped, delivery.Released} {
		h.ends[o] = telemetry.With(name, telemetry.Outcome.String(string(o)))
	}
	h.spanName, h.spanOptions = spanOf(handler, stream)
	return h
}

// Consumed counts a message that was delivered.
func (h *Handler) Consumed(ctx context.Context) { h.consumed.Add(ctx, 1, h.stream) }

// Ended counts a delivery, or a run of a held event, and logs its outcome.
func (h *Handler) Ended(ctx context.Context, o delivery.Outcome, t delivery.Task) {
	h.delivered.Add(ctx, 1, h.ends[o])
	if logged := t.Event.LoggedAt; o == delivery.Done && !logged.IsZero() {
		h.critical.Record(ctx, time.Since(logged).Seconds(), h.handler)
	}
	if h.outcomes == nil || !h.log.Enabled(ctx, h.outcomes.Level()) {
		return
	}
	args := []any{
		"outcome", string(o), "event_id", t.Event.ID, "type", t.Event.Type, "dedupe_key", t.Key, "correlation_id", t.Event.CorrelationID,
		"attempt", t.Attempt, "retried", t.Retried,
	}
	if !t.Start.IsZero() {
		args = append(args, "duration", time.Since(t.Start))
	}
	h.log.Log(ctx, h.outcomes.Level(), "delivery ended", args...)
}

// Moved logs that an event is now held, still held or discarded, and counts the event if dead.
func (h *Handler) Moved(ctx context.Context, t delivery.Task, from string, to delivery.Outcome, as delivery.Holding) {
	log, say := h.log.WarnContext, "event not handled, will be tried again"
	args := []any{
		"event_id", t.Event.ID, "type", t.Event.Type, "dedupe_key", t.Key, "correlation_id", t.Event.CorrelationID,
		"attempt", as.Attempts, "from", from, "to", string(to),
	}
	if as.Failure != nil {
		args = append(args, "error_class", as.Failure.Class, "error", as.Failure.Text)
	}
	switch {
	case as.IsDiscarded():
		log, say = h.log.InfoContext, "event discarded by its handler"
	case as.After == nil:
		log, say = h.log.ErrorContext, "event dead"
		h.died(ctx, as.Failure.Class)
	case as.Failure == nil:
		log, say = h.log.DebugContext, "event held"
	default:
		if as.Failure.Snoozed {
			say = "event snoozed"
		}
		//guard:an-event-that-waits-for-its-turn-is-no-warning false
		if as.Failure.Waits {
			log = h.log.DebugContext
		}
		args = append(args, "retry_in", *as.After)
	}
	log(ctx, say, args...)
}

// Report logs the error and the stack of a failed attempt if the handler panicked.
func (h *Handler) Report(ctx context.Context, t delivery.Task, err error) {
	var panicked *guard.PanicError
	if errors.As(err, &panicked) {
		h.log.ErrorContext(ctx, "handler panicked", "event_id", t.Event.ID, "type", t.Event.Type, "dedupe_key", t.Key,
			"error", err, "stack", panicked.Stack)
	}
}

// died counts an event that became dead.
func (h *Handler) died(ctx context.Context, class string) {
	h.deaths.Add(ctx, 1, metric.WithAttributes(telemetry.Handler.String(h.name), telemetry.ErrorType.String(class)))
}

// LeaseLost counts a held event that another process claimed while this process ran it.
func (h *Handler) LeaseLost(ctx context.Context) { h.leaseLost.Add(ctx, 1, h.handler) }

// Lost counts one loss: the stream lacked messages that it should have had.
func (h *Handler) Lost(ctx context.Context, reason string) {
	h.lost.Add(ctx, 1, telemetry.With(telemetry.Handler.String(h.name), telemetry.Reason.String(reason)))
}

// ran records how long a run of the handler took and how it ended, and ends its span.
func (h *Handler) ran(ctx context.Context, span trace.Span, took time.Duration, err error) {
	options := h.ranWell
	if err != nil {
		options = telemetry.With(telemetry.System.String(telemetry.NATS), telemetry.Operation.String("process"),
			telemetry.Group.String(h.name), telemetry.ErrorType.String(errorType(err)))
	}
	h.process.Record(ctx, took.Seconds(), options)
	endSpan(span, err)
}

// errorType returns the class of an error. There are few classes, so that metrics can count by
// class.
func errorType(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return delivery.FailureOf(err).Class
}

// Observe runs a handler in a span, and records how long the run took.
func (h *Handler) Observe(ctx context.Context, t delivery.Task, run func(ctx context.Context) error) error {
	began := time.Now()
	ctx, span := h.trace(ctx, t)
	err := run(ctx)
	if err != nil {
		err = &postroom.EventError{Op: "handle", ID: t.Event.ID, Type: t.Event.Type, Err: err}
	}
	h.ran(ctx, span, time.Since(began), err)
	return err
}

// trace begins the span of one run of a handler. The span is a child of the span in which the event
// was written. If the event comes from the table held, the span begins a new trace instead, with a
// link to that span, because a trace must not last for days.
func (h *Handler) trace(ctx context.Context, t delivery.Task) (context.Context, trace.Span) {
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
func spanOf(handler, stream string) (string, []trace.SpanStartOption) {
	name, attributes := "process", []attribute.KeyValue{
		telemetry.System.String(telemetry.NATS), telemetry.Operation.String("process"), telemetry.OperationType.String("process"),
		telemetry.Group.String(handler),
	}
	if stream != "" {
		name, attributes = name+" "+stream, append(attributes, telemetry.Destination.String(stream))
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
