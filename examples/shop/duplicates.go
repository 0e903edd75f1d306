package main

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	copyEvery  = 20 // one of this many order events is delivered twice
	copyHeader = "shop-copy"
)

// copier delivers events twice on purpose. It reads the stream and publishes one event in twenty
// again, under a message id that the broker does not know. A killed relay can cause the same: it
// published an event and did not record that, so the next relay publishes the event again. If the
// broker's duplicate window is over by then, the stream has the event twice. The copier implements
// postroom.Runner.
type copier struct {
	nc   *nats.Conn
	seen atomic.Int64 // order events that the copier read, without copies
	sent atomic.Int64 // copies that the broker stored
}

// Run publishes copies until ctx ends.
func (c *copier) Run(ctx context.Context) error {
	if err := c.run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("copier: %w", err)
	}
	return nil
}

func (c *copier) run(ctx context.Context) error {
	js, err := jetstream.New(c.nc)
	if err != nil {
		return err
	}
	reader, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{orderPlaced.Name()}})
	if err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	messages, err := reader.Messages()
	if err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("next message: %w", err)
		}
		if err := c.consider(ctx, js, msg); err != nil {
			return err
		}
	}
}

// consider publishes a copy of one message in twenty. It never copies a copy.
func (c *copier) consider(ctx context.Context, js jetstream.JetStream, msg jetstream.Msg) error {
	if msg.Headers().Get(copyHeader) != "" {
		return nil
	}
	if c.seen.Load()%copyEvery == 0 {
		header := maps.Clone(msg.Headers())
		header.Set(jetstream.MsgIDHeader, header.Get(jetstream.MsgIDHeader)+"-copy")
		header.Set(copyHeader, "1")
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: msg.Subject(), Header: header, Data: msg.Data()}); err != nil {
			return fmt.Errorf("publish copy: %w", err)
		}
		c.sent.Add(1)
	}
	c.seen.Add(1) // last, so that a reader of seen and then sent counts the copies of all seen events
	return nil
}
