package postmill

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// ErrClosed is returned by [Subscriber.Subscribe] after [Subscriber.Close].
var ErrClosed = errors.New("postmill: the subscriber is closed")

// SubscriberConfig describes a [Subscriber]. Group is required.
type SubscriberConfig struct {
	// Group names the consumers that share the messages of a topic: letters, digits, '_' and '-',
	// at most 64. Each message is handled once for each group. Group and topic together name a
	// handler of the inbox, and must never change: a group with a new name gets all messages again.
	Group string

	// Stream is the JetStream stream to read.
	//
	// Defaults to the stream that stores the subject of the topic.
	Stream string

	// SubjectOf returns the subject of a topic. It must return the same subject as the publisher's
	// SubjectOf.
	//
	// Defaults to "wm." followed by the topic.
	SubjectOf func(topic string) string

	// Subscription says how messages are handled: workers, order, attempts, schedule, timeout and
	// the like. Subscribe sets Name, Stream, Types and Subjects. Batch is not for subscribers,
	// because an ack commits one message. Workers is the number of messages of a topic that may
	// wait for an ack or nack at the same time, and defaults to 1.
	//
	// Timeout begins when the message is offered on the channel. If the message is not received in
	// that time, or not acked until a little later, the attempt counts as failed: see
	// inbox.Subscription.Timeout. From then on, the message's transaction returns pgx.ErrTxClosed.
	Subscription inbox.Subscription

	// Inbox tunes the inbox that each call of Subscribe runs. Close waits up to Inbox.DrainTimeout
	// for messages that were offered on the channel and have no ack or nack yet, even if they were
	// not received, and then as long as an inbox waits after Timeout for messages that were received.
	// DrainTimeout defaults to 1 second.
	Inbox inbox.Config
}

// validGroup allows no dot, so that no two pairs of group and topic name the same handler.
var validGroup = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

func (c SubscriberConfig) defaults() SubscriberConfig {
	if c.SubjectOf == nil {
		c.SubjectOf = prefixed
	}
	c.Subscription.Workers = cmp.Or(c.Subscription.Workers, 1)
	c.Inbox.DrainTimeout = cmp.Or(c.Inbox.DrainTimeout, time.Second)
	c.Inbox.Logger = cmp.Or(c.Inbox.Logger, slog.Default())
	return c
}

func (c SubscriberConfig) validate() error {
	var faults []error
	add := func(text string) { faults = append(faults, errors.New("config: "+text)) }
	if !validGroup.MatchString(c.Group) {
		add("Group must be 1 to 64 letters, digits, '_' and '-'")
	}
	if s := c.Subscription; s.Name != "" || s.Stream != "" || s.Types != nil || s.Subjects != nil {
		add("Subscription: leave Name, Stream, Types and Subjects empty; Subscribe sets them")
	}
	if c.Subscription.Batch > 1 {
		add("Subscription: Batch is not for subscribers: an ack commits one message")
	}
	return errors.Join(faults...)
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// Subscriber is a Watermill subscriber that delivers each message inside the transaction of an
// inbox. An ack commits the transaction. A nack, the end of Subscription.Timeout, or the end of
// Inbox.DrainTimeout after Close rolls it back. [Tx] returns this transaction from the message's
// context. Changes in it take effect once.
//
// If the transaction of an acked message cannot commit, the message is delivered again. If the
// subscription keeps an order, held messages of a key may share a transaction. A nack of one of
// them also rolls back the messages before it, which are delivered again.
//
// Each call of Subscribe runs its own inbox, which uses one connection of the pool for each worker,
// one more if it keeps an order, and a few for short times. A subscriber may be used concurrently.
type Subscriber struct {
	pool *pgxpool.Pool
	nc   *nats.Conn
	cfg  SubscriberConfig
	err  error // the faults of the Config, or nil

	life    context.Context // this context ends with Close
	end     context.CancelFunc
	mu      sync.Mutex // locked when running grows, and when life ends
	running sync.WaitGroup
}

// NewSubscriber returns a subscriber. It does no I/O and cannot fail: Subscribe returns the faults
// of the Config. Connect nc with natsjs.ConnectOptions.
func NewSubscriber(pool *pgxpool.Pool, nc *nats.Conn, cfg SubscriberConfig) *Subscriber {
	cfg = cfg.defaults()
	life, end := context.WithCancel(context.Background())
	return &Subscriber{pool: pool, nc: nc, cfg: cfg, err: cfg.validate(), life: life, end: end}
}

// Subscribe delivers the messages of a topic until ctx ends or the subscriber is closed. Then the
// channel is closed. The context of each message has the values of ctx, and ends when the message
// is acked or nacked.
//
// Subscribe returns an error if inbox.Inbox.Check returns an error: for instance if the tables, the
// stream or the rights are missing, or if a server cannot be reached. Once the subscription runs,
// it waits for servers that are unavailable.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	if s.life.Err() != nil {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	s.running.Add(1)
	s.mu.Unlock()

	ctx, stop := context.WithCancel(ctx)
	undo := context.AfterFunc(s.life, stop)
	sub := &subscription{values: ctx, stopping: ctx.Done(), messages: make(chan *message.Message)}
	in, err := s.inbox(ctx, topic, sub)
	if err != nil {
		stop()
		undo()
		s.running.Done()
		return nil, err
	}
	go func() {
		defer s.running.Done()
		defer undo()
		defer stop()
		defer close(sub.messages)
		err := in.Run(ctx)
		sub.handling.Wait() // a handler may still use the channel after Run stopped waiting for it
		if err != nil {
			s.cfg.Inbox.Logger.ErrorContext(ctx, "subscription ended", "handler", s.handlerName(topic), "error", err)
		}
	}()
	return sub.messages, nil
}

