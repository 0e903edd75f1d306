package postmill

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbox"
)

// PublisherConfig tunes a [Publisher]. The zero value is ready to use.
type PublisherConfig struct {
	// Pool allows Publish to write messages whose contexts have no transaction. Publish then writes
	// the messages of one call in a transaction of its own. That transaction commits even if the
	// change that the messages announce does not commit. So leave Pool nil in a service whose
	// messages announce changes in its database.
	//
	// If a Router publishes a message that a handler of a [Subscriber] returned, the message needs
	// the handler's transaction, even if Pool is set.
	//
	// Defaults to nil: Publish returns [ErrNoTx].
	Pool *pgxpool.Pool

	// Dedupe makes the event's id from the message's UUID and topic. If a message is published
	// twice on one topic, it is one event: the outbox drops the second message. If two messages
	// have the same UUID and topic but different contents, Publish returns
	// [postroom.ErrEventConflict]. Publish also drops or refuses a message that you publish again
	// on purpose.
	//
	// Defaults to false: each published message is a new event.
	Dedupe bool

	// SubjectOf returns the subject to which the relay publishes the messages of a topic.
	//
	// Defaults to "wm." followed by the topic.
	SubjectOf func(topic string) string

	// TypeOf returns the type of a message's event.
	//
	// Defaults to the topic.
	TypeOf func(topic string, msg *message.Message) string

	// KeyOf returns the key of a message's event. Events with the same key are published
	// in the order in which they were written.
	//
	// Defaults to no key, and no order.
	KeyOf func(topic string, msg *message.Message) string
}

func (c PublisherConfig) defaults() PublisherConfig {
	if c.SubjectOf == nil {
		c.SubjectOf = prefixed
	}
	if c.TypeOf == nil {
		c.TypeOf = func(topic string, _ *message.Message) string { return topic }
	}
	if c.KeyOf == nil {
		c.KeyOf = func(string, *message.Message) string { return "" }
	}
	return c
}

var _ message.Publisher = (*Publisher)(nil)

// Publisher is a Watermill publisher that writes to an outbox. A relay publishes the messages after
// the transaction has committed. A Publisher may be used concurrently if each goroutine has its own
// transaction.
type Publisher struct {
	out *outbox.Outbox
	cfg PublisherConfig
}

// NewPublisher returns a publisher. It does no I/O.
func NewPublisher(out *outbox.Outbox, cfg PublisherConfig) *Publisher {
	return &Publisher{out: out, cfg: cfg.defaults()}
}

// Publish writes each message in the transaction of the message's context: see [WithTx]. If a
// message has no transaction and PublisherConfig.Pool is nil, Publish writes nothing and returns
// [ErrNoTx]. After ErrNoTx, and after an error that matches [postroom.ErrInvalidEvent], the
// transaction can still be used. After any other error, it cannot be committed.
//
// UUID, metadata and payload arrive unchanged at a [Subscriber] or [Handler].
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	err := p.publish(topic, messages)
	if err != nil && len(messages) > 0 {
		//guard:watermill-a-dead-letter-shows-the-error-of-publish remove
		deliveryOf(messages[0].Context()).note(err)
	}
	return err
}

func (p *Publisher) publish(topic string, messages []*message.Message) error {
	for _, m := range messages {
		//guard:watermill-no-transaction-no-message 2.2 false
		if deliveryOf(m.Context()).tx == nil && (p.cfg.Pool == nil || isOfSubscriber(m.Context())) {
			return ErrNoTx
		}
	}
	events, err := p.events(topic, messages)
	if err != nil {
		return err
	}
	for begin := 0; begin < len(messages); {
		tx := deliveryOf(messages[begin].Context()).tx
		end := begin + 1
		for end < len(messages) && deliveryOf(messages[end].Context()).tx == tx {
			end++
		}
		if err := p.write(contextOf(messages[begin:end]), tx, events[begin:end]); err != nil {
			return fmt.Errorf("postmill: publish to %s: %w", topic, err)
		}
		begin = end
	}
	return nil
}

