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
