package postmill_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/postmill"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// publishFunc is a Watermill publisher of one function.
type publishFunc func(topic string, msg *message.Message) error

func (f publishFunc) Publish(topic string, messages ...*message.Message) error {
	if len(messages) != 1 {
		return fmt.Errorf("%d messages", len(messages))
	}
	return f(topic, messages[0])
}

func (publishFunc) Close() error { return nil }

// running is a call of a publisher's Run that has not ended.
type running struct {
	batches chan []*broker.Message
	stop    context.CancelFunc
	ended   chan error

	mu       sync.Mutex
	outcomes map[*broker.Message][]broker.Outcome
}

func runPublisher(p broker.Publisher) *running {
	ctx, stop := context.WithCancel(context.Background())
	r := &running{batches: make(chan []*broker.Message), stop: stop, ended: make(chan error, 1), outcomes: map[*broker.Message][]broker.Outcome{}}
	go func() {
		r.ended <- p.Run(ctx, r.batches, func(m *broker.Message, o broker.Outcome) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.outcomes[m] = append(r.outcomes[m], o)
		})
	}()
	return r
}

// only returns the outcome of a message. It fails the test unless there is exactly one.
func (r *running) only(t *testing.T, m *broker.Message) broker.Outcome {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.outcomes[m]) != 1 {
		t.Fatalf("outcomes of %s: %v, want one", m.ID, r.outcomes[m])
	}
	return r.outcomes[m][0]
}

func outgoing(id string) *broker.Message {
	return &broker.Message{Event: broker.Event{Event: postroom.Event{ID: id, Source: "/shop", Type: "order.placed", Subject: "order.placed", Data: []byte(id)}}}
}

// After any error the broker may have the message, unless Classify says otherwise.
func TestErrorOfPublishLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	failed := errors.New("no")
	classify := func(c broker.Class) func(error) broker.Class { return func(error) broker.Class { return c } }
	for _, tt := range []struct {
		name     string
		publish  publishFunc
		classify func(error) broker.Class
		want     broker.Class
	}{
		{"none", func(string, *message.Message) error { return nil }, nil, broker.Stored},
		{"some", func(string, *message.Message) error { return failed }, nil, broker.Unknown},
		{"a panic", func(string, *message.Message) error { panic("oh") }, nil, broker.Unknown},
		{"permanent", func(string, *message.Message) error { return failed }, classify(broker.Permanent), broker.Permanent},
		{"a class of batches", func(string, *message.Message) error { return failed }, classify(broker.BlockedByKey), broker.Unknown},
		{"no error after all", func(string, *message.Message) error { return failed }, classify(broker.Stored), broker.Stored},
		{"Classify panics", func(string, *message.Message) error { return failed }, func(error) broker.Class { panic("oh") }, broker.Unknown},
		{"Publish and Classify of none", func(string, *message.Message) error { return nil }, classify(broker.Permanent), broker.Stored},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := runPublisher(postmill.NewBroker(tt.publish, postmill.BrokerConfig{Classify: tt.classify}))
				m := outgoing("1")
				r.batches <- []*broker.Message{m}
				synctest.Wait()
				if o := r.only(t, m); o.Class != tt.want || (o.Err == nil) != (tt.want == broker.Stored) || (o.ErrorType() == "") != (o.Err == nil) {
					t.Errorf("outcome %+v, want %s", o, tt.want)
				}
				close(r.batches)
				must(t, <-r.ended)
			})
		})
	}
}

// Run reports each message that it received exactly once, even those that it could no longer
// publish. It reports none after it returned.
func TestTheEndOfARelaysRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		obeys bool // whether the publisher obeys the context, as it should
		took  time.Duration
	}{{"of a publisher that heeds the context", true, 0}, {"of one that does not", false, 5 * time.Second}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, hangs := 0, make(chan struct{})
				r := runPublisher(postmill.NewBroker(publishFunc(func(_ string, msg *message.Message) error {
					begun++ // Workers is 1
					if tt.obeys {
						<-msg.Context().Done()
						return msg.Context().Err()
					}
					<-hangs
					return nil
				}), postmill.BrokerConfig{Workers: 1, Timeout: time.Hour}))
				batch := []*broker.Message{outgoing("1"), outgoing("2"), outgoing("3")}
				r.batches <- batch
				synctest.Wait()
				if begun != 1 {
					t.Errorf("%d calls of Publish at a time, want 1", begun)
				}
				stopped := time.Now()
				r.stop()
				must(t, <-r.ended)
				if took := time.Since(stopped); took != tt.took {
					t.Errorf("Run ended after %s, want %s", took, tt.took)
				}
				close(hangs) // the answer comes after the end of Run
				synctest.Wait()
				for _, m := range batch {
					if o := r.only(t, m); o.Class != broker.Unknown {
						t.Errorf("outcome %+v of message %s, want %s", o, m.ID, broker.Unknown)
					}
				}
			})
		})
	}
}

