package postmill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/postmill"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/schema"
)

// charge is a Watermill handler that has an effect and returns a message.
func charge(msg *message.Message) ([]*message.Message, error) {
	_, err := postmill.Tx(msg.Context()).Exec(msg.Context(), "INSERT INTO charge VALUES ($1)", msg.UUID)
	return []*message.Message{newMessage("charge of "+msg.UUID, string(msg.Payload))}, err
}

func withCharges(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := devtest.Pool(t)
	exec(t, pool, "CREATE TABLE charge (id text)")
	return pool
}

var order = postroom.Event{
	ID: "e-1", Source: "/shop", Type: "order.placed", Key: "o-1", Data: []byte("4200"),
	Headers: map[string]string{"watermill-uuid": "u-1", "watermill-metadata": `{"a b":"c"}`},
}

func TestAHandlerAndItsMessagesAreOneTransaction(t *testing.T) {
	t.Parallel()
	pool := withCharges(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{})
	h := postmill.Handler(pub, "charge.made", func(msg *message.Message) ([]*message.Message, error) {
		wantMessage(t, msg, newMessage("u-1", "4200", "a b", "c"))
		if ev, ok := postmill.Event(msg.Context()); !ok || ev.ID != "e-1" || ev.Key != "o-1" {
			t.Errorf("event %v %+v", ok, ev)
		}
		return charge(msg)
	})
	if r := postroomtest.Apply(t, pool, h, order); r.Outcome != postroomtest.Applied {
		t.Fatalf("%+v", r)
	}
	if r := postroomtest.Apply(t, pool, h, order); r.Outcome != postroomtest.Duplicate {
		t.Errorf("%+v", r)
	}
	ev := written(t, pool, 1)[0]
	if ev.Type != "charge.made" || ev.CausationID != "e-1" || ev.CorrelationID != "e-1" || ev.Headers["watermill-uuid"] == "" {
		t.Errorf("event %+v", ev)
	}
	if n := count(t, pool, "SELECT count(*) FROM charge"); n != 1 {
		t.Errorf("%d charges", n)
	}
}

func TestAHandlerThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	failed := errors.New("card declined")
	for _, tt := range []struct {
		name    string
		topic   string
		h       message.HandlerFunc
		outcome postroomtest.Outcome
		err     error
	}{
		{"an error", "charge.made", func(msg *message.Message) ([]*message.Message, error) {
			produced, err := charge(msg)
			return produced, errors.Join(err, failed)
		}, postroomtest.Retried, failed},
		{"a permanent error", "charge.made", func(msg *message.Message) ([]*message.Message, error) {
			produced, err := charge(msg)
			return produced, errors.Join(err, postroom.Permanent(failed))
		}, postroomtest.Dead, failed},
		{"a nack", "charge.made", func(msg *message.Message) ([]*message.Message, error) {
			produced, err := charge(msg)
			msg.Nack()
			return produced, err
		}, postroomtest.Retried, postmill.ErrNacked},
		{"messages and no topic", "", charge, postroomtest.Dead, message.ErrOutputInNoPublisherHandler},
		{"a message that cannot be published", "charge/made", charge, postroomtest.Retried, postroom.ErrInvalidEvent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := withCharges(t)
			pub := postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: pool})
			r := postroomtest.Apply(t, pool, postmill.Handler(pub, tt.topic, tt.h), order)
			if r.Outcome != tt.outcome || !errors.Is(r.Err, tt.err) {
				t.Errorf("%+v, want %s of %v", r, tt.outcome, tt.err)
			}
			written(t, pool, 0)
			if n := count(t, pool, "SELECT count(*) FROM charge"); n != 0 {
				t.Errorf("%d charges", n)
			}
		})
	}
}

func TestAHandlerWithoutMessagesNeedsNoPublisher(t *testing.T) {
	t.Parallel()
	pool := withCharges(t)
	h := postmill.Handler(nil, "", func(msg *message.Message) ([]*message.Message, error) {
		_, err := charge(msg)
		return nil, err
	})
	if r := postroomtest.Apply(t, pool, h, order); r.Outcome != postroomtest.Applied {
		t.Errorf("%+v", r)
	}
}

// Only the inbox ends the transaction. The message's context ends when the handler returns.
func TestAHandlerDoesNotEndTheTransaction(t *testing.T) {
	t.Parallel()
	pool := withCharges(t)
	var kept context.Context
	h := postmill.Handler(nil, "", func(msg *message.Message) ([]*message.Message, error) {
		kept = msg.Context()
		if err := postmill.Tx(kept).Commit(kept); !errors.Is(err, inbox.ErrTxOwned) {
			t.Errorf("Commit = %v, want ErrTxOwned", err)
		}
		return nil, kept.Err()
	})
	if r := postroomtest.Apply(t, pool, h, order); r.Outcome != postroomtest.Applied {
		t.Errorf("%+v", r)
	}
	if !errors.Is(kept.Err(), context.Canceled) {
		t.Error("the message's context has not ended")
	}
}

