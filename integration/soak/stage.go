//go:build linux || darwin

package main

import (
	"context"
	"crypto/rand"
	_ "embed" // the statement
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/schema"
)

const (
	source     = "/soak"
	eventBytes = 512
	stream     = "SOAK"
	subject    = "soak.changed" // also the type of all events
)

//go:embed sql/load.sql
var loadSQL string

// stage has what a scenario needs. It is gone when the scenario is over.
type stage struct {
	*result
	rig.Cleanup
	*rig.Story

	opt    options
	db     *devstack.Postgres
	logger *slog.Logger
}

// pick returns the first value for the long version, and the second for the short one.
func pick[T any](r *stage, long, short T) T {
	if r.short {
		return short
	}
	return long
}

// database is a database of the scenario.
type database struct{ *rig.Database }

// database creates one.
func (r *stage) database(ctx context.Context, migrated bool) (*database, error) {
	name := "postroom_soak_" + strings.ToLower(rand.Text()[:10])
	d, err := rig.CreateDatabase(ctx, r.db, name, "", 16)
	if err != nil {
		return nil, err
	}
	r.Later(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return r.db.DropDatabase(ctx, name)
	})
	r.Later(func() error { d.Pool.Close(); return nil })
	if migrated {
		_, err = schema.Migrate(ctx, d.Pool, "")
	}
	return &database{d}, err
}

// load appends n events with distinct keys to the log in one statement.
func (d *database) load(ctx context.Context, n, bytes int) error {
	_, err := d.Pool.Exec(ctx, loadSQL, n, bytes, subject, source, strings.ToLower(rand.Text()[:23]))
	if err != nil {
		return fmt.Errorf("load events: %w", err)
	}
	return nil
}

// settled reports whether every event is published, by the relay's own record.
func (d *database) settled(ctx context.Context) (done bool, err error) {
	err = d.Pool.QueryRow(ctx, `SELECT high >= (SELECT coalesce(max(seq), 0) FROM postroom.outbox) AND isempty(pending)
		AND NOT EXISTS (SELECT FROM postroom.held WHERE handler = 'outbox') FROM postroom.relay`).Scan(&done)
	return done, err
}

// terms returns how often a relay has begun to lead.
func (d *database) terms(ctx context.Context) (n int, err error) {
	err = d.Pool.QueryRow(ctx, "SELECT epoch FROM postroom.relay").Scan(&n)
	return n, err
}

// brokers starts n servers, as a cluster if there are several.
func (r *stage) brokers(ctx context.Context, n int) (*natsfleet.Brokers, error) {
	b, err := natsfleet.StartBrokers(ctx, n, "", r.childLog())
	if err == nil {
		r.Later(b.Close)
	}
	return b, err
}

// childLog is where children log to.
func (r *stage) childLog() io.Writer {
	if r.opt.verbose {
		return os.Stderr
	}
	return nil
}

// client is the rig's connection to brokers, with the stream of the scenario.
type client struct{ *rig.Client }

// client connects, and makes the stream anew.
func (r *stage) client(ctx context.Context, urls string, cfg jetstream.StreamConfig) (*client, error) {
	connected, err := rig.Connect(urls, "soak")
	if err != nil {
		return nil, err
	}
	r.Later(connected.Close)
	c := &client{connected}
	cfg.Name, cfg.Subjects = stream, []string{subject}
	// A cluster takes some seconds to elect its leader.
	err = childproc.Eventually(ctx, 5*time.Minute, "a stream", func(ctx context.Context) (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return natsjs.EnsureStream(attempt, c.Conn, cfg) == nil, nil
	})
	return c, err
}

// fresh replaces the stream by an empty one.
func (c *client) fresh(ctx context.Context) error {
	if err := c.JS.DeleteStream(ctx, stream); err != nil {
		return fmt.Errorf("delete stream: %w", err)
	}
	return natsjs.EnsureStream(ctx, c.Conn, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}})
}

// during runs the others for as long as lead runs. The first failure ends all.
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
