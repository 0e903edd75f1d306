package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/schema"
)

// window is how many messages publishAll may have sent without an acknowledgement.
const window = 1024

// drainTrial measures a relay that drains a backlog. The parameters are $5 and $6 of load.sql.
func drainTrial(keys string, n int) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		schemaName, err := b.backlog(ctx, keys, n)
		if err != nil {
			return sample{}, err
		}
		return b.withStream(ctx, func(nc *nats.Conn) (sample, error) { return drain(ctx, b, nc, schemaName, 0) })
	}
}

// refusedTrial measures a relay that drains a backlog. The broker refuses every n-th event of the
// backlog. The refused events have one key, and a subject without a stream. The rate counts only
// the other events, but the relay works on all events.
func refusedTrial(n int) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		schemaName, err := b.backlog(ctx, "refused", n)
		if err != nil {
			return sample{}, err
		}
		return b.withStream(ctx, func(nc *nats.Conn) (sample, error) { return drain(ctx, b, nc, schemaName, b.cfg.Events/n) })
	}
}

// drain runs a relay on a backlog. The broker refuses the given number of events.
func drain(ctx context.Context, b *bench, nc *nats.Conn, schemaName string, refused int) (sample, error) {
	published := b.cfg.Events - refused
	var began, ended time.Time
	var recorded atomic.Int64
	done := make(chan struct{})
	p := probe{
		led: func() { began = time.Now() },
		recorded: func(n int) {
			if all := recorded.Add(int64(n)); n > 0 && all == int64(published) { // the relay has recorded the last event
				ended = time.Now()
				close(done)
			}
		},
	}
	if refused > 0 {
		p.logger = slog.New(slog.DiscardHandler) // the benchmark provokes the failures, and their log would disturb the report
	}
	err := b.timed(func() error {
		r := start(ctx, b, nc, schemaName, p)
		err := r.wait(ctx, done)
		if err == nil {
			err = waitForHeld(ctx, b, r, schemaName, refused)
		}
		return errors.Join(err, r.stop())
	})
	if err != nil {
		return sample{}, err
	}
	return rateOf(ctx, b, published, ended.Sub(began))
}

// waitForHeld waits until a log has the wanted number of held events.
func waitForHeld(ctx context.Context, b *bench, r *relayRun, schemaName string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, heldPatience)
	defer cancel()
	for {
		var held int
		err := b.pool.QueryRow(ctx, schema.In(schemaName, heldSQL)).Scan(&held)
		switch {
		case err != nil:
			return fmt.Errorf("count held events: %w", err)
		case held == want:
			return nil
		case over(r.stopped):
			return errors.New("the relay ended")
		}
		sleep(ctx, 10*time.Millisecond)
	}
}

// heldPatience is how long a relay may take to hold refused events. Before a relay holds them, it
// tries for some seconds to publish them again.
const heldPatience = 30 * time.Second

// rateOf returns how many events the broker stored per second. It first checks that the stream has
// as many events as the parameter want says.
func rateOf(ctx context.Context, b *bench, want int, took time.Duration) (sample, error) {
	stored, err := b.stored(ctx)
	if err != nil {
		return sample{}, err
	}
	if stored != want {
		return sample{}, fmt.Errorf("the stream has %d messages, want %d", stored, want)
	}
	return sample{value: float64(want) / took.Seconds()}, nil
}

// rawTrial measures the client library alone, in its fastest way to publish with acknowledgements.
// It publishes Config.Events messages, but not more than the given limit.
func rawTrial(limit int) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		if err := b.rest(ctx); err != nil {
			return sample{}, err
		}
		n := min(b.cfg.Events, limit)
		return b.withStream(ctx, func(nc *nats.Conn) (sample, error) {
			ids, data := messages(n)
			var took time.Duration
			err := b.timed(func() error {
				began := time.Now()
				err := publishAll(ctx, nc, n, func(i int) *nats.Msg {
					return &nats.Msg{Subject: b.subject(), Header: nats.Header{jetstream.MsgIDHeader: {ids[i]}}, Data: data}
				})
				took = time.Since(began)
				return err
			})
			if err != nil {
				return sample{}, err
			}
			return rateOf(ctx, b, n, took)
		})
	}
}

// messages returns data and message ids that are as long as those of events.
func messages(n int) (ids []string, data []byte) {
	ids = make([]string, n)
	for i := range ids {
		ids[i] = source + "#" + eventID(i)
	}
	return ids, body()
}

// eventID returns an id that is as long as a UUID. The ids are in order, like the ids of events.
func eventID(i int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", i) }

// body returns the data of an event.
func body() []byte {
	const head, tail = `{"order": 1, "note": "`, `"}`
	return []byte(head + strings.Repeat("x", eventBytes-len(head)-len(tail)) + tail)
}

// publishAll publishes n messages, and returns when the broker has acknowledged all of them.
func publishAll(ctx context.Context, nc *nats.Conn, n int, message func(i int) *nats.Msg) error {
	var lost atomic.Int64
	js, err := jetstream.New(nc,
		jetstream.WithPublishAsyncMaxPending(window),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { lost.Add(1) }))
	if err != nil {
		return err
	}
	patient := jetstream.WithStallWait(ackPatience) // PublishMsgAsync waits until the window has room
	for i := range n {
		if _, err := js.PublishMsgAsync(message(i), patient); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		if i%window == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if lost.Load() > 0 {
		return fmt.Errorf("%d messages were not acknowledged", lost.Load())
	}
	return nil
}

// ackPatience is how long PublishMsgAsync waits for room in the window.
const ackPatience = 30 * time.Second
