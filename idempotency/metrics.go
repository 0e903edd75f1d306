package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom/internal/telemetry"
)

// metrics are the instruments of a guard.
type metrics struct {
	created, replayed, conflict, inProgress, storeError, takeover metric.Int64Counter
	rows                                                          metric.Int64Counter
}

func newMetrics(cfg Config) *metrics {
	m := telemetry.Meter(cfg.MeterProvider)
	count := func(name, about string) metric.Int64Counter { return telemetry.Counter(m, name, "{request}", about) }
	return &metrics{
		created:    count(telemetry.IdempotentCreated, "Requests that ran, and whose answer is kept."),
		replayed:   count(telemetry.IdempotentReplayed, "Requests that were answered with a kept answer."),
		conflict:   count(telemetry.IdempotentConflict, "Requests whose key was used for another request."),
		inProgress: count(telemetry.IdempotentInProgress, "Requests whose key was in use by another attempt."),
		storeError: count(telemetry.IdempotentStoreError, "Requests that failed because the database was unavailable, the outcome of a commit was unknown, or a kept answer could not be read."),
		takeover:   count(telemetry.IdempotentTakeover, "Attempts that took over from an attempt that died."),
		rows:       telemetry.Counter(m, telemetry.RowsRemoved, "{row}", "Rows that were removed because they were old."),
	}
}

func (m *metrics) removed(ctx context.Context, n int) {
	if n > 0 {
		m.rows.Add(ctx, int64(n), telemetry.With(telemetry.Table.String("idempotency")))
	}
}

// tell counts and logs a call's result, and records the result in the caller's span.
func (m *metrics) tell(ctx context.Context, cfg *Config, op *operation, e callResult, took time.Duration) {
	if !op.keyed {
		return
	}
	counter, outcome := m.of(e)
	scope := telemetry.With(telemetry.Scoped.String(op.key.Scope))
	if counter != nil {
		counter.Add(ctx, 1, scope)
	}
	if e.takeover {
		m.takeover.Add(ctx, 1, scope)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(telemetry.Key.String(cfg.shown(op.key)), telemetry.Attempt.Int(e.number), telemetry.RunOutcome.String(outcome))
	}
	level := slog.LevelDebug
	switch {
	case counter == m.storeError:
		level = slog.LevelWarn
	case e.takeover || counter == m.conflict:
		level = slog.LevelInfo
	}
	if cfg.LogOutcomes != nil {
		level = max(level, cfg.LogOutcomes.Level())
	}
	if !cfg.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("scope", op.key.Scope), slog.String("key", cfg.shown(op.key)), slog.Int("attempt", e.number),
		slog.String("outcome", outcome), slog.String("from", named(e.from)), slog.String("to", named(e.to)), slog.Duration("duration", took),
	}
	if e.err != nil {
		attrs = append(attrs, slog.String("code", string(codeOf(e.err))), slog.Any("error", e.err))
	}
	cfg.Logger.LogAttrs(ctx, level, "idempotency key", attrs...)
}

// of returns the counter of a call's result, or nil, and the name of the result.
func (m *metrics) of(e callResult) (metric.Int64Counter, string) {
	switch {
	case e.err == nil && e.outcome == Replayed, errors.Is(e.err, ErrDropped):
		return m.replayed, "replayed"
	case e.err == nil && e.kept:
		return m.created, "created"
	case errors.Is(e.err, ErrMismatch):
		return m.conflict, "conflict"
	case errors.Is(e.err, ErrInProgress), errors.Is(e.err, ErrLeaseLost):
		return m.inProgress, "in_progress"
	case errors.Is(e.err, ErrUnavailable), errors.Is(e.err, ErrOutcomeUnknown), errors.Is(e.err, ErrUnreadable):
		return m.storeError, "store_error"
	}
	return nil, "undone"
}

func named(s State) string {
	if s == "" {
		return "absent"
	}
	return string(s)
}

// shown returns the form of a key's value for logs and spans.
func (c *Config) shown(k Key) string {
	if !c.RedactKeys && c.LogOutcomes == nil {
		return k.Value
	}
	sum := sha256.Sum256([]byte(k.Value))
	return hex.EncodeToString(sum[:4])
}
