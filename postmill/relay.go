package postmill

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/relay/broker"
)

// Metadata that [NewBroker] adds to a message. If an event arrives again, consumers recognise it by
// id and source, which together identify the event.
const (
	MetadataID     = "postroom-id"
	MetadataSource = "postroom-source"
	MetadataType   = "postroom-type"
	MetadataKey    = "postroom-key" // set only if the event has a key
)

// BrokerConfig tunes the publisher that [NewBroker] returns. The zero value is ready to use.
type BrokerConfig struct {
	// TopicOf returns the topic to which an event is published.
	//
	// Defaults to the event's subject, without the "wm." that a [Publisher] puts before a topic.
	TopicOf func(ev postroom.Event) string

	// Classify says what an error of Publish means: for instance [broker.Permanent] for a message
	// that the broker will never accept. [broker.Refused] and [broker.Permanent] count as attempts,
	// and may make the event dead.
	//
	// Defaults to [broker.Unknown] for each error: the broker may have the message or not,
	// and the relay publishes it again until Publish returns nil.
	Classify func(err error) broker.Class

	// Workers is how many calls of Publish may run at the same time.
	//
	// Defaults to 32.
	Workers int

	// Timeout limits a call of Publish. After that time the message's context ends. Most publishers
	// of Watermill obey the context or have their own limit. If a publisher does neither, a call
	// can occupy a worker without limit.
	//
	// Defaults to 30 seconds.
	Timeout time.Duration
}

func (c BrokerConfig) defaults() BrokerConfig {
	if c.TopicOf == nil {
		c.TopicOf = topicOf
	}
	if c.Classify == nil {
		c.Classify = func(error) broker.Class { return broker.Unknown }
	}
	c.Workers = cmp.Or(c.Workers, 32)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	return c
}

// topicOf returns the topic of an event: the event's subject. If a Publisher made the event,
// topicOf removes the prefix of the subject.
func topicOf(ev postroom.Event) string {
	if _, ours := ev.Headers[uuidHeader]; ours {
		return strings.TrimPrefix(ev.Subject, subjectPrefix)
	}
	return ev.Subject
}

// NewBroker returns a publisher for a relay that publishes with a Watermill publisher: to Kafka,
// AMQP, Redis and others. The caller closes pub when the relay has ended.
//
// If pub returns nil only after the broker stored the message, such a relay loses no committed
// event, publishes no event of a transaction that was rolled back, and keeps the order of a key. It
// cannot inspect the broker, so set relay.Config.AcceptRisks to [broker.NotInspected] and
// [broker.NotVerified]. The documentation of this package lists what such a relay cannot do.
//
// A message has the UUID, metadata and payload that a [Publisher] got. If an event was not made
// from a message, the UUID is the event's id, and the metadata is the event's headers. NewBroker adds
// the metadata that this package's constants name.
func NewBroker(pub message.Publisher, cfg BrokerConfig) broker.Publisher {
	return &relayPublisher{pub: pub, cfg: cfg.defaults()}
}

type relayPublisher struct {
	broker.PublishOnly

	pub message.Publisher
	cfg BrokerConfig
}

// Check returns an error if there is no publisher, or if the BrokerConfig has a fault. It does not
// ask the broker, because a Watermill publisher has no method for that.
func (p *relayPublisher) Check(context.Context) error {
	switch {
	case p.pub == nil:
		return postroom.Unrecoverable(errors.New("postmill: NewBroker: there is no publisher"))
	case p.cfg.Workers < 1:
		return postroom.Unrecoverable(errors.New("postmill: BrokerConfig: Workers is negative"))
	case p.cfg.Timeout < 0:
		return postroom.Unrecoverable(errors.New("postmill: BrokerConfig: Timeout is negative"))
	}
	return nil
}

// Run publishes as broker.Publisher describes. The relay has only one event of a key in flight, so
// Run may publish the messages in any order.
func (p *relayPublisher) Run(ctx context.Context, batches <-chan []*broker.Message, report func(*broker.Message, broker.Outcome)) error {
	ctx, cancel := context.WithCancel(ctx)
	run := &relayRun{report: report, open: make(map[*broker.Message]struct{})}
	slots := make(chan struct{}, p.cfg.Workers)
	var working sync.WaitGroup
	defer run.end()
	defer awaitAll(&working)
	defer cancel()
	for {
		var batch []*broker.Message
		select {
		case <-ctx.Done():
			return nil
		case b, more := <-batches:
			if !more {
				return nil
			}
			batch = b
		}
		run.begin(batch)
		for _, m := range batch {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			ev := m.Event.Event
			working.Go(func() {
				defer func() { <-slots }()
				run.tell(m, p.publish(ctx, ev))
			})
		}
	}
}

// publish makes one call of Publish.
func (p *relayPublisher) publish(ctx context.Context, ev postroom.Event) broker.Outcome {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	msg := toMessage(ev)
	identify(msg, ev)
	msg.SetContext(ctx)
	err := guard.Call(func() error { return p.pub.Publish(p.cfg.TopicOf(ev), msg) })
	if err == nil {
		return broker.Outcome{Class: broker.Stored}
	}
	//guard:watermill-an-error-is-unknown 1 = broker.Stored
	o := broker.Outcome{Class: broker.Unknown, Err: err, Reason: "watermill"}
	_ = guard.Call(func() error { // if Classify panics, the class stays Unknown
		o.Class = p.cfg.Classify(err)
		return nil
	})
	if o.Class == broker.BlockedByKey { // only events of an atomic batch may have this class
		o.Class = broker.Unknown
	}
	if o.Class == broker.Stored {
		o.Err, o.Reason = nil, ""
	}
	return o
}

// identify adds metadata that tells consumers which event a message is.
func identify(msg *message.Message, ev postroom.Event) {
	msg.Metadata[MetadataID], msg.Metadata[MetadataSource], msg.Metadata[MetadataType] = ev.ID, ev.Source, ev.Type
	msg.Metadata[MetadataKey] = ev.Key
	//guard:watermill-a-message-that-is-passed-on-has-no-key-of-another false
	if ev.Key == "" {
		delete(msg.Metadata, MetadataKey) // the handler may have passed on a message that has one
	}
}

// endGrace is how long Run waits at its end for calls of Publish whose contexts have ended.
const endGrace = 5 * time.Second

// awaitAll waits until all goroutines have ended, but not longer than endGrace.
func awaitAll(working *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	grace := time.NewTimer(endGrace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
	}
}

// relayRun reports the outcomes of the messages that one call of Run received: one outcome for each
// message.
type relayRun struct {
	report func(*broker.Message, broker.Outcome)

	mu    sync.Mutex
	open  map[*broker.Message]struct{}
	ended bool
}

func (r *relayRun) begin(batch []*broker.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range batch {
		r.open[m] = struct{}{}
	}
}

func (r *relayRun) tell(m *broker.Message, o broker.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	//guard:watermill-nothing-is-reported-late false
	if r.ended { // the relay may already use m for another event
		return
	}
	delete(r.open, m)
	r.report(m, o)
}

// errEnded is the error of a message if Run ended before the publisher answered. The message may
// have been published or not.
var errEnded = errors.New("postmill: the relay stopped before the publisher answered")

// end reports errEnded for messages without an outcome. After that, tell does nothing.
func (r *relayRun) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for m := range r.open {
		//guard:watermill-what-is-left-is-reported remove
		r.report(m, broker.Outcome{Class: broker.Unknown, Err: errEnded})
	}
}