// contextOf returns the context in which messages are written together. If an event has no trace,
// the outbox gives it the trace of this context. But a message without a trace must not get the
// trace of another message. So if there is a message without a trace, contextOf returns that
// message's context.
func contextOf(messages []*message.Message) context.Context {
	for _, m := range messages {
		if !trace.SpanContextFromContext(m.Context()).IsValid() {
			return m.Context()
		}
	}
	return messages[0].Context()
}

// write writes events in tx. If tx is nil, write begins and commits its own transaction.
func (p *Publisher) write(ctx context.Context, tx pgx.Tx, events []postroom.Event) error {
	if tx != nil {
		return p.out.Write(ctx, tx, events...)
	}
	return pgx.BeginFunc(ctx, p.cfg.Pool, func(tx pgx.Tx) error { return p.out.Write(ctx, tx, events...) })
}

// subscriberName is the name that a Router uses for a Subscriber.
var subscriberName = strings.TrimPrefix(fmt.Sprintf("%T", (*Subscriber)(nil)), "*")

// isOfSubscriber reports whether a Router publishes a message that a handler of a Subscriber
// returned. ctx is the message's context.
func isOfSubscriber(ctx context.Context) bool {
	return message.SubscriberNameFromCtx(ctx) == subscriberName
}

// events returns the events for messages.
func (p *Publisher) events(topic string, messages []*message.Message) ([]postroom.Event, error) {
	if err := checkTopic(topic); err != nil {
		return nil, fmt.Errorf("postmill: publish: %w", err)
	}
	events := make([]postroom.Event, len(messages))
	for i, m := range messages {
		ev, err := p.event(topic, m)
		if err != nil {
			return nil, fmt.Errorf("postmill: publish message %q to %s: %w", m.UUID, topic, err)
		}
		events[i] = ev
	}
	return events, nil
}

func (p *Publisher) event(topic string, m *message.Message) (postroom.Event, error) {
	ev := postroom.Event{Type: p.cfg.TypeOf(topic, m), Subject: p.cfg.SubjectOf(topic), Key: p.cfg.KeyOf(topic, m)}
	if err := setContent(&ev, m); err != nil {
		return ev, err
	}
	if p.cfg.Dedupe {
		if m.UUID == "" {
			return ev, fmt.Errorf("%w: it has no UUID, but Dedupe makes the event's id from the UUID", postroom.ErrInvalidEvent)
		}
		ev.ID = m.UUID + "@" + topic
	}
	if cause, ok := Event(m.Context()); ok {
		ev.CausationID = cause.ID
		ev.CorrelationID = cmp.Or(ev.CorrelationID, cause.CorrelationID, cause.ID)
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(m.Context(), carrier)
	ev.TraceParent, ev.TraceState = carrier["traceparent"], carrier["tracestate"]
	if len(ev.TraceState) > postroom.MaxTraceState {
		ev.TraceState = ""
	}
	return ev, nil
}

// Close does nothing: a publisher has no resources to free, and several handlers of a Router may
// share it. Close may be called more than once.
func (p *Publisher) Close() error { return nil }

// In returns a publisher that writes every message in tx, even if the message's context has
// another transaction.
func (p *Publisher) In(tx pgx.Tx) message.Publisher {
	bound := inTx{Publisher: p}
	if tx != nil {
		bound.write = func(ctx context.Context, events []postroom.Event) error { return p.out.Write(ctx, tx, events...) }
	}
	return bound
}

// InSQL is [Publisher.In] for a transaction of database/sql.
func (p *Publisher) InSQL(tx outbox.SQLTx) message.Publisher {
	bound := inTx{Publisher: p}
	if tx != nil {
		bound.write = func(ctx context.Context, events []postroom.Event) error { return p.out.WriteSQL(ctx, tx, events...) }
	}
	return bound
}

// inTx publishes in one transaction.
type inTx struct {
	*Publisher

	write func(ctx context.Context, events []postroom.Event) error // write is nil if there is no transaction
}

func (p inTx) Publish(topic string, messages ...*message.Message) error {
	if p.write == nil {
		return ErrNoTx
	}
	events, err := p.events(topic, messages)
	if err != nil || len(events) == 0 {
		return err
	}
	if err := p.write(contextOf(messages), events); err != nil {
		return fmt.Errorf("postmill: publish to %s: %w", topic, err)
	}
	return nil
}
