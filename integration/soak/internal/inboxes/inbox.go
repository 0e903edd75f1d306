//go:build linux || darwin

// Package inboxes has the scenarios of an inbox: its table is full, and its rows expire.
package inboxes

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
)

const (
	handlerName = "soak"
	deadKey     = "dead" // the key of events that the handler refuses for good
)

//go:embed sql/decided.sql
var decidedSQL string

// errRefused is the error with which the handler refuses an event for good.
var errRefused = errors.New("refused on purpose")

// database is a database of the scenario.
type database struct{ *stage.Database }

// newDatabase creates a database with the tables of Postroom.
func newDatabase(ctx context.Context, r *stage.Stage) (*database, error) {
	d, err := r.NewDatabase(ctx, true)
	return &database{d}, err
}

// client is the connection over which events are published.
type client struct{ *stage.Client }

// connect connects, and makes the stream.
func connect(ctx context.Context, r *stage.Stage, b *natsfleet.Brokers) (*client, error) {
	c, err := r.Connect(ctx, b.URLs(), jetstream.StreamConfig{})
	return &client{c}, err
}

// decided inserts n inbox rows in one statement, and makes the server tidy the table.
func (d *database) decided(ctx context.Context, r *stage.Stage, n int, oldest, youngest time.Duration) error {
	r.Say("loading %s rows into the table inbox", figures.Grouped(n))
	began := time.Now()
	if _, err := d.Pool.Exec(ctx, decidedSQL, n, handlerName, stage.Source, oldest, youngest); err != nil {
		return fmt.Errorf("load inbox rows: %w", err)
	}
	if err := d.rest(ctx); err != nil {
		return err
	}
	r.Say("loaded in %s", time.Since(began).Round(time.Second))
	return nil
}

