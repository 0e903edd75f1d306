package postmill_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postmill"
)

// Watermill's middleware Timeout ends the context of a message when the handler returns. The
// messages that the handler returned are published all the same.
func TestARouterWithATimeout(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	sub := b.subscriber(postmill.SubscriberConfig{Subscription: inbox.Subscription{Attempts: 1}, Inbox: quietConfig})
	route(t, sub, postmill.NewPublisher(shop, postmill.PublisherConfig{}), charge, postmill.Middleware, middleware.Timeout(5*time.Second))
	b.publish(t, "order.placed", newMessage("1", "x"))
	devtest.Eventually(t, 10*time.Second, "the event to be decided", func() bool {
		return count(t, b.pool, "SELECT count(*) FROM postroom.inbox") == 1
	})
	if n := b.charges(t); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
	written(t, b.pool, 2)
}

// A handler may return its message, or a message with the context of its message, and this context has ended
// with the middleware Timeout.
func TestARouterThatPassesMessagesOnAfterATimeout(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]message.HandlerFunc{
		"the message": message.PassthroughHandler,
		"a copy": func(m *message.Message) ([]*message.Message, error) {
			return message.Messages{m.CopyWithContext()}, nil
		},
		"with its context": func(m *message.Message) ([]*message.Message, error) {
			return message.Messages{message.NewMessageWithContext(m.Context(), "2", nil)}, nil
		},
		"with a context of it": func(m *message.Message) ([]*message.Message, error) {
			made := newMessage("2", "x")
			made.SetContext(postmill.WithTx(m.Context(), postmill.Tx(m.Context())))
			return message.Messages{made}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRig(t)
			sub := b.subscriber(postmill.SubscriberConfig{Subscription: inbox.Subscription{Attempts: 1}, Inbox: quietConfig})
			route(t, sub, postmill.NewPublisher(shop, postmill.PublisherConfig{}), h, postmill.Middleware, middleware.Timeout(time.Minute))
			b.publish(t, "order.placed", newMessage("1", "x"))
			devtest.Eventually(t, 20*time.Second, "the event to be decided", func() bool {
				return count(t, b.pool, "SELECT count(*) FROM postroom.inbox") == 1
			})
			written(t, b.pool, 2)
		})
	}
}

// A Router has many middlewares, and its handlers fail, panic, are slow, and use contexts that end.
// Each message that is good has one charge and one message of its own.
func TestARouterWithManyMiddlewares(t *testing.T) {
	t.Parallel()
	rnd := devtest.Random(t, 0)
	b := newRig(t).withCharges(t)
	sub := b.subscriber(postmill.SubscriberConfig{
		Subscription: inbox.Subscription{Attempts: 20, Workers: 3, Timeout: 2 * time.Second, Schedule: postroom.Backoff{time.Millisecond}, Pause: inbox.Pause{Off: true}},
		Inbox:        quietConfig,
	})
	var mu sync.Mutex
	draw := func() int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(8)
	}
	spans := func(h message.HandlerFunc) message.HandlerFunc { // as middleware for traces does
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithCancel(msg.Context())
			defer cancel()
			msg.SetContext(context.WithValue(ctx, middleware.RecoveredPanicError{}, "a span"))
			return h(msg)
		}
	}
	route(t, sub, postmill.NewPublisher(shop, postmill.PublisherConfig{}), func(msg *message.Message) ([]*message.Message, error) {
		produced, err := charge(msg)
		if err != nil {
			return nil, err
		}
		switch draw() {
		case 0:
			return produced, errors.New("no")
		case 1:
			panic("no")
		case 2:
			msg.Nack()
			return produced, nil
		case 3:
			<-msg.Context().Done()
			return nil, msg.Context().Err()
		case 4:
			_, err := postmill.Tx(msg.Context()).Exec(msg.Context(), "SELECT 1 / $1::int", 0)
			return produced, err
		case 5:
			for _, m := range produced {
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				m.SetContext(ended)
			}
		}
		return produced, nil
	}, postmill.Middleware, middleware.Recoverer, middleware.CorrelationID, spans, middleware.NewThrottle(500, time.Second).Middleware,
		middleware.Timeout(300*time.Millisecond), middleware.Recoverer)
	const n = 20
	for i := range n {
		b.publish(t, "order.placed", newMessage(fmt.Sprint(i), "x"))
	}
	devtest.Eventually(t, 60*time.Second, "all to be decided", func() bool {
		return count(t, b.pool, "SELECT count(*) FROM postroom.inbox") == n && count(t, b.pool, "SELECT count(*) FROM postroom.held") == 0
	})
	if got := b.charges(t); got != n {
		t.Errorf("%d charges, want %d", got, n)
	}
	written(t, b.pool, 2*n)
}

// A handler returns for each event the same message, as it may with the other brokers of Watermill. The
// message still has the context of the event before, with a transaction that has ended.
func TestAHandlerThatReturnsOneMessageForEachEvent(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(*message.Message) *message.Message{
		"a message of its own": func(*message.Message) *message.Message { return newMessage("made", "x") },
		"its first message":    func(m *message.Message) *message.Message { return m },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRig(t)
			sub := b.subscriber(postmill.SubscriberConfig{Subscription: inbox.Subscription{Attempts: 1}, Inbox: quietConfig})
			var kept *message.Message
			route(t, sub, postmill.NewPublisher(shop, postmill.PublisherConfig{}), func(m *message.Message) ([]*message.Message, error) {
				if kept == nil {
					kept = made(m)
				}
				return message.Messages{kept}, nil
			}, postmill.Middleware)
			b.publish(t, "order.placed", newMessage("1", "x"), newMessage("2", "x"), newMessage("3", "x"))
			devtest.Eventually(t, 20*time.Second, "the events to be decided", func() bool {
				return count(t, b.pool, "SELECT count(*) FROM postroom.inbox") == 3
			})
			all := written(t, b.pool, 6)
			for i, ev := range all[3:] {
				if ev.CausationID != all[i].ID {
					t.Errorf("message %d is caused by %s, want %s", i, ev.CausationID, all[i].ID)
				}
			}
		})
	}
}
