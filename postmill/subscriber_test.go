package postmill_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postmill"
	"github.com/postroom/postroom/schema"
)

// isLong reports whether Watermill's suite runs at full length, which takes minutes.
func isLong() bool { return os.Getenv("POSTROOM_SOAK") == "1" }

// manyConns returns a number of connections that is enough for the suite's subscribers. Each has a
// worker, and at full length there are many more.
func manyConns() int32 {
	if isLong() {
		return 400
	}
	return 80
}

func poolOf(t testing.TB, url string, most int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	must(t, err)
	cfg.MaxConns = most
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// atOnce makes a subscription try again at once and up to 1000 times, because Watermill tries again
// at once and for ever. It never pauses, because the suite has subscribers that nack every message.
func atOnce(sub inbox.Subscription) inbox.Subscription {
	sub.Attempts, sub.Schedule, sub.Pause = 1000, postroom.Backoff{time.Millisecond}, inbox.Pause{Off: true}
	return sub
}

// suiteDatabase returns the URL of a migrated database that allows for many connections.
func suiteDatabase(t *testing.T) string {
	t.Helper()
	if !isLong() {
		return devtest.DatabaseURL(t)
	}
	return durable(t, 500).URL()
}

// durable returns a migrated server that only this test uses. A commit that it answered survives a
// crash.
func durable(t *testing.T, connections int) *devstack.Postgres {
	t.Helper()
	server := devtest.OwnPostgres(t, devstack.Config{Durable: true, MaxConnections: connections})
	pool := poolOf(t, server.URL(), 2)
	_, err := schema.Migrate(t.Context(), pool, "")
	must(t, err)
	return server
}

// quick is the Config of an inbox that closes quickly.
var quick = inbox.Config{AckWait: time.Second, DrainTimeout: 200 * time.Millisecond, IdlePoll: 20 * time.Millisecond}

// Watermill's own tests of a publisher and a subscriber. With exactly-once delivery, the suite
// leaves out two of its tests, and in the others it fails if a message comes twice.
func TestUniversal(t *testing.T) {
	ordered := postmill.PublisherConfig{KeyOf: func(_ string, msg *message.Message) string { return string(msg.Payload) }}
	for _, tt := range []struct {
		name     string
		features tests.Features
		pub      postmill.PublisherConfig
		sub      inbox.Subscription
	}{
		{"at least once", tests.Features{}, postmill.PublisherConfig{}, inbox.Subscription{Workers: 2}},
		{"exactly once", tests.Features{ExactlyOnceDelivery: true}, postmill.PublisherConfig{}, inbox.Subscription{Workers: 2}},
		{"ordered", tests.Features{GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true}, ordered, inbox.Subscription{Order: inbox.HoldKey}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newRigOf(t, poolOf(t, suiteDatabase(t), manyConns()), devtest.OwnNATS(t).URL())
			tt.features.ConsumerGroups, tt.features.Persistent, tt.features.ForceShort = true, true, !isLong()
			tt.pub.Pool = b.pool
			group := func(_ *testing.T, group string) (message.Publisher, message.Subscriber) {
				return postmill.NewPublisher(shop, tt.pub), b.subscriber(postmill.SubscriberConfig{Group: group, Subscription: atOnce(tt.sub)})
			}
			tests.TestPubSub(t, tt.features, func(t *testing.T) (message.Publisher, message.Subscriber) { return group(t, "suite") }, group)
		})
	}
}

func (b rig) subscriber(cfg postmill.SubscriberConfig) *postmill.Subscriber {
	if cfg.Group == "" {
		cfg.Group = "test"
	}
	if cfg.Inbox.AckWait == 0 {
		cfg.Inbox = quick
	}
	return postmill.NewSubscriber(b.pool, b.nc, cfg)
}

// publish writes messages in a transaction of their own.
func (b rig) publish(t testing.TB, topic string, messages ...*message.Message) {
	t.Helper()
	must(t, postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: b.pool}).Publish(topic, messages...))
}

// subscribe subscribes until the test ends.
func subscribe(t testing.TB, sub *postmill.Subscriber, topic string) <-chan *message.Message {
	t.Helper()
	messages, err := sub.Subscribe(context.Background(), topic)
	must(t, err)
	t.Cleanup(func() { must(t, sub.Close()) })
	return messages
}

// receive returns the next message.
func receive(t testing.TB, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-messages:
		if !ok {
			t.Fatal("the channel is closed")
		}
		return msg
	case <-time.After(devtest.Patience(t, 10*time.Second)):
		t.Fatal("no message arrived")
	}
	return nil
}

