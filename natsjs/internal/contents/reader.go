// Package contents reads which events a stream has.
package contents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/messages"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/relay/broker"
)

const (
	// pageSize is the largest number of messages of a page. One request gets one page. The constant
	// silence is how long the broker may take to send a page.
	pageSize = 5000
	silence  = 30 * time.Second

	// Time limits to create a consumer, and to delete it.
	createTimeout = 10 * time.Second
	deleteTimeout = 5 * time.Second
)

// The error codes with which the broker refuses the consumer if the stream is a work queue, because
// a consumer of a work queue must acknowledge.
const (
	codePulledQueue = 10084
	codeWorkQueue   = 10098
)

// errGap means that messages were lost between the broker and this process.
var errGap = errors.New("messages were lost on their way from the broker")

// Read begins to read the headers of a stream's messages, as [broker.Publisher] describes for
// ReadStored. It creates a consumer, which the function stop removes. If the stream is a work
// queue, the broker refuses the consumer, and the function next returns no messages. A work queue
// does not keep consumed messages anyway.
func Read(ctx context.Context, js jetstream.JetStream, stream string, span broker.SeqRange) (next func(ctx context.Context) ([]broker.StoredMessage, error), stop func(), err error) {
	cfg := jetstream.ConsumerConfig{
		Description: "postroom relay: what the stream has", AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: 2 * silence,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(span.From, 1),
	}
	if !span.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &span.Since
	}
	within, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	consumer, err := js.CreateConsumer(within, stream, cfg)
	var refused *jetstream.APIError
	switch {
	//guard:a-work-queue-is-not-read = @1 && @2.1.1 == 0
	case errors.As(err, &refused) && (refused.ErrorCode == codePulledQueue || refused.ErrorCode == codeWorkQueue):
		return (&reader{}).next, func() {}, nil // nothing is pending
	case err != nil:
		return nil, nil, explain(stream, err)
	}
	r := &reader{nc: js.Conn(), consumer: consumer, to: span.To, pending: consumer.CachedInfo().NumPending}
	stop = func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
		defer cancel()
		_ = js.DeleteConsumer(within, stream, consumer.CachedInfo().Name) // the broker removes the consumer after a minute anyway
	}
	return r.next, stop, nil
}

// explain adds to a timeout the permission that may be missing.
func explain(stream string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("read stream %s: %w (may this user publish to $JS.API.CONSUMER.>?)", stream, err)
	}
	return fmt.Errorf("read stream %s: %w", stream, err)
}

// reader reads the messages of a consumer, page by page.
type reader struct {
	nc       *nats.Conn
	consumer jetstream.Consumer
	to       uint64
	pending  uint64 // messages that the consumer has not sent
	got      uint64 // the number that the consumer gave the last message
}

func (r *reader) next(ctx context.Context) ([]broker.StoredMessage, error) {
	if r.pending == 0 {
		return nil, nil
	}
	page, err := r.fetch(ctx, int(min(r.pending, pageSize))) //nolint:gosec // a page
	if err != nil {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	return page, nil
}

// fetch reads n messages.
func (r *reader) fetch(ctx context.Context, n int) ([]broker.StoredMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	page := make([]broker.StoredMessage, 0, n)
	err := messages.Fetch(ctx, r.nc, r.consumer, n, func(msg *nats.Msg, meta *nats.MsgMetadata) (more bool, err error) {
		if meta.Sequence.Consumer != r.got+1 {
			return false, errGap
		}
		r.got++
		if r.pending = meta.NumPending; meta.Sequence.Stream >= r.to {
			r.pending = 0
		}
		if meta.Sequence.Stream <= r.to {
			source, id := wire.Identity(msg.Header)
			page = append(page, broker.StoredMessage{
				Seq: meta.Sequence.Stream, Source: source, ID: id, Subject: msg.Subject, StoredAt: meta.Timestamp, LoggedAt: wire.LoggedAt(msg.Header),
			})
		}
		n--
		return r.pending > 0, nil
	})
	if err == nil && n > 0 && r.pending > 0 { // the consumer has more messages but did not send them
		err = errGap
	}
	if err != nil {
		return nil, err
	}
	return page, nil
}