// If the connection breaks at any statement, the event is handled once, and its message is
// written once.
func TestHandlerIsAppliedOnceIfCutAtEachStatement(t *testing.T) {
	t.Parallel()
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{})
	h := postmill.Handler(pub, "charge.made", charge)
	postroomtest.Crash(t, postroomtest.Scenario{
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, "CREATE TABLE charge (id text)")
			return err
		},
		Run: func(ctx context.Context, pool *pgxpool.Pool) error { return postroomtest.Deliver(ctx, pool, h, order) },
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		var charges, events int
		err := pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM charge), (SELECT count(*) FROM postroom.outbox)").Scan(&charges, &events)
		if err == nil && (charges != 1 || events != 1) {
			err = fmt.Errorf("%d charges and %d events", charges, events)
		}
		return err
	})
}

func TestTheMiddlewareNeedsATransaction(t *testing.T) {
	t.Parallel()
	h := postmill.Middleware(func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler was called")
		return nil, nil
	})
	if _, err := h(newMessage("1", "x")); !errors.Is(err, postmill.ErrNoTx) {
		t.Errorf("error %v, want ErrNoTx", err)
	}
}

// Messages that a handler returns are written in its transaction, even if the handler gave them new
// contexts.
func TestTheMiddlewarePassesTheTransactionOn(t *testing.T) {
	t.Parallel()
	pool := withCharges(t)
	type key struct{}
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{})
	must(t, inTx(t, pool, func(tx pgx.Tx) error {
		ctx, cancel := context.WithTimeout(postmill.WithTx(t.Context(), tx), time.Minute)
		defer cancel()
		msg := newMessage("1", "x")
		msg.SetContext(ctx)
		produced, err := postmill.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			own := newMessage("2", "y")
			own.SetContext(context.WithValue(context.Background(), key{}, "own"))
			return []*message.Message{own, msg}, nil
		})(msg)
		must(t, err)
		if got := produced[0].Context(); got.Value(key{}) != "own" || postmill.Tx(got) != tx {
			t.Error("the context has lost its value, or has no transaction")
		}
		if _, ok := produced[0].Context().Deadline(); !ok {
			t.Error("the context does not end with that of the handler")
		}
		return pub.Publish("a", produced...)
	}))
	written(t, pool, 2)
}

func TestTheMiddlewareReturnsAPanic(t *testing.T) {
	t.Parallel()
	pool := withCharges(t)
	must(t, inTx(t, pool, func(tx pgx.Tx) error {
		msg := in(t.Context(), tx, newMessage("1", "x"))[0]
		produced, err := postmill.Middleware(func(*message.Message) ([]*message.Message, error) { panic("oh") })(msg)
		if err == nil || !strings.Contains(err.Error(), "panic: oh") || produced != nil {
			t.Errorf("error %v and %v", err, produced)
		}
		return nil
	}))
}

// A handler without a Router returns the same message for each event, or for each attempt at one.
func TestHandlerReturnsOneMessageForEachEvent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	kept := newMessage("made", "x")
	h := postmill.Handler(postmill.NewPublisher(shop, postmill.PublisherConfig{}), "charge.made", func(*message.Message) ([]*message.Message, error) {
		return message.Messages{kept}, nil
	})
	for range 3 {
		must(t, inTx(t, pool, func(tx pgx.Tx) error { return h.Handle(t.Context(), tx, postroom.NewEvent("order.placed", nil)) }))
	}
	written(t, pool, 3)
}

// An inbox does not start if a handler's messages go to an outbox of another schema.
func TestInboxRefusesAHandlerOfAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := schema.Migrate(t.Context(), pool, "tenant"); err != nil {
		t.Fatal(err)
	}
	for name, refused := range map[string]bool{"": false, "tenant": true} {
		pub := postmill.NewPublisher(outbox.New(outbox.Config{Source: "/shop", Schema: name}), postmill.PublisherConfig{})
		in := inbox.New(pool, nil, inbox.Config{})
		in.Handle(inbox.Subscription{Name: "h"}, postmill.Handler(pub, "charge.made", charge))
		err := in.Check(t.Context())
		if refused != errors.Is(err, postroom.ErrUnrecoverable) || refused && (!strings.Contains(err.Error(), "schema tenant") || !strings.Contains(err.Error(), "schema postroom")) {
			t.Errorf("an outbox of schema %q: %v, refused: %t", name, err, refused)
		}
	}
}
