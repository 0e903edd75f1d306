package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// window is how many publishes of the reference are in flight: as many as those
// of a relay.
const window = 1024

// drainTrial measures a relay that drains a backlog. keys and n are as load.sql
// has them.
func drainTrial(keys string, n int) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		schemaName, err := b.backlog(ctx, keys, n)
		if err != nil {
			return sample{}, err
		}
		return b.withStream(ctx, func(nc *nats.Conn) (sample, error) { return b.drain(ctx, nc, schemaName) })
	}
}

func (b *bench) drain(ctx context.Context, nc *nats.Conn, schemaName string) (sample, error) {
	var began, ended time.Time
	var recorded atomic.Int64
	done := make(chan struct{})
	p := probe{
		led: func() { began = time.Now() },
		recorded: func(n int) {
			if all := recorded.Add(int64(n)); n > 0 && all == int64(b.cfg.Events) { // at the end of its only term
				ended = time.Now()
				close(done)
			}
		},
	}
	err := b.timed(func() error {
		r := b.start(ctx, nc, schemaName, p)
		return errors.Join(r.wait(ctx, done), r.stop())
	})
	if err != nil {
		return sample{}, err
	}
	return b.rateOf(ctx, ended.Sub(began))
}

// rateOf returns how many events were stored in a second, having looked that
// all were, and once.
func (b *bench) rateOf(ctx context.Context, took time.Duration) (sample, error) {
	stored, err := b.stored(ctx)
	if err != nil {
		return sample{}, err
	}
	if stored != b.cfg.Events {
		return sample{}, fmt.Errorf("the stream has %d messages, want %d", stored, b.cfg.Events)
	}
	return sample{value: float64(b.cfg.Events) / took.Seconds()}, nil
}

// rawTrial measures the client library by itself: the fastest way to publish
// with acknowledgements that it offers.
func rawTrial(ctx context.Context, b *bench) (sample, error) {
	if err := b.rest(ctx); err != nil {
		return sample{}, err
	}
	return b.withStream(ctx, func(nc *nats.Conn) (sample, error) {
		var lost atomic.Int64
		js, err := jetstream.New(nc,
			jetstream.WithPublishAsyncMaxPending(window),
			jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { lost.Add(1) }))
		if err != nil {
			return sample{}, err
		}
		ids, data := b.messages()
		var took time.Duration
		err = b.timed(func() error {
			began := time.Now()
			err := publishAll(ctx, js, b.subject(), ids, data)
			took = time.Since(began)
			return err
		})
		if err == nil && lost.Load() > 0 {
			err = fmt.Errorf("%d messages were not acknowledged", lost.Load())
		}
		if err != nil {
			return sample{}, err
		}
		return b.rateOf(ctx, took)
	})
}

// messages returns message ids as long as those of events, and data.
func (b *bench) messages() (ids []string, data []byte) {
	ids = make([]string, b.cfg.Events)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s#00000000-0000-7000-8000-%012d", source, i)
	}
	return ids, body()
}

// body returns the data of an event.
func body() []byte {
	const head, tail = `{"order": 1, "note": "`, `"}`
	return []byte(head + strings.Repeat("x", eventBytes-len(head)-len(tail)) + tail)
}

func publishAll(ctx context.Context, js jetstream.JetStream, subject string, ids []string, data []byte) error {
	patient := jetstream.WithStallWait(ackPatience) // for room in the window
	for i, id := range ids {
		msg := &nats.Msg{Subject: subject, Header: nats.Header{jetstream.MsgIDHeader: {id}}, Data: data}
		if _, err := js.PublishMsgAsync(msg, patient); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		if i%window == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ackPatience is how long the reference waits for an acknowledgement.
const ackPatience = 30 * time.Second
