package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/bench/internal/stopwatch"
)

// rate is the number of transactions per second during a measurement of latencies. At this rate the
// servers and processors are mostly idle, so that no transaction waits for another.
const rate = 500

// latencyTrial measures the time from the commit of an event to its acknowledgement.
func latencyTrial(wake bool) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		p, schemaName, err := newProducer(ctx, b)
		if err != nil {
			return sample{}, err
		}
		return b.withStream(ctx, func(nc *nats.Conn) (sample, error) {
			return latency(ctx, b, nc, p, schemaName, wake)
		})
	}
}

func latency(ctx context.Context, b *bench, nc *nats.Conn, p *producer, schemaName string, wake bool) (_ sample, err error) {
	times := stopwatch.New()
	r := start(ctx, b, nc, schemaName, probe{read: times.Read, acked: times.Acked})
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.wait(ctx, r.led); err != nil {
		return sample{}, err
	}
	return pace(ctx, b, times, func(ctx context.Context, id string) error {
		ev := p.event()
		ev.ID = id
		if err := p.writeEvent(ctx, ev); err != nil {
			return err
		}
		times.Commit(id, time.Now())
		if wake {
			r.Wake()
		}
		return nil
	})
}

// directTrial measures the unsafe way: the client publishes after its commit. If the client dies
// between the commit and the publish, an event is lost.
func directTrial(ctx context.Context, b *bench) (sample, error) {
	p, _, err := newProducer(ctx, b)
	if err != nil {
		return sample{}, err
	}
	return b.withStream(ctx, func(nc *nats.Conn) (sample, error) {
		js, err := jetstream.New(nc)
		if err != nil {
			return sample{}, err
		}
		times := stopwatch.New()
		return pace(ctx, b, times, func(ctx context.Context, id string) error {
			if err := p.plain(ctx); err != nil {
				return err
			}
			times.Commit(id, time.Now())
			msg := &nats.Msg{Subject: p.subject, Header: nats.Header{jetstream.MsgIDHeader: {source + "#" + id}}, Data: p.data}
			if _, err := js.PublishMsg(ctx, msg); err != nil {
				return err
			}
			times.Ack(id, time.Now())
			return nil
		})
	})
}

// pace calls do at the rate, and returns the latencies. A late client skips no call.
func pace(ctx context.Context, b *bench, times *stopwatch.Times, do func(ctx context.Context, id string) error) (sample, error) {
	began := time.Now()
	onTime := func(ctx context.Context, client int, end <-chan struct{}) error {
		for n := client; ; n += clients {
			due := time.Duration(n) * time.Second / rate
			sleep(ctx, due-time.Since(began))
			if ctx.Err() != nil || over(end) {
				return nil
			}
			if err := do(ctx, fmt.Sprintf("%s-%012d", b.name, n)); err != nil {
				return err
			}
		}
	}
	err := crew(ctx, onTime, func(ctx context.Context) error {
		sleep(ctx, b.cfg.Span/5) // meanwhile the clients connect and prepare statements
		times.Begin()
		return b.timed(func() error {
			sleep(ctx, b.cfg.Span)
			return nil
		})
	})
	if err != nil {
		return sample{}, err
	}
	return sampleOf(ctx, times, b.cfg.Span)
}

// lastPatience is how long to wait for the acknowledgements of the last events.
const lastPatience = 2 * time.Minute

// sampleOf waits until every committed event is acknowledged, and returns the latencies.
func sampleOf(ctx context.Context, t *stopwatch.Times, span time.Duration) (sample, error) {
	latencies, missing := t.Complete()
	for until := time.Now().Add(lastPatience); len(missing) > 0; latencies, missing = t.Complete() {
		if time.Now().After(until) {
			return sample{}, fmt.Errorf("waited %s, and %d of %d committed events were not acknowledged, among them %s",
				lastPatience, len(missing), len(missing)+len(latencies), slices.Min(missing))
		}
		if sleep(ctx, 10*time.Millisecond); ctx.Err() != nil {
			return sample{}, fmt.Errorf("while %d events were not acknowledged: %w", len(missing), context.Cause(ctx))
		}
	}
	if len(latencies) == 0 {
		return sample{}, errors.New("no transaction ended in the time")
	}
	s := sample{value: percentile(latencies, 99), p50: percentile(latencies, 50)}
	if reached := float64(len(latencies)) / span.Seconds(); reached < 0.9*rate {
		s.note = fmt.Sprintf("THE RATE WAS NOT REACHED: %.0f/s", reached)
	}
	return s, nil
}
