// Package messages reads the headers of a stream's messages. It does not take the messages away
// from handlers.
package messages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Reader reads the headers of a stream's messages with its own consumer. It acknowledges no
// message.
type Reader struct {
	nc       *nats.Conn
	stream   jetstream.Stream
	consumer jetstream.Consumer
	pending  uint64
}

// Message is a message of a stream, without its data.
type Message struct {
	Seq     uint64
	Subject string
	Header  nats.Header
	Stored  time.Time
}

// forgetAfter is how long the server keeps an unused consumer that Close did not remove.
const forgetAfter = 5 * time.Second

// Open returns a reader that begins at the message that cfg selects.
func Open(ctx context.Context, nc *nats.Conn, stream jetstream.Stream, cfg jetstream.ConsumerConfig) (*Reader, error) {
	cfg.Description = "Postroom reads headers; the consumer is removed automatically"
	cfg.AckPolicy = jetstream.AckNonePolicy
	cfg.HeadersOnly, cfg.MemoryStorage, cfg.Replicas = true, true, 1
	cfg.InactiveThreshold = forgetAfter
	consumer, err := stream.CreateConsumer(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("make a consumer to read headers: %w", err)
	}
	return &Reader{nc: nc, stream: stream, consumer: consumer, pending: consumer.CachedInfo().NumPending}, nil
}

// Pending returns the number of messages that Next has not returned yet.
func (r *Reader) Pending() uint64 { return r.pending }

// Next returns the next messages, at most n. It returns no message if there are no more, or if none
// comes within a second.
func (r *Reader) Next(ctx context.Context, n int) (all []Message, err error) {
	if r.pending < uint64(n) { //nolint:gosec // a small number
		n = int(r.pending) //nolint:gosec // a small number
	}
	if n == 0 {
		return nil, nil
	}
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = Fetch(within, r.nc, r.consumer, n, func(msg *nats.Msg, meta *nats.MsgMetadata) (bool, error) {
		all = append(all, Message{meta.Sequence.Stream, msg.Subject, msg.Header, meta.Timestamp})
		r.pending = meta.NumPending
		return true, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return all, err
}

// Close removes the consumer.
func (r *Reader) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = r.stream.DeleteConsumer(ctx, r.consumer.CachedInfo().Name) // if this fails, the server removes the consumer after forgetAfter
}
