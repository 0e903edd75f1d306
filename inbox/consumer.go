package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wildcard"
)

// ErrForeignConsumer says that the durable consumer of a handler belongs to
// another Postroom: its ledger knows nothing of what this one decided.
var ErrForeignConsumer = errors.New("the durable consumer belongs to another Postroom instance")

// consumer is one handler at work. It implements postroom.Runner.
type consumer struct {
	inbox   *Inbox
	sub     Subscription
	handler postroom.Handler
	log     *slog.Logger
	metrics handlerMetrics
	workers int

	streamCreated time.Time // tells two streams of one name apart
	begun         time.Time // when the durable consumer was made; zero while it was not seen
}

// Run handles events until ctx ends. Where the consumer is lost, it is made
// again, and the ledger absorbs what is delivered twice.
func (c *consumer) Run(ctx context.Context) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		durable, err := c.ensure(ctx)
		if err == nil {
			err = c.receive(ctx, durable)
		}
		if errors.Is(err, postroom.ErrRefused) {
			return fmt.Errorf("handler %s: %w", c.sub.Name, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > time.Minute {
			failures = 1
		}
		c.log.WarnContext(ctx, "reading interrupted, will begin again", "error", err, "failures", failures)
		sleep(ctx, outage.Delay(failures))
	}
	return nil
}

// ensure finds or makes the durable consumer.
func (c *consumer) ensure(ctx context.Context) (jetstream.Consumer, error) {
	var instance string
	if err := c.inbox.pool.QueryRow(ctx, c.inbox.sql.instance).Scan(&instance); err != nil {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	js, err := jetstream.New(c.inbox.nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, c.sub.Stream)
	if err != nil {
		return nil, c.refuseClosed(fmt.Errorf("look up stream %s: %w", c.sub.Stream, err))
	}
	c.streamCreated = stream.CachedInfo().Created

	want := c.config(instance)
	durable, err := stream.Consumer(ctx, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		durable, err = stream.CreateConsumer(ctx, want)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", want.Durable, err)
	}
	return c.adopt(ctx, stream, durable, want)
}

// adopt takes a consumer that exists: it must be ours, and its filter is
// widened where this process asks for more. It is never narrowed: an older
// process may still ask for the rest.
func (c *consumer) adopt(ctx context.Context, stream jetstream.Stream, durable jetstream.Consumer, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	now := durable.CachedInfo().Config
	if now.Metadata[instanceKey] != want.Metadata[instanceKey] || now.Metadata[handlerKey] != c.sub.Name {
		return nil, postroom.Refuse(fmt.Errorf("%w: %s on stream %s", ErrForeignConsumer, want.Durable, c.sub.Stream))
	}
	have := now.FilterSubjects
	if now.FilterSubject != "" {
		have = []string{now.FilterSubject}
	}
	all := wildcard.Union(have, want.FilterSubjects)
	if c.begun.IsZero() {
		c.begun = durable.CachedInfo().Created
	}
	if slices.Equal(all, have) && now.AckWait == want.AckWait && now.MaxDeliver == want.MaxDeliver && now.MaxAckPending == want.MaxAckPending {
		return durable, nil
	}
	now.FilterSubject, now.FilterSubjects = "", all
	now.AckWait, now.MaxDeliver, now.MaxAckPending, now.BackOff = want.AckWait, want.MaxDeliver, want.MaxAckPending, nil
	durable, err := stream.UpdateConsumer(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("update consumer %s: %w", want.Durable, err)
	}
	return durable, nil
}

// refuseClosed marks an error on a closed connection: nobody opens it again.
func (c *consumer) refuseClosed(err error) error {
	if c.inbox.nc.IsClosed() {
		return postroom.Refuse(fmt.Errorf("%w: %w", nats.ErrConnectionClosed, err))
	}
	return err
}

const (
	instanceKey = "postroom-instance"
	handlerKey  = "postroom-handler"
)

// config returns the consumer as it should be. Attempts are not the broker's to
// count: MaxDeliver would drop an event without a word. Nor are failed events,
// which are pending until their next attempt: MaxAckPending would let a thousand
// of them stop all others. A consumer that is made a second time begins where
// the first did.
func (c *consumer) config(instance string) jetstream.ConsumerConfig {
	deliver, since := jetstream.DeliverAllPolicy, (*time.Time)(nil)
	switch {
	case c.sub.From == OnlyNew && c.begun.IsZero():
		deliver = jetstream.DeliverNewPolicy
	case c.sub.From == OnlyNew:
		deliver, since = jetstream.DeliverByStartTimePolicy, &c.begun
	}
	return jetstream.ConsumerConfig{
		Durable:        consumerName(instance, c.sub.Name),
		Description:    "Postroom handler " + c.sub.Name,
		DeliverPolicy:  deliver,
		OptStartTime:   since,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        c.inbox.cfg.AckWait,
		MaxDeliver:     -1,
		MaxAckPending:  -1,
		FilterSubjects: wildcard.Union(nil, c.sub.filter()), // overlapping ones are refused
		Metadata:       map[string]string{instanceKey: instance, handlerKey: c.sub.Name},
	}
}

// consumerName returns the durable name of a handler: readable, and unlike that
// of any other handler or of another database on the same stream.
func consumerName(instance, handler string) string {
	readable := strings.ReplaceAll(handler, ".", "-") // a dot separates the tokens of a subject
	sum := sha256.Sum256([]byte(instance + "\x00" + handler))
	return readable + "-" + hex.EncodeToString(sum[:4])
}
