package postmill_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postroom/postroom"
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

// A Router's handler is slower than the subscription's Timeout, and goes on. Nothing panics. The
// Subscriber waits until the handler is done, so an ack that comes only a little late still counts.
func TestARoutersHandlerThatIsTooSlow(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	sub := inbox.Subscription{Attempts: 2, Timeout: 300 * time.Millisecond, Workers: 2, Schedule: postroom.Backoff{time.Millisecond}, Pause: inbox.Pause{Off: true}}
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{})
	var late atomic.Int64
	route(t, b.subscriber(postmill.SubscriberConfig{Subscription: sub, Inbox: quietConfig}), pub, func(msg *message.Message) ([]*message.Message, error) {
		_, err := charge(msg)
		if string(msg.Payload) == "late" {
			<-msg.Context().Done()
			late.Add(1)
			return nil, nil // the Router acks
		}
		for err == nil && string(msg.Payload) == "slow" { // with no context that ends
			_, err = postmill.Tx(msg.Context()).Exec(context.Background(), "SELECT 1")
		}
		return nil, err
	}, postmill.Middleware)
	b.publish(t, "order.placed", newMessage("late", "late"))
	for i := range 6 {
		b.publish(t, "order.placed", newMessage(fmt.Sprint("slow ", i), "slow"), newMessage(fmt.Sprint("good ", i), "good"))
	}
	devtest.Eventually(t, 20*time.Second, "the slow ones to be dead, and the others to be done", func() bool {
		return b.charges(t) == 7 && count(t, b.pool, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL") == 6
	})
	if n := late.Load(); n != 1 {
		t.Errorf("the message that was acked a little late was handled %d times", n)
	}
}

// A Router closes while its handlers are busy with the transaction. Nothing panics, all connections
// come back, and another Router handles what was not done.
func TestARouterThatClosesWhileItIsBusy(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{})
	sub := inbox.Subscription{Workers: 4, Timeout: time.Second, Pause: inbox.Pause{Off: true}}
	for i := range 4 {
		b.publish(t, "order.placed", newMessage(fmt.Sprint(i), "x"))
	}
	var busy sync.WaitGroup
	busy.Add(4)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	must(t, err)
	router.AddMiddleware(postmill.Middleware)
	router.AddHandler("billing", "order.placed", b.subscriber(postmill.SubscriberConfig{Subscription: sub, Inbox: quietConfig}), "charge.made", pub,
		func(msg *message.Message) ([]*message.Message, error) {
			_, err := charge(msg)
			busy.Done()
			for err == nil {
				_, err = postmill.Tx(msg.Context()).Exec(context.Background(), "SELECT 1")
			}
			return nil, err
		})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	busy.Wait()
	must(t, router.Close())
	must(t, <-ended)
	devtest.Eventually(t, 10*time.Second, "all connections to be back", func() bool { return b.pool.Stat().AcquiredConns() == 0 })
	if n := b.charges(t); n != 0 {
		t.Errorf("%d charges of handlers that did not end", n)
	}
	route(t, b.subscriber(postmill.SubscriberConfig{Subscription: sub, Inbox: quietConfig}), pub, charge, postmill.Middleware)
	devtest.Eventually(t, 60*time.Second, "all messages to be handled", func() bool { return b.charges(t) == 4 })
}