// initPatience limits the time of SubscribeInitialize, which gets no context.
const initPatience = 30 * time.Second

// SubscribeInitialize returns an error if Subscribe would return one. It creates nothing, because
// the stream must exist already, and keeps messages that are published before the first
// subscription. Make the stream with 'postroom stream ensure' or natsjs.EnsureStream.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if s.life.Err() != nil {
		return ErrClosed
	}
	ctx, cancel := context.WithTimeout(s.life, initPatience)
	defer cancel()
	_, err := s.inbox(ctx, topic, new(subscription))
	return err
}

// inbox returns an inbox that is ready to run.
func (s *Subscriber) inbox(ctx context.Context, topic string, h *subscription) (*inbox.Inbox, error) {
	if s.err != nil {
		return nil, fmt.Errorf("postmill: %w", s.err)
	}
	fail := func(err error) (*inbox.Inbox, error) {
		return nil, fmt.Errorf("postmill: subscribe to %s: %w", topic, err)
	}
	if err := checkTopic(topic); err != nil {
		return fail(err)
	}
	sub := s.cfg.Subscription
	sub.Name, sub.Stream, sub.Subjects = s.handlerName(topic), s.cfg.Stream, []string{s.cfg.SubjectOf(topic)}
	if sub.Stream == "" {
		stream, err := s.streamOf(ctx, sub.Subjects[0])
		if err != nil {
			return fail(err)
		}
		sub.Stream = stream
	}
	in := inbox.New(s.pool, s.nc, s.cfg.Inbox)
	in.Handle(sub, h)
	if err := in.Check(ctx); err != nil {
		return fail(err)
	}
	return in, nil
}

// streamOf returns the stream that stores a subject.
func (s *Subscriber) streamOf(ctx context.Context, subject string) (string, error) {
	js, err := jetstream.New(s.nc)
	if err != nil {
		return "", fmt.Errorf("jetstream: %w", err)
	}
	name, err := js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", fmt.Errorf("no stream stores the subject %s; create one with 'postroom stream ensure' or natsjs.EnsureStream: %w", subject, err)
	}
	if err != nil {
		return "", fmt.Errorf("find the stream of %s: %w", subject, err)
	}
	return name, nil
}

// longestName is the largest length of a handler's name, in bytes.
const longestName = 128

// handlerName names the handler of a topic: the group, a dot, and the topic. If a topic is too
// long, a hash of the topic replaces its end.
func (s *Subscriber) handlerName(topic string) string {
	name := s.cfg.Group + "." + topic
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(topic))
	end := "." + hex.EncodeToString(sum[:16])
	return name[:longestName-len(end)] + end
}

// Close ends all subscriptions, waits for them, and closes their channels. Messages that were
// received can still be acked for the time of SubscriberConfig.Inbox.DrainTimeout and a little
// longer. Messages without an ack or a nack by then are handled again later, and the ended attempt
// does not count as failed. Close may be called more than once.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// subscription is the handler of one topic. It delivers messages, and waits for their acks.
type subscription struct {
	values   context.Context // the context that Subscribe got
	stopping <-chan struct{}
	messages chan *message.Message
	handling sync.WaitGroup
}

// longestGrace is longer than an inbox waits for a handler whose context has ended.
const longestGrace = 10 * time.Second

// Handle delivers an event as a message, and returns nil if the message is acked. The receiver of
// the message uses the transaction until it acks or nacks. So Handle waits for that even after its
// context ended, until the inbox has abandoned it.
func (s *subscription) Handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	failed := new(failure)
	ctx, cancel := context.WithCancel(delivery{tx: tx, event: ev, failed: failed}.in(mergedContext{ctx, ctx, s.values}))
	defer cancel()
	msg := toMessage(ev)
	msg.SetContext(ctx)
	if err := s.send(ctx, msg); err != nil {
		return err
	}
	var late <-chan time.Time
	ended := ctx.Done()
	for {
		select {
		case <-msg.Acked():
			return nil
		case <-msg.Nacked():
			//guard:watermill-a-nack-rolls-back = @1
			return cmp.Or(failed.err, ErrNacked)
		case <-ended:
			//guard:watermill-an-ack-is-waited-for 2 = time.After(0)
			ended, late = nil, time.After(longestGrace)
		case <-late:
			return fmt.Errorf("postmill: the message was neither acked nor nacked: %w", context.Cause(ctx))
		}
	}
}

// send offers a message to the subscriber.
func (s *subscription) send(ctx context.Context, msg *message.Message) error {
	s.handling.Add(1)
	defer s.handling.Done()
	select {
	case s.messages <- msg:
		return nil
	case <-s.stopping:
		//guard:watermill-a-close-is-no-attempt do return ErrClosed
		<-ctx.Done() // an error before the end of ctx would count as a failed attempt
		return context.Cause(ctx)
	case <-ctx.Done():
		return fmt.Errorf("postmill: the message was not received: %w", context.Cause(ctx))
	}
}
