package postmill_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postmill"
)

// quietConfig is the Config of an inbox whose handlers fail on purpose. It does not log.
var quietConfig = inbox.Config{AckWait: time.Second, DrainTimeout: 200 * time.Millisecond, IdlePoll: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}

// route runs a Router with one handler until the test ends.
func route(t testing.TB, sub message.Subscriber, pub message.Publisher, h message.HandlerFunc, middleware ...message.HandlerMiddleware) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	must(t, err)
	router.AddMiddleware(middleware...)
	router.AddHandler("billing", "order.placed", sub, "charge.made", pub, h)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	t.Cleanup(func() {
		must(t, router.Close())
		must(t, <-ended)
	})
	devtest.Receive(t, 10*time.Second, "the Router to run", router.Running())
}

// Without the middleware, messages that a handler returns have no transaction. Then they are not
// published, not even in a transaction of their own, and the event fails until it is dead.
func TestARouterWithoutTheMiddleware(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	sub := b.subscriber(postmill.SubscriberConfig{Subscription: inbox.Subscription{Attempts: 1}, Inbox: quietConfig})
	route(t, sub, postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: b.pool}), charge)
	b.publish(t, "order.placed", newMessage("1", "x"))
	devtest.Eventually(t, 10*time.Second, "the event to be dead", func() bool {
		return count(t, b.pool, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND failures::text ~ 'nacked'") == 1
	})
	if n := b.charges(t); n != 0 {
		t.Errorf("%d charges", n)
	}
	written(t, b.pool, 1) // only the message that the test published
}

// With the middleware, a handler's effect and its messages commit together, and an operator sees
// the handler's error.
func TestARouterWithTheMiddleware(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	sub := b.subscriber(postmill.SubscriberConfig{Subscription: inbox.Subscription{Attempts: 1}, Inbox: quietConfig})
	route(t, sub, postmill.NewPublisher(shop, postmill.PublisherConfig{}), func(msg *message.Message) ([]*message.Message, error) {
		produced, err := charge(msg)
		if msg.UUID == "2" {
			panic("the card reader is off")
		}
		return produced, err
	}, postmill.Middleware)
	b.publish(t, "order.placed", newMessage("1", "x"), newMessage("2", "x"))
	devtest.Eventually(t, 10*time.Second, "both to be decided", func() bool {
		return b.charges(t) == 1 && count(t, b.pool, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND failures::text ~ 'the card reader is off'") == 1
	})
	written(t, b.pool, 3)
}