// note writes a row in the transaction of a message.
func note(t testing.TB, msg *message.Message) {
	t.Helper()
	_, err := postmill.Tx(msg.Context()).Exec(msg.Context(), "INSERT INTO charge VALUES ($1)", msg.UUID)
	must(t, err)
}

func (b rig) withCharges(t testing.TB) rig {
	exec(t, b.pool, "CREATE TABLE charge (id text)")
	return b
}

func (b rig) charges(t testing.TB) int {
	t.Helper()
	return count(t, b.pool, "SELECT count(*) FROM charge")
}

func TestAnAckCommitsAndANackRollsBack(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	messages := subscribe(t, b.subscriber(postmill.SubscriberConfig{Subscription: atOnce(inbox.Subscription{})}), "a")
	want := newMessage("u 1", "x", "k", "v")
	b.publish(t, "a", want)

	for range 2 {
		msg := receive(t, messages)
		wantMessage(t, msg, want)
		note(t, msg)
		msg.Nack()
		<-msg.Context().Done()
	}
	msg := receive(t, messages)
	if n := b.charges(t); n != 0 {
		t.Errorf("%d charges before the ack", n)
	}
	note(t, msg)
	msg.Ack()
	<-msg.Context().Done()
	devtest.Eventually(t, 10*time.Second, "the ack to commit", func() bool { return b.charges(t) == 1 })
}

// After an ack the message's transaction is over. It cannot be used to write in the transaction of
// the next message.
func TestTheTransactionEndsWithTheAck(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	messages := subscribe(t, b.subscriber(postmill.SubscriberConfig{}), "a")
	b.publish(t, "a", newMessage("1", "x"))
	msg := receive(t, messages)
	msg.Ack()
	devtest.Eventually(t, 10*time.Second, "the message to be handled", func() bool { return count(t, b.pool, "SELECT count(*) FROM postroom.inbox") == 1 })
	b.publish(t, "a", newMessage("2", "x"))
	next := receive(t, messages)
	if _, err := postmill.Tx(msg.Context()).Exec(t.Context(), "INSERT INTO charge VALUES ('late')"); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("Exec = %v, want that the transaction is closed", err)
	}
	next.Ack()
	devtest.Eventually(t, 10*time.Second, "the message to be handled", func() bool { return count(t, b.pool, "SELECT count(*) FROM postroom.inbox") == 2 })
	if n := b.charges(t); n != 0 {
		t.Errorf("%d charges", n)
	}
}

// Close does not count as a failed attempt: the next inbox gets the message as if for the first
// time.
func TestCloseRollsBack(t *testing.T) {
	t.Parallel()
	b := newRig(t).withCharges(t)
	first := b.subscriber(postmill.SubscriberConfig{Subscription: inbox.Subscription{Workers: 2, Attempts: 1}})
	messages, err := first.Subscribe(t.Context(), "a")
	must(t, err)
	b.publish(t, "a", newMessage("1", "x"))
	b.publish(t, "a", newMessage("2", "x"))
	msg := receive(t, messages)
	note(t, msg)
	// The second message is offered on the channel, but not received: its transaction is open, too.
	devtest.Eventually(t, 10*time.Second, "both messages to have a transaction", func() bool {
		return count(t, b.pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'") == 2
	})
	must(t, first.Close())
	if !errors.Is(msg.Context().Err(), context.Canceled) {
		t.Error("the message's context has not ended")
	}
	if late, open := <-messages; open {
		t.Errorf("message %s arrived after Close", late.UUID)
	}
	if n := b.charges(t); n != 0 {
		t.Errorf("%d charges", n)
	}
	if _, err := first.Subscribe(t.Context(), "a"); !errors.Is(err, postmill.ErrClosed) {
		t.Errorf("Subscribe = %v, want ErrClosed", err)
	}
	if err := first.SubscribeInitialize("a"); !errors.Is(err, postmill.ErrClosed) {
		t.Errorf("SubscribeInitialize = %v, want ErrClosed", err)
	}
	must(t, first.Close())

	again := subscribe(t, b.subscriber(postmill.SubscriberConfig{Subscription: inbox.Subscription{Workers: 2, Attempts: 1}}), "a")
	for range 2 {
		msg := receive(t, again)
		note(t, msg)
		msg.Ack()
	}
	devtest.Eventually(t, 10*time.Second, "both to be charged", func() bool { return b.charges(t) == 2 })
}

func TestASubscriptionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	sub := b.subscriber(postmill.SubscriberConfig{})
	messages, err := sub.Subscribe(ctx, "a")
	must(t, err)
	other := subscribe(t, sub, "b")
	b.publish(t, "a", newMessage("1", "x"))
	msg := receive(t, messages)
	if msg.Context().Value(key{}) != "value" {
		t.Error("the message's context has no value of the subscription's")
	}
	cancel()
	if _, open := <-messages; open {
		t.Error("the channel is open")
	}
	<-msg.Context().Done()
	b.publish(t, "b", newMessage("2", "x")) // the other subscription still works
	receive(t, other).Ack()
}

