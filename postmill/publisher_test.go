package postmill_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postmill"
)

// in sets the transaction of messages.
func in(ctx context.Context, tx pgx.Tx, messages ...*message.Message) []*message.Message {
	for _, m := range messages {
		m.SetContext(postmill.WithTx(ctx, tx))
	}
	return messages
}

func TestPublishWritesInTheTransaction(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{})
	rolledBack := errors.New("no")
	err := inTx(t, pool, func(tx pgx.Tx) error {
		must(t, pub.Publish("order.placed", in(t.Context(), tx, newMessage("1", "x"))...))
		return rolledBack
	})
	if !errors.Is(err, rolledBack) {
		t.Fatal(err)
	}
	written(t, pool, 0)

	must(t, inTx(t, pool, func(tx pgx.Tx) error {
		return pub.Publish("order.placed", in(t.Context(), tx, newMessage("1", "x"), newMessage("1", "y"))...)
	}))
	for i, ev := range written(t, pool, 2) {
		if ev.Type != "order.placed" || ev.Subject != "wm.order.placed" || string(ev.Data) != "xy"[i:i+1] || ev.Key != "" ||
			ev.ContentType != "application/octet-stream" || ev.ID == "1" || ev.Headers["watermill-uuid"] != "1" {
			t.Errorf("event %+v", ev)
		}
	}
}

func TestMessagesOfOneCallMayHaveDifferentTransactions(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{})
	kept, err := pool.Begin(t.Context())
	must(t, err)
	lost, err := pool.Begin(t.Context())
	must(t, err)
	messages := append(in(t.Context(), kept, newMessage("1", "a")), in(t.Context(), lost, newMessage("2", "b"))...)
	messages = append(messages, in(t.Context(), kept, newMessage("3", "c"))...)
	must(t, pub.Publish("a", messages...))
	must(t, lost.Rollback(t.Context()))
	must(t, kept.Commit(t.Context()))
	events := written(t, pool, 2)
	if string(events[0].Data)+string(events[1].Data) != "ac" {
		t.Errorf("events %s and %s", events[0].Data, events[1].Data)
	}
}

// To publish outside of the transaction is the bug that an outbox prevents.
func TestPublishWithoutATransactionFails(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{})
	must(t, inTx(t, pool, func(tx pgx.Tx) error {
		messages := append(in(t.Context(), tx, newMessage("1", "x")), newMessage("2", "y"))
		if err := pub.Publish("a", messages...); !errors.Is(err, postmill.ErrNoTx) {
			t.Errorf("Publish = %v, want ErrNoTx", err)
		}
		return nil
	}))
	for name, none := range map[string]message.Publisher{"In": pub.In(nil), "InSQL": pub.InSQL(nil)} {
		if err := none.Publish("a", newMessage("1", "x")); !errors.Is(err, postmill.ErrNoTx) {
			t.Errorf("%s(nil): Publish = %v, want ErrNoTx", name, err)
		}
	}
	written(t, pool, 0)
	must(t, pub.Publish("a")) // without a message, no transaction is needed
}

func TestAPoolIsATransactionOfItsOwn(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: pool})
	must(t, pub.Publish("a", newMessage("1", "x"), newMessage("2", "y")))
	written(t, pool, 2)

	// A call writes all of its messages or none. Here the last message has too much metadata.
	err := pub.Publish("a", newMessage("3", "x"), newMessage("4", "y", "large", strings.Repeat("x", postroom.MaxHeaderBytes)))
	if !errors.Is(err, postroom.ErrInvalidEvent) {
		t.Errorf("Publish = %v, want ErrInvalidEvent", err)
	}
	written(t, pool, 2)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	late := newMessage("5", "x")
	late.SetContext(ctx)
	if err := pub.Publish("a", late); !errors.Is(err, context.Canceled) {
		t.Errorf("Publish = %v, want that the context ended", err)
	}
	written(t, pool, 2)

	// A transaction in the context comes first.
	rolledBack := errors.New("no")
	_ = inTx(t, pool, func(tx pgx.Tx) error {
		must(t, pub.Publish("a", in(t.Context(), tx, newMessage("6", "x"))...))
		return rolledBack
	})
	written(t, pool, 2)
}

func TestInWritesInOneTransaction(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: pool})
	must(t, inTx(t, pool, func(tx pgx.Tx) error {
		bound := pub.In(tx)
		must(t, bound.Publish("a"))
		must(t, bound.Publish("a", newMessage("1", "x"), newMessage("2", "y")))
		if n := count(t, pool, "SELECT count(*) FROM postroom.outbox"); n != 0 {
			t.Errorf("%d events are committed already", n)
		}
		return errors.Join(bound.Close(), bound.Close())
	}))
	written(t, pool, 2)

	db := stdlib.OpenDBFromPool(pool)
	defer func() { must(t, db.Close()) }()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, pub.InSQL(tx).Publish("a", newMessage("3", "x")))
	must(t, tx.Rollback())
	written(t, pool, 2)
	tx, err = db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, pub.InSQL(tx).Publish("a", newMessage("3", "x")))
	must(t, tx.Commit())
	written(t, pool, 3)
}

