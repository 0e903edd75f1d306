//go:build linux || darwin

package main

import (
	"context"
	"crypto/rand"
	_ "embed" // the statement
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/fleet"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/schema"
)

const (
	source     = "/soak"
	eventBytes = 512
	stream     = "SOAK"
	subject    = "soak.changed" // and type, of all events
)

//go:embed sql/load.sql
var loadSQL string

// rig is what a scenario works with. What it is given is gone when the scenario
// is over.
type rig struct {
	*result
	opt      options
	db       *devstack.Postgres
	logger   *slog.Logger
	progress io.Writer
	began    time.Time
	undo     []func() error
}

// say tells how far the scenario is.
func (r *rig) say(format string, args ...any) {
	fmt.Fprintf(r.progress, "%-9s %5s  %s\n", r.name, time.Since(r.began).Round(time.Second), fmt.Sprintf(format, args...))
}

// later notes what is to be undone at the end, last first.
func (r *rig) later(undo func() error) { r.undo = append(r.undo, undo) }

func (r *rig) clean() error {
	var errs []error
	for len(r.undo) > 0 {
		last := len(r.undo) - 1
		errs = append(errs, r.undo[last]())
		r.undo = r.undo[:last]
	}
	return errors.Join(errs...)
}

// pick returns what is for the long or for the short version.
func pick[T any](r *rig, long, short T) T {
	if r.short {
		return short
	}
	return long
}

// database is one that is migrated.
type database struct {
	url  string
	pool *pgxpool.Pool
}

// database creates one.
func (r *rig) database(ctx context.Context, migrated bool) (*database, error) {
	name := "postroom_soak_" + strings.ToLower(rand.Text()[:10])
	url, err := r.db.CreateDatabase(ctx, name, "")
	if err != nil {
		return nil, err
	}
	r.later(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return r.db.DropDatabase(ctx, name)
	})
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r.later(func() error { pool.Close(); return nil })
	if migrated {
		_, err = schema.Migrate(ctx, pool, "")
	}
	return &database{url: url, pool: pool}, err
}

func (d *database) exec(ctx context.Context, sql string, args ...any) error {
	if _, err := d.pool.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%.60s: %w", sql, err)
	}
	return nil
}

// load appends n events with distinct keys to the log in one statement.
func (d *database) load(ctx context.Context, n, bytes int) error {
	_, err := d.pool.Exec(ctx, loadSQL, n, bytes, subject, source, strings.ToLower(rand.Text()[:23]))
	if err != nil {
		return fmt.Errorf("load events: %w", err)
	}
	return nil
}

// settled reports whether nothing is left to be published, by the relay's own
// record.
func (d *database) settled(ctx context.Context) (done bool, err error) {
	err = d.pool.QueryRow(ctx, `SELECT high >= (SELECT coalesce(max(seq), 0) FROM postroom.outbox) AND isempty(pending)
		AND NOT EXISTS (SELECT FROM postroom.held WHERE handler = 'outbox') FROM postroom.relay`).Scan(&done)
	return done, err
}

// terms returns how often a relay has begun to lead.
func (d *database) terms(ctx context.Context) (n int, err error) {
	err = d.pool.QueryRow(ctx, "SELECT epoch FROM postroom.relay").Scan(&n)
	return n, err
}

// brokers starts n servers, as a cluster where they are many.
func (r *rig) brokers(ctx context.Context, n int) (*natsfleet.Brokers, error) {
	b, err := natsfleet.StartBrokers(ctx, n, "", r.childLog())
	if err == nil {
		r.later(b.Close)
	}
	return b, err
}

// childLog is where children log to.
func (r *rig) childLog() io.Writer {
	if r.opt.verbose {
		return os.Stderr
	}
	return nil
}

// client is a connection to brokers, with the stream of the scenario.
type client struct {
	urls string
	nc   *nats.Conn
	js   jetstream.JetStream
}

// client connects, and makes the stream anew.
func (r *rig) client(ctx context.Context, urls string, cfg jetstream.StreamConfig) (*client, error) {
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	r.later(func() error { nc.Close(); return nil })
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	cfg.Name, cfg.Subjects = stream, []string{subject}
	c := &client{urls: urls, nc: nc, js: js}
	// A cluster takes some seconds to find its leader.
	err = fleet.Eventually(ctx, 5*time.Minute, "a stream", func(ctx context.Context) (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return natsjs.EnsureStream(attempt, nc, cfg) == nil, nil
	})
	return c, err
}

// fresh replaces the stream by an empty one.
func (c *client) fresh(ctx context.Context) error {
	if err := c.js.DeleteStream(ctx, stream); err != nil {
		return fmt.Errorf("delete stream: %w", err)
	}
	return natsjs.EnsureStream(ctx, c.nc, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}})
}

// stored returns how many messages the stream has.
func (c *client) stored(ctx context.Context) (int, error) {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("count messages: %w", err)
	}
	return int(s.CachedInfo().State.Msgs), nil //nolint:gosec // far below
}

// during has others work for as long as lead does. The first failure ends all.
func during(ctx context.Context, lead func(ctx context.Context) error, others ...func(ctx context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	end, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for _, other := range others {
		all.Go(func() {
			if err := other(end); err != nil {
				fail(err)
			}
		})
	}
	err := lead(ctx)
	stop()
	all.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