// rest makes the server vacuum the inbox table and write a checkpoint now.
func (d *database) rest(ctx context.Context) error {
	for _, sql := range []string{"VACUUM (ANALYZE) postroom.inbox", "CHECKPOINT"} {
		if err := d.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// tableSize returns the bytes of the inbox table with its indexes, and of the indexes alone.
func (d *database) tableSize(ctx context.Context) (all, indexes int64, err error) {
	err = d.Pool.QueryRow(ctx, "SELECT pg_total_relation_size('postroom.inbox'), pg_indexes_size('postroom.inbox')").Scan(&all, &indexes)
	return all, indexes, err
}

// pushes has the calls of a handler that inserts a row for each event.
type pushes struct {
	mu     sync.Mutex
	calls  int
	first  time.Time       // when the handler was called for the first time
	delays []time.Duration // from a producer's log to the handler
}

func (p *pushes) handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	now := time.Now()
	p.mu.Lock()
	if p.calls++; p.calls == 1 {
		p.first = now
	}
	p.delays = append(p.delays, now.Sub(ev.LoggedAt))
	p.mu.Unlock()
	if ev.Key == deadKey {
		return postroom.Permanent(errRefused)
	}
	_, err := tx.Exec(ctx, "INSERT INTO effect (event) VALUES ($1)", ev.ID)
	return err
}

// called returns how often the handler was called, and when it was called first.
func (p *pushes) called() (n int, first time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls, p.first
}

// whileHandling runs an inbox in this process and calls the given function meanwhile. It returns
// when the inbox has stopped.
func whileHandling(ctx context.Context, r *stage.Stage, pool *pgxpool.Pool, c *client, cfg inbox.Config, workers int, p *pushes, do func(ctx context.Context) error) error {
	nc, err := nats.Connect(c.URLs, natsjs.ConnectOptions()...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()
	cfg.Logger = r.Logger
	in := inbox.New(pool, nc, cfg)
	in.Handle(inbox.Subscription{Name: handlerName, Stream: stage.StreamName, Types: []string{stage.Subject}, Workers: workers}, postroom.HandlerFunc(p.handle))
	return stage.During(ctx, do, func(ctx context.Context) error {
		if err := in.Run(ctx); err != nil {
			return err
		}
		if ctx.Err() == nil {
			return errors.New("the inbox ended")
		}
		return nil
	})
}

// mostPending is how many answers of the broker may be outstanding.
const mostPending = 2000

// send publishes an event like a relay, but does not wait for the broker's answer to it.
func (c *client) send(key string, data []byte) error {
	ev := postroom.NewEvent(stage.Subject, nil)
	ev.Source, ev.Key, ev.Data = stage.Source, key, data
	ev.Time = time.Now()
	ev.LoggedAt = ev.Time
	if c.JS.PublishAsyncPending() >= mostPending {
		select {
		case <-c.JS.PublishAsyncComplete():
		case <-time.After(5 * time.Minute):
			return fmt.Errorf("%w: answers of the broker", childproc.ErrLate)
		}
	}
	_, err := c.JS.PublishMsgAsync(&nats.Msg{Subject: stage.Subject, Header: wire.Encode(ev), Data: data})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// sent waits until the broker has answered, and checks that the stream has n messages.
func (c *client) sent(ctx context.Context, n int) error {
	select {
	case <-c.JS.PublishAsyncComplete():
	case <-time.After(5 * time.Minute):
		return fmt.Errorf("%w: answers of the broker", childproc.ErrLate)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	stored, err := c.Stored(ctx, stage.StreamName)
	if err == nil && stored != n {
		err = fmt.Errorf("the stream has %d messages, want %d", stored, n)
	}
	return err
}

// handled reports whether every event is decided and acknowledged.
func (c *client) handled(ctx context.Context) (bool, error) {
	s, err := c.JS.Stream(ctx, stage.StreamName)
	if err != nil {
		return false, fmt.Errorf("look up consumers: %w", err)
	}
	consumers, found, left := s.ListConsumers(ctx), 0, 0
	for info := range consumers.Info() {
		found++
		left += int(info.NumPending) + info.NumAckPending //nolint:gosec // the number is far below the limit
	}
	if err := consumers.Err(); err != nil {
		return false, fmt.Errorf("look up consumers: %w", err)
	}
	return found > 0 && left == 0, nil
}

// traffic publishes events at a constant rate.
type traffic struct {
	c    *client
	rate float64 // events in a second
	n    int     // the number of published events
}

// run publishes until ctx ends.
func (t *traffic) run(ctx context.Context) error {
	began, already, data := time.Now(), t.n, stage.Body(0, 1)
	for childproc.Sleep(ctx, 5*time.Millisecond) {
		for due := already + int(time.Since(began).Seconds()*t.rate); t.n < due; t.n++ {
			if err := t.c.send("", data); err != nil {
				return err
			}
		}
	}
	return t.c.sent(context.WithoutCancel(ctx), t.n)
}

// outcome is what happened to events, as the database shows it.
type outcome struct {
	applied, twice int // events with an effect, and effects that repeat the effect of an event
	dead, tooOld   int // dead events: refused by the handler, and too old
	owed, others   int // all held events, and those that are neither dead nor tooOld
	unowed, kept   int // inbox rows without a held event, and with one
}

func (d *database) outcome(ctx context.Context) (o outcome, err error) {
	err = d.Pool.QueryRow(ctx, `SELECT
		(SELECT count(DISTINCT event) FROM effect),
		(SELECT count(*) - count(DISTINCT event) FROM effect),
		(SELECT count(*) FROM postroom.held WHERE class = 'permanent' AND dead_at IS NOT NULL),
		(SELECT count(*) FROM postroom.held WHERE class = 'too_old' AND dead_at IS NOT NULL),
		(SELECT count(*) FROM postroom.held)`).Scan(&o.applied, &o.twice, &o.dead, &o.tooOld, &o.owed)
	if err != nil {
		return o, fmt.Errorf("count effects: %w", err)
	}
	o.others = o.owed - o.dead - o.tooOld
	err = d.Pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE held.id IS NULL), count(held.id)
		FROM postroom.inbox LEFT JOIN postroom.held USING (handler, dedupe_key)`).Scan(&o.unowed, &o.kept)
	if err != nil {
		return o, fmt.Errorf("count inbox rows: %w", err)
	}
	return o, nil
}
