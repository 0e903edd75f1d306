package demo

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Message is the part of a stream's message that proofs need.
type Message struct {
	Seq    uint64
	Header nats.Header
}

// ID is the id of the event.
func (m Message) ID() string { return m.Header.Get("ce-id") }

// Type is the type of the event.
func (m Message) Type() string { return m.Header.Get("ce-type") }

// Key is the key of the event.
func (m Message) Key() string { return m.Header.Get("ce-partitionkey") }

// StreamLength returns how many messages a stream has now.
func StreamLength(ctx context.Context, nc *nats.Conn, name string) (int, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", name, err)
	}
	return int(stream.CachedInfo().State.Msgs), nil //nolint:gosec // not that many
}

// ReadStream reads the headers of all messages that a stream has now.
func ReadStream(ctx context.Context, nc *nats.Conn, name string) ([]Message, error) {
	length, err := StreamLength(ctx, nc, name)
	if err != nil || length == 0 {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	reader, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	messages, err := reader.Messages()
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	defer messages.Stop()
	all := make([]Message, 0, length)
	for len(all) < length {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read stream %s, after %d of %d messages: %w", name, len(all), length, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("read stream %s: metadata: %w", name, err)
		}
		all = append(all, Message{Seq: meta.Sequence.Stream, Header: msg.Headers()})
	}
	return all, nil
}