// A UUID identifies an event only if Dedupe is set.
func TestDedupe(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	again := []*message.Message{newMessage("1", "x"), newMessage("1", "x")}
	plain := postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: pool})
	must(t, plain.Publish("a", again...))
	must(t, plain.Publish("b", again...))
	written(t, pool, 4)

	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: pool, Dedupe: true})
	must(t, pub.Publish("a", again...))
	must(t, pub.Publish("a", again[0]))
	must(t, pub.Publish("b", again...))
	events := written(t, pool, 6)
	if events[4].ID != "1@a" || events[5].ID != "1@b" {
		t.Errorf("ids %q and %q", events[4].ID, events[5].ID)
	}
	if err := pub.Publish("a", newMessage("1", "y")); !errors.Is(err, postroom.ErrEventConflict) {
		t.Errorf("Publish of another content = %v, want ErrEventConflict", err)
	}
	for _, uuid := range []string{"", "has space", "has#"} {
		if err := pub.Publish("a", newMessage(uuid, "y")); !errors.Is(err, postroom.ErrInvalidEvent) {
			t.Errorf("Publish with UUID %q = %v, want ErrInvalidEvent", uuid, err)
		}
	}
	written(t, pool, 6)
}

func TestMessageHasThePropertiesOfItsEvent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{
		Pool:      pool,
		SubjectOf: func(topic string) string { return "shop." + topic },
		TypeOf:    func(topic string, msg *message.Message) string { return msg.Metadata.Get("name") },
		KeyOf:     func(topic string, msg *message.Message) string { return topic + "/" + msg.Metadata.Get("order") },
	})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	msg := newMessage("1", "{}", "name", "OrderPlaced", "order", "o-1", "content-type", "application/json", "correlation_id", "c-1")
	msg.SetContext(trace.ContextWithSpanContext(t.Context(), span))
	odd := newMessage("2", "x", "name", "b", "content-type", "application/cloudevents+json", "correlation_id", strings.Repeat("c", 300))
	must(t, pub.Publish("orders", msg, odd))
	events := written(t, pool, 2)
	if ev := events[0]; ev.Subject != "shop.orders" || ev.Type != "OrderPlaced" || ev.Key != "orders/o-1" || ev.ContentType != "application/json" ||
		ev.CorrelationID != "c-1" || ev.CausationID != "" || !strings.Contains(ev.TraceParent, span.TraceID().String()) {
		t.Errorf("event %+v", ev)
	}
	// Values that an event cannot have stay only in the metadata. The event has the trace of its
	// own message, which here has none.
	if ev := events[1]; ev.ContentType != "application/octet-stream" || ev.CorrelationID != "" || ev.TraceParent != "" {
		t.Errorf("event %+v", ev)
	}
}

func TestMessagesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{})
	must(t, inTx(t, pool, func(tx pgx.Tx) error {
		for _, tt := range []struct {
			topic, says string
			msg         *message.Message
		}{
			{"orders/placed", "letters, digits", newMessage("1", "x")},
			{"", "topic", newMessage("1", "x")},
			{"orders.*", "letters, digits", newMessage("1", "x")},
			{"orders", "UTF-8", newMessage("1", "x", "k", "\xff")},
			{"orders", "UTF-8", newMessage("1", "x", "\xff", "v")},
			{"orders", "UTF-8", newMessage("\xff", "x")},
			{"orders", "bytes", newMessage("1", strings.Repeat("x", postroom.MaxData+1))},
		} {
			err := pub.Publish(tt.topic, in(t.Context(), tx, tt.msg)...)
			if !errors.Is(err, postroom.ErrInvalidEvent) || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("Publish to %q = %v, want ErrInvalidEvent and %q", tt.topic, err, tt.says)
			}
		}
		return pub.Publish("orders", in(t.Context(), tx, newMessage("1", "x"))...) // the transaction can still be used
	}))
	written(t, pool, 1)
	must(t, errors.Join(pub.Close(), pub.Close()))
}

func TestTxPanicsWithoutATransaction(t *testing.T) {
	t.Parallel()
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "no transaction") {
			t.Errorf("panic %v", v)
		}
	}()
	postmill.Tx(t.Context())
}

// A publisher does not change the messages that it gets.
func TestPublishLeavesTheMessageAsItIs(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	msg := newMessage("1", "x", "a", "b")
	want := maps.Clone(msg.Metadata)
	must(t, postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: pool}).Publish("a", msg))
	if !maps.Equal(msg.Metadata, want) {
		t.Errorf("metadata %v", msg.Metadata)
	}
}