// If a call of Publish takes too long, its context ends, and later messages are published.
func TestPublishHasItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runPublisher(postmill.NewBroker(publishFunc(func(_ string, msg *message.Message) error {
			if string(msg.Payload) == "slow" {
				<-msg.Context().Done()
				return msg.Context().Err()
			}
			return nil
		}), postmill.BrokerConfig{Workers: 1}))
		slow, next := outgoing("slow"), outgoing("next")
		began := time.Now()
		r.batches <- []*broker.Message{slow, next}
		close(r.batches)
		must(t, <-r.ended)
		if o := r.only(t, slow); o.Class != broker.Unknown || !errors.Is(o.Err, context.DeadlineExceeded) || time.Since(began) != 30*time.Second {
			t.Errorf("outcome %+v after %s, want %s after 30s", o, time.Since(began), broker.Unknown)
		}
		if o := r.only(t, next); o.Class != broker.Stored {
			t.Errorf("outcome %+v of the next message", o)
		}
	})
}

func TestRelayRefusesBadSettings(t *testing.T) {
	t.Parallel()
	fine := publishFunc(func(string, *message.Message) error { return nil })
	for name, p := range map[string]broker.Publisher{
		"no publisher": postmill.NewBroker(nil, postmill.BrokerConfig{}),
		"workers":      postmill.NewBroker(fine, postmill.BrokerConfig{Workers: -1}),
		"timeout":      postmill.NewBroker(fine, postmill.BrokerConfig{Timeout: -1}),
	} {
		if err := p.Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) {
			t.Errorf("%s: Check = %v, want ErrUnrecoverable", name, err)
		}
	}
	p := postmill.NewBroker(fine, postmill.BrokerConfig{})
	must(t, p.Check(t.Context()))
	if able := p.Abilities(); able.Inspects || able.Verifies || able.Batches {
		t.Errorf("Abilities %+v, want none", able)
	}
	pool := withCharges(t)
	// A relay begins only if its Config accepts both risks of such a publisher.
	for _, accepted := range [][]broker.Risk{nil, {broker.NotInspected}, {broker.NotVerified}} {
		err := relay.New(pool, p, relay.Config{AcceptRisks: accepted}).Run(t.Context())
		if !errors.Is(err, postroom.ErrUnrecoverable) {
			t.Errorf("with %v accepted: Run = %v, want ErrUnrecoverable", accepted, err)
		}
	}
}

// The broker publishes the messages of a Publisher unchanged. Other events become messages too. The
// metadata of each message identifies its event.
func TestRelayPublishesMessagesAsTheyCame(t *testing.T) {
	t.Parallel()
	pool := withCharges(t)
	pub := postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: pool, KeyOf: func(_ string, msg *message.Message) string { return msg.Metadata.Get("order") }})
	ours := newMessage("u 1", "\x00x", "a b", "c", "order", "o-1")
	must(t, pub.Publish("order.placed", ours))
	ev := postroom.NewEvent("order.paid", "o-1")
	ev.Headers = map[string]string{"tenant": "a"}
	must(t, inTx(t, pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, ev) }))
	log := written(t, pool, 2)

	var mu sync.Mutex
	var topics []string
	came := map[string]*message.Message{}
	p := postmill.NewBroker(publishFunc(func(topic string, msg *message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		topics = append(topics, topic)
		came[topic] = msg
		return nil
	}), postmill.BrokerConfig{})
	postroomtest.Drain(t, relay.New(pool, p, relay.Config{AcceptRisks: []broker.Risk{broker.NotInspected, broker.NotVerified}}))
	if len(topics) != 2 || came["order.placed"] == nil || came["order.paid"] == nil {
		t.Fatalf("published to %q", topics)
	}
	identity := func(ev postroom.Event) map[string]string {
		return map[string]string{"postroom-id": ev.ID, "postroom-source": "/shop", "postroom-type": ev.Type}
	}
	want := newMessage("u 1", "\x00x")
	maps.Copy(want.Metadata, identity(log[0]))
	maps.Copy(want.Metadata, ours.Metadata)
	want.Metadata[postmill.MetadataKey] = "o-1"
	wantMessage(t, came["order.placed"], want)
	want = newMessage(ev.ID, `"o-1"`, "tenant", "a")
	want.UUID = log[1].ID
	maps.Copy(want.Metadata, identity(log[1]))
	wantMessage(t, came["order.paid"], want)
}
