package postmill_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/sony/gobreaker"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postmill"
)

var errDeclined = errors.New("the card is declined")

// Each middleware of Watermill has the effect that the page about the migration names. The handler fails
// after its change in the first attempt of each event.
func TestARouterWithEachMiddleware(t *testing.T) {
	t.Parallel()
	poison := func(b rig) message.HandlerMiddleware {
		m, err := middleware.PoisonQueue(postmill.NewPublisher(shop, postmill.PublisherConfig{}), "poison")
		must(t, err)
		return m
	}
	fixed := func(m message.HandlerMiddleware) func(rig) message.HandlerMiddleware {
		return func(rig) message.HandlerMiddleware { return m }
	}
	tests := []struct {
		name       string
		middleware func(b rig) message.HandlerMiddleware
		charges    int // of one event that fails once
		written    int // the event, and what is published
	}{
		{"CircuitBreaker", fixed(middleware.NewCircuitBreaker(gobreaker.Settings{}).Middleware), 1, 2},
		{"CorrelationID", fixed(middleware.CorrelationID), 1, 2},
		{"DelayOnError", fixed((&middleware.DelayOnError{InitialInterval: time.Hour}).Middleware), 1, 2},
		{"RandomFail", fixed(middleware.RandomFail(0.2)), 1, 2},
		{"RandomPanic", fixed(middleware.RandomPanic(0.2)), 1, 2},
		{"Recoverer", fixed(middleware.Recoverer), 1, 2},
		{"Throttle", fixed(middleware.NewThrottle(1000, time.Second).Middleware), 1, 2},
		{"Timeout", fixed(middleware.Timeout(time.Minute)), 1, 2},

		// The page says to remove these.
		{"Deduplicator", fixed((&middleware.Deduplicator{}).Middleware), 0, 1},
		{"Duplicator", fixed(middleware.Duplicator), 2, 3},
		{"IgnoreErrors", fixed(middleware.NewIgnoreErrors([]error{errDeclined}).Middleware), 1, 2},
		{"InstantAck", fixed(middleware.InstantAck), -1, 1}, // the transaction may commit before or after the charge
		{"PoisonQueue", poison, 1, 3},
		{"Retry", fixed(middleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}.Middleware), 2, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newRig(t).withCharges(t)
			sub := b.subscriber(postmill.SubscriberConfig{
				Subscription: inbox.Subscription{Attempts: 30, Schedule: postroom.Backoff{time.Millisecond}, Pause: inbox.Pause{Off: true}},
				Inbox:        quietConfig,
			})
			var failed atomic.Bool
			route(t, sub, postmill.NewPublisher(shop, postmill.PublisherConfig{}), func(msg *message.Message) ([]*message.Message, error) {
				produced, err := charge(msg)
				if err == nil && !failed.Swap(true) {
					err = errDeclined
				}
				return produced, err
			}, postmill.Middleware, tt.middleware(b))
			b.publish(t, "order.placed", newMessage("1", "x"))
			devtest.Eventually(t, 20*time.Second, "the event to be decided", func() bool {
				return count(t, b.pool, "SELECT count(*) FROM postroom.inbox") == 1 && count(t, b.pool, "SELECT count(*) FROM postroom.held") == 0
			})
			if n := b.charges(t); n != tt.charges && tt.charges >= 0 {
				t.Errorf("%d charges, want %d", n, tt.charges)
			}
			written(t, b.pool, tt.written)
		})
	}
}

// If what a handler returned cannot be published, an operator sees why, and the error decides whether
// there is another attempt.
func TestARouterThatCannotPublish(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	sub := b.subscriber(postmill.SubscriberConfig{
		Subscription: inbox.Subscription{Attempts: 3, Schedule: postroom.Backoff{time.Millisecond}, Pause: inbox.Pause{Off: true}}, Inbox: quietConfig,
	})
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{KeyOf: func(topic string, _ *message.Message) string {
		if topic == "charge.made" {
			return strings.Repeat("k", postroom.MaxKey+1)
		}
		return ""
	}})
	route(t, sub, pub, charge, postmill.Middleware)
	b.publish(t, "order.placed", newMessage("1", "x"))
	devtest.Eventually(t, 20*time.Second, "the event to be dead", func() bool {
		return count(t, b.pool, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND failures::text LIKE '%Key%'") == 1
	})
	if n := b.charges(t); n != 0 {
		t.Errorf("%d charges", n)
	}
}

// A statement that outlasts the subscription's Timeout is one attempt.
func TestATimeoutWithinAStatementIsOneAttempt(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	sub := b.subscriber(postmill.SubscriberConfig{
		Subscription: inbox.Subscription{Attempts: 2, Timeout: 200 * time.Millisecond, Schedule: postroom.Backoff{time.Millisecond}, Pause: inbox.Pause{Off: true}}, Inbox: quietConfig,
	})
	var runs atomic.Int64
	route(t, sub, postmill.NewPublisher(shop, postmill.PublisherConfig{}), func(msg *message.Message) ([]*message.Message, error) {
		runs.Add(1)
		_, err := postmill.Tx(msg.Context()).Exec(msg.Context(), "SELECT pg_sleep(600)")
		return nil, err
	}, postmill.Middleware)
	b.publish(t, "order.placed", newMessage("1", "x"))
	devtest.Eventually(t, 20*time.Second, "the event to be dead", func() bool {
		return count(t, b.pool, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL") == 1
	})
	if n := runs.Load(); n != 2 {
		t.Errorf("%d runs, want one for each of two attempts", n)
	}
}
