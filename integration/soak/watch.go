//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// watch observes a relay that works in this process. Its functions may be nil.
type watch struct {
	led      func()
	passed   func(took time.Duration, events int)
	acked    func(id string)
	recorded func(took time.Duration, events int)
}

type watchedLog struct {
	*outbox.Log

	watch watch
}

// Lead is [outbox.Log.Lead].
func (l watchedLog) Lead(ctx context.Context, owner string, lease time.Duration) (eventlog.Term, error) {
	term, err := l.Log.Lead(ctx, owner, lease)
	if err == nil && l.watch.led != nil {
		l.watch.led()
	}
	return watchedTerm{term, l.watch}, err
}

type watchedTerm struct {
	eventlog.Term

	watch watch
}

// Read is [eventlog.Term.Read].
func (t watchedTerm) Read(ctx context.Context, limit int, into []eventlog.Event) (eventlog.Page, error) {
	began := time.Now()
	page, err := t.Term.Read(ctx, limit, into)
	if err == nil && t.watch.passed != nil {
		t.watch.passed(time.Since(began), len(page.Events))
	}
	return page, err
}

// Record is [eventlog.Term.Record].
func (t watchedTerm) Record(ctx context.Context, p eventlog.Progress) error {
	began, n := time.Now(), len(p.Published)
	err := t.Term.Record(ctx, p)
	if err == nil && t.watch.recorded != nil {
		t.watch.recorded(time.Since(began), n)
	}
	return err
}

type watchedPublisher struct {
	*natsjs.Publisher

	watch watch
}

// Run is that of [broker.Publisher].
func (p watchedPublisher) Run(ctx context.Context, batches <-chan []*broker.Message, settle func(f *broker.Message, o broker.Outcome)) error {
	if p.watch.acked == nil {
		return p.Publisher.Run(ctx, batches, settle)
	}
	return p.Publisher.Run(ctx, batches, func(f *broker.Message, o broker.Outcome) {
		if o.Class == broker.Stored {
			p.watch.acked(f.ID)
		}
		settle(f, o)
	})
}

// whileRelaying calls do while a relay works in this process. It returns when the relay has
// stopped.
func whileRelaying(ctx context.Context, r *stage, d *database, c *client, w watch, do func(ctx context.Context) error) error {
	nc, err := nats.Connect(c.URLs, natsjs.ConnectOptions()...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()
	working := relay.New(watchedLog{outbox.NewLog(d.Pool), w}, watchedPublisher{natsjs.NewPublisher(nc), w}, relay.Config{Logger: r.logger})
	return during(ctx, do, func(ctx context.Context) error {
		if err := working.Run(ctx); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		if ctx.Err() == nil {
			return errors.New("the relay ended")
		}
		return nil
	})
}

// durations sums up times.
type durations struct {
	mu  sync.Mutex
	n   int
	sum time.Duration
	max time.Duration
}

func (d *durations) add(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	d.sum += took
	d.max = max(d.max, took)
}

func (d *durations) mean() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sum / time.Duration(max(d.n, 1))
}

func (d *durations) String() string {
	mean := d.mean()
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("%s (most %s, of %s)", millis(mean), millis(d.max), grouped(d.n))
}