// If a message is not acked within Timeout, an attempt has failed, and the message comes again.
func TestAMessageHasItsTime(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	messages := subscribe(t, b.subscriber(postmill.SubscriberConfig{Subscription: atOnce(inbox.Subscription{Timeout: 200 * time.Millisecond})}), "a")
	b.publish(t, "a", newMessage("1", "x"))
	msg := receive(t, messages)
	<-msg.Context().Done()
	again := receive(t, messages)
	again.Ack()
	devtest.Eventually(t, 10*time.Second, "the message to be handled", func() bool {
		return count(t, b.pool, "SELECT count(*) FROM postroom.held") == 0
	})
}

func TestSubscriberRefusesBadSettings(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	for _, tt := range []struct {
		name, topic, says string
		cfg               postmill.SubscriberConfig
	}{
		{"no group", "a", "Group must be", postmill.SubscriberConfig{}},
		{"a group with a dot", "a", "Group must be", postmill.SubscriberConfig{Group: "a.b"}},
		{"a name", "a", "leave Name", postmill.SubscriberConfig{Group: "a", Subscription: inbox.Subscription{Name: "b"}}},
		{"a batch", "a", "Batch is not", postmill.SubscriberConfig{Group: "a", Subscription: inbox.Subscription{Batch: 2}}},
		{"a topic that is no subject", "a/b", "letters, digits", postmill.SubscriberConfig{Group: "a"}},
		{"a subject that no stream takes", "a", "postroom stream ensure", postmill.SubscriberConfig{Group: "a", SubjectOf: func(s string) string { return s }}},
		{"a stream that does not exist", "a", "NOPE", postmill.SubscriberConfig{Group: "a", Stream: "NOPE"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sub := postmill.NewSubscriber(b.pool, b.nc, tt.cfg)
			_, err := sub.Subscribe(t.Context(), tt.topic)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Subscribe = %v, want it to say %q", err, tt.says)
			}
			if initialize := sub.SubscribeInitialize(tt.topic); fmt.Sprint(initialize) != fmt.Sprint(err) {
				t.Errorf("SubscribeInitialize = %v, want %v", initialize, err)
			}
			must(t, sub.Close())
		})
	}
	must(t, b.subscriber(postmill.SubscriberConfig{}).SubscribeInitialize("a"))
	if n := count(t, b.pool, "SELECT count(*) FROM postroom.subscription"); n != 0 {
		t.Errorf("SubscribeInitialize made %d subscriptions", n)
	}
}

// Effects on a key are committed in the order of the key, even if some messages are nacked at
// first. A message may come again until its transaction commits, because held messages of a key
// share a transaction.
func TestTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	exec(t, b.pool, "CREATE TABLE effect (id serial, key text, n int)")
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{
		Pool: b.pool, KeyOf: func(_ string, msg *message.Message) string { return msg.Metadata.Get("key") },
	})
	const keys, each = 5, 40
	var messages []*message.Message
	for i := range each {
		for k := range keys {
			messages = append(messages, newMessage(fmt.Sprintf("%d-%d", k, i), fmt.Sprint(i), "key", fmt.Sprint(k)))
		}
	}
	must(t, pub.Publish("a", messages...))
	received := subscribe(t, b.subscriber(postmill.SubscriberConfig{Subscription: atOnce(inbox.Subscription{Order: inbox.HoldKey, Workers: 4})}), "a")
	nacked := map[string]bool{}
	for n, done := 0, false; !done; n++ {
		select {
		case msg := <-received:
			_, err := postmill.Tx(msg.Context()).Exec(msg.Context(), "INSERT INTO effect (key, n) VALUES ($1, $2::text::int)", msg.Metadata.Get("key"), string(msg.Payload))
			must(t, err)
			if n%7 == 3 && !nacked[msg.UUID] {
				nacked[msg.UUID] = true
				msg.Nack()
				continue
			}
			msg.Ack()
		case <-time.After(100 * time.Millisecond): // all may be committed
			done = count(t, b.pool, "SELECT count(*) FROM effect") >= keys*each
		}
	}
	wrong := count(t, b.pool, "SELECT count(*) FROM (SELECT n, row_number() OVER (PARTITION BY key ORDER BY id) - 1 AS place FROM effect) AS e WHERE n <> place")
	if n := count(t, b.pool, "SELECT count(*) FROM effect"); wrong != 0 || n != keys*each || len(nacked) == 0 {
		t.Errorf("%d effects, %d out of order, %d nacked", n, wrong, len(nacked))
	}
}
