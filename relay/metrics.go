package relay

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/relay/broker"
)

// metrics counts what the relay did. The hot path counts in plain integers. It calls an instrument
// once for each recording or batch of results, and for one event only if it failed.
type metrics struct {
	meter metric.Meter

	events, late, takeovers, fenced, dead, removed, sent, republished, losses, repaired metric.Int64Counter
	flush                                                                               metric.Int64Histogram
	commitToAck, publish                                                                metric.Float64Histogram

	stored, duplicate, retried, held, died metric.MeasurementOption // the options for outcomes
	log, publishing                        metric.MeasurementOption
	streams                                map[string]metric.MeasurementOption // only the dispatcher uses it
}

func newMetrics(provider metric.MeterProvider) *metrics {
	m := telemetry.Meter(provider)
	outcome := func(s string) metric.MeasurementOption { return telemetry.With(telemetry.Outcome.String(s)) }
	return &metrics{
		meter:       m,
		events:      telemetry.Counter(m, telemetry.RelayEvents, "{event}", "Outcomes of publishing."),
		republished: telemetry.Counter(m, telemetry.RelayRepublished, "{event}", "Events that were published again because an operator asked for it."),
		late:        telemetry.Counter(m, telemetry.RelayLate, "{event}", "Events that became visible after later ones."),
		takeovers:   telemetry.Counter(m, telemetry.RelayTakeovers, "{takeover}", "Terms that this relay began."),
		fenced:      telemetry.Counter(m, telemetry.RelayFenced, "{term}", "Terms that ended because another relay had taken over."),
		dead:        telemetry.Counter(m, telemetry.DeadEvents, "{event}", "Events that became dead."),
		removed:     telemetry.Counter(m, telemetry.RowsRemoved, "{row}", "Rows that retention removed."),
		losses:      telemetry.Counter(m, telemetry.RelayDataLost, "{loss}", "Streams that lost events."),
		repaired:    telemetry.Counter(m, telemetry.RelayRepaired, "{event}", "Events that are published again because the broker lost them."),
		sent:        telemetry.Counter(m, telemetry.SentMessages, "{message}", "Messages that the broker stored, or that failed."),
		flush:       telemetry.Sizes(m, telemetry.RelayFlushSize, "{event}", "Events that were sent together."),
		commitToAck: telemetry.Seconds(m, telemetry.RelayCommitToAck, "Time from the producer's log to the acknowledgement, for one event of each batch."),
		publish:     telemetry.Seconds(m, telemetry.OperationDuration, "Time from sending to the acknowledgement, for one event of each batch."),
		stored:      outcome("stored"),
		duplicate:   outcome("duplicate"),
		retried:     outcome("retried"),
		held:        outcome("held"),
		died:        outcome("dead"),
		log:         telemetry.With(telemetry.Table.String("outbox")),
		publishing:  telemetry.With(telemetry.System.String(telemetry.NATS), telemetry.Operation.String("publish"), telemetry.OperationType.String("send")),
		streams:     make(map[string]metric.MeasurementOption),
	}
}

// termEnded counts a term that ended because another relay took over.
func (m *metrics) termEnded(ctx context.Context, err error) {
	if errors.Is(err, eventlog.ErrLeaseLost) {
		m.fenced.Add(ctx, 1)
	}
}

// lost counts a stream that lost events.
func (m *metrics) lost(ctx context.Context, v broker.Verdict) {
	m.losses.Add(ctx, 1, telemetry.With(telemetry.Reason.String(string(v))))
}

// published counts the outcomes since the last recording.
func (m *metrics) published(ctx context.Context, c counts) {
	add := func(n int64, outcome metric.MeasurementOption) {
		if n > 0 {
			m.events.Add(ctx, n, outcome)
		}
	}
	add(c.stored, m.stored)
	add(c.duplicate, m.duplicate)
	add(c.retried, m.retried)
	add(c.held, m.held)
	add(c.dead, m.died)
	if c.republished > 0 {
		m.republished.Add(ctx, c.republished)
	}
}

// failed counts a failed publish. If the event is dead now, the method counts that too.
func (m *metrics) failed(ctx context.Context, o broker.Outcome, dead bool) {
	class := telemetry.ErrorType.String(o.ErrorType())
	m.sent.Add(ctx, 1, telemetry.With(telemetry.System.String(telemetry.NATS), telemetry.Operation.String("publish"),
		telemetry.Destination.String(o.Stream), class))
	if dead {
		m.dead.Add(ctx, 1, telemetry.With(telemetry.Handler.String("outbox"), class))
	}
}

// sample measures the times of one event. applyResults calls it once for each batch.
func (m *metrics) sample(ctx context.Context, loggedAt, sent, now time.Time) {
	m.publish.Record(ctx, now.Sub(sent).Seconds(), m.publishing)
	m.commitToAck.Record(ctx, max(0, now.Sub(loggedAt).Seconds()))
}

// acknowledged counts n messages that a stream stored. Only the dispatcher calls it.
func (m *metrics) acknowledged(ctx context.Context, stream string, n int64) {
	option, ok := m.streams[stream]
	if !ok {
		option = telemetry.With(telemetry.System.String(telemetry.NATS), telemetry.Operation.String("publish"), telemetry.Destination.String(stream))
		m.streams[stream] = option
	}
	m.sent.Add(ctx, n, option)
}

// counts has the outcomes since the last recording.
type counts struct{ stored, duplicate, retried, held, dead, republished int64 }

func (c *counts) add(o counts) {
	c.stored += o.stored
	c.duplicate += o.duplicate
	c.retried += o.retried
	c.held += o.held
	c.dead += o.dead
	c.republished += o.republished
}
