package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/eventlog"
)

// rate is how many transactions a second latencies are measured at. It leaves
// servers and processors mostly idle, so that nothing queues.
const rate = 500

// latencyTrial measures the time from commit to acknowledgement.
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
	times := newTimes()
	r := start(ctx, b, nc, schemaName, probe{read: times.read, acked: times.acked})
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
		times.commit(id, time.Now())
		if wake {
			r.Wake()
		}
		return nil
	})
}

// directTrial measures the unsafe way: the client publishes after its commit,
// and an event is lost when it dies in between.
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
		times := newTimes()
		return pace(ctx, b, times, func(ctx context.Context, id string) error {
			if err := p.plain(ctx); err != nil {
				return err
			}
			times.commit(id, time.Now())
			msg := &nats.Msg{Subject: p.subject, Header: nats.Header{jetstream.MsgIDHeader: {source + "#" + id}}, Data: p.data}
			if _, err := js.PublishMsg(ctx, msg); err != nil {
				return err
			}
			times.ack(id, time.Now())
			return nil
		})
	})
}

// pace calls do at the rate, whatever the time that it takes, and returns the
// latencies that were noted.
func pace(ctx context.Context, b *bench, times *times, do func(ctx context.Context, id string) error) (sample, error) {
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
		sleep(ctx, b.cfg.Span/5) // connections, prepared statements
		times.begin()
		return b.timed(func() error {
			sleep(ctx, b.cfg.Span)
			return nil
		})
	})
	if err != nil {
		return sample{}, err
	}
	return times.sample(ctx, b.cfg.Span)
}

// times notes when events were committed and acknowledged.
type times struct {
	mu        sync.Mutex
	ids       map[int64]string // by seq
	committed map[string]time.Time
	acks      map[string]time.Time
}

func newTimes() *times {
	t := &times{ids: make(map[int64]string), acks: make(map[string]time.Time)}
	t.begin()
	return t
}

// begin forgets which events were committed so far. Acknowledgements it keeps: of an event
// whose commit is answered only now, that may be there already.
func (t *times) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed = make(map[string]time.Time)
}

func (t *times) commit(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed[id] = at
}

func (t *times) ack(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acks[id] = at
}

// read notes which seq an event has: that is all an acknowledgement tells.
func (t *times) read(events []eventlog.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range events {
		t.ids[events[i].Seq] = events[i].ID
	}
}

func (t *times) acked(seq int64) {
	at := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acks[t.ids[seq]] = at
	delete(t.ids, seq)
}

// complete returns the latencies in milliseconds, in order, and which of the events that
// were committed are not acknowledged yet.
func (t *times) complete() (latencies []float64, missing []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	latencies = make([]float64, 0, len(t.committed))
	for id, committed := range t.committed {
		acked, ok := t.acks[id]
		if !ok {
			missing = append(missing, id)
			continue
		}
		// A relay that polls can be faster than the answer to the commit.
		latencies = append(latencies, max(0, acked.Sub(committed).Seconds()*1000))
	}
	slices.Sort(latencies)
	return latencies, missing
}

// lastPatience is how long the acknowledgements of the last events may take.
const lastPatience = 2 * time.Minute

// sample waits until all that was committed is acknowledged.
func (t *times) sample(ctx context.Context, span time.Duration) (sample, error) {
	latencies, missing := t.complete()
	for until := time.Now().Add(lastPatience); len(missing) > 0; latencies, missing = t.complete() {
		if time.Now().After(until) {
			return sample{}, fmt.Errorf("waited %s in vain for the acknowledgement of %d of %d events that were committed, among them %s",
				lastPatience, len(missing), len(missing)+len(latencies), slices.Min(missing))
		}
		if sleep(ctx, 10*time.Millisecond); ctx.Err() != nil {
			return sample{}, fmt.Errorf("while %d events were not acknowledged: %w", len(missing), context.Cause(ctx))
		}
	}
	if len(latencies) == 0 {
		return sample{}, errors.New("not one transaction in the time")
	}
	s := sample{value: percentile(latencies, 99), p50: percentile(latencies, 50)}
	if reached := float64(len(latencies)) / span.Seconds(); reached < 0.9*rate {
		s.note = fmt.Sprintf("THE RATE WAS NOT REACHED: %.0f/s", reached)
	}
	return s, nil
}
