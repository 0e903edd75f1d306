//go:build linux || darwin

package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/anylog"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// Watch has functions that [WhileRelaying] calls when its relay does something. Each may be nil.
type Watch struct {
	Led      func()                               // the relay began a term
	Passed   func(took time.Duration, events int) // the relay read a page of the log
	Acked    func(id string)                      // the broker stored the event with this id
	Recorded func(took time.Duration, events int) // the relay recorded 0 or more published events
}

type watchedLog struct {
	*pglog.Log

	watch Watch
}

// Lead calls [pglog.Log.Lead], and then Watch.Led.
func (l watchedLog) Lead(ctx context.Context, owner string, lease time.Duration) (eventlog.Term, error) {
	term, err := l.Log.Lead(ctx, owner, lease)
	if err == nil && l.watch.Led != nil {
		l.watch.Led()
	}
	return watchedTerm{term, l.watch}, err
}

type watchedTerm struct {
	eventlog.Term

	watch Watch
}

// Read calls [eventlog.Term.Read], and then Watch.Passed.
func (t watchedTerm) Read(ctx context.Context, limit int, into []broker.Event) (eventlog.Page, error) {
	began := time.Now()
	page, err := t.Term.Read(ctx, limit, into)
	if err == nil && t.watch.Passed != nil {
		t.watch.Passed(time.Since(began), len(page.Events))
	}
	return page, err
}

// Record calls [eventlog.Term.Record], and then Watch.Recorded.
func (t watchedTerm) Record(ctx context.Context, p eventlog.Progress) error {
	began, n := time.Now(), len(p.Published)
	err := t.Term.Record(ctx, p)
	if err == nil && t.watch.Recorded != nil {
		t.watch.Recorded(time.Since(began), n)
	}
	return err
}

type watchedPublisher struct {
	broker.Publisher

	watch Watch
}

// Run implements [broker.Publisher]. It calls Watch.Acked for each message that the broker stored.
func (p watchedPublisher) Run(ctx context.Context, batches <-chan []*broker.Message, settle func(f *broker.Message, o broker.Outcome)) error {
	if p.watch.Acked == nil {
		return p.Publisher.Run(ctx, batches, settle)
	}
	return p.Publisher.Run(ctx, batches, func(f *broker.Message, o broker.Outcome) {
		if o.Class == broker.Stored {
			p.watch.Acked(f.ID)
		}
		settle(f, o)
	})
}

// WhileRelaying calls the function do while a relay works in this process. When do returns,
// WhileRelaying stops the relay, and returns when the relay has stopped.
func WhileRelaying(ctx context.Context, r *Stage, d *Database, c *Client, w Watch, do func(ctx context.Context) error) error {
	nc, err := nats.Connect(c.URLs, natsjs.ConnectOptions()...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()
	working := anylog.Relay[*relay.Relay](watchedLog{pglog.New(d.Pool), w}, watchedPublisher{natsjs.NewPublisher(nc), w}, relay.Config{Logger: r.Logger})
	return During(ctx, do, func(ctx context.Context) error {
		if err := working.Run(ctx); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		if ctx.Err() == nil {
			return errors.New("the relay ended")
		}
		return nil
	})
}
