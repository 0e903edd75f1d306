//go:build linux || darwin

// Package stage has what scenarios need: databases, brokers, events, and a relay that is watched.
package stage

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

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/schema"
)

// The properties of the events of all scenarios.
const (
	Source     = "/soak"
	EventBytes = 512
	StreamName = "SOAK"
	Subject    = "soak.changed" // also the type of all events
)

// EffectTable creates the table into which the handlers of scenarios insert a row for each event.
const EffectTable = "CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event text NOT NULL)"

//go:embed sql/load.sql
var loadSQL string

// Stage has what a scenario needs. When the scenario is over, soak removes what the scenario made.
type Stage struct {
	*figures.Result
	rig.Cleanup
	*rig.Story

	DB       *devstack.Postgres
	Logger   *slog.Logger
	Verbose  bool          // children show what they log
	OpenFor  time.Duration // in the scenario "open": how long its two transactions stay open
	RowBytes int           // in the scenario "retained": how many bytes of data each row has; if zero, the free disk decides
}

// Pick returns the first value for the long version, and the second for the short one.
func Pick[T any](r *Stage, long, short T) T {
	if r.Short {
		return short
	}
	return long
}

// Database is a database of the scenario.
type Database struct{ *rig.Database }

// NewDatabase creates a database. If migrated is true, the database has the tables of Postroom.
func (r *Stage) NewDatabase(ctx context.Context, migrated bool) (*Database, error) {
	name := "postroom_soak_" + strings.ToLower(rand.Text()[:10])
	d, err := rig.CreateDatabase(ctx, r.DB, name, "", 16)
	if err != nil {
		return nil, err
	}
	r.Later(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return r.DB.DropDatabase(ctx, name)
	})
	r.Later(func() error { d.Pool.Close(); return nil })
	if migrated {
		_, err = schema.Migrate(ctx, d.Pool, "")
	}
	return &Database{d}, err
}

// Load appends n events with distinct keys to the log in one statement.
func (d *Database) Load(ctx context.Context, n, bytes int) error {
	_, err := d.Pool.Exec(ctx, loadSQL, n, bytes, Subject, Source, strings.ToLower(rand.Text()[:23]))
	if err != nil {
		return fmt.Errorf("load events: %w", err)
	}
	return nil
}

// Settled reports whether all events are recorded as published, and no outgoing event is held.
func (d *Database) Settled(ctx context.Context) (done bool, err error) {
	err = d.Pool.QueryRow(ctx, `SELECT high >= (SELECT coalesce(max(seq), 0) FROM postroom.outbox) AND isempty(pending)
		AND NOT EXISTS (SELECT FROM postroom.held WHERE handler = 'outbox') FROM postroom.relay`).Scan(&done)
	return done, err
}

// Terms returns how often a relay has begun to lead.
func (d *Database) Terms(ctx context.Context) (n int, err error) {
	err = d.Pool.QueryRow(ctx, "SELECT epoch FROM postroom.relay").Scan(&n)
	return n, err
}

// StartBrokers starts n servers, as a cluster if there are several.
func (r *Stage) StartBrokers(ctx context.Context, n int) (*natsfleet.Brokers, error) {
	b, err := natsfleet.StartBrokers(ctx, n, "", r.ChildLog())
	if err == nil {
		r.Later(b.Close)
	}
	return b, err
}

// ChildLog returns the writer to which child processes log, or nil if they do not log.
func (r *Stage) ChildLog() io.Writer {
	if r.Verbose {
		return os.Stderr
	}
	return nil
}

// Client is the rig's connection to brokers, with the stream of the scenario.
type Client struct{ *rig.Client }

// Connect connects to brokers, and creates the stream if it does not exist.
func (r *Stage) Connect(ctx context.Context, urls string, cfg jetstream.StreamConfig) (*Client, error) {
	connected, err := rig.Connect(urls, "soak")
	if err != nil {
		return nil, err
	}
	r.Later(connected.Close)
	c := &Client{connected}
	cfg.Name, cfg.Subjects = StreamName, []string{Subject}
	// A cluster takes some seconds to elect its leader.
	err = childproc.Eventually(ctx, 5*time.Minute, "a stream", func(ctx context.Context) (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return natsjs.EnsureStream(attempt, c.Conn, cfg) == nil, nil
	})
	return c, err
}

// Fresh replaces the stream by an empty one.
func (c *Client) Fresh(ctx context.Context) error {
	if err := c.JS.DeleteStream(ctx, StreamName); err != nil {
		return fmt.Errorf("delete stream: %w", err)
	}
	return natsjs.EnsureStream(ctx, c.Conn, jetstream.StreamConfig{Name: StreamName, Subjects: []string{Subject}})
}

// During runs the function lead and, at the same time, the others. It ends them when lead returns.
// The first failure ends all of these functions.
func During(ctx context.Context, lead func(ctx context.Context) error, others ...func(ctx context.Context) error) error {
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

// Together makes n calls of work at the same time. The first failure ends all of these calls.
func Together(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	var failures []error
	for i := range n {
		all.Go(func() {
			if err := work(ctx, i); err != nil {
				fail(err)
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, err)
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// Body returns the data of the n-th event of a key.
func Body(key, n int) []byte {
	head := fmt.Sprintf(`{"key": %d, "n": %d, "pad": "`, key, n)
	return []byte(head + strings.Repeat("x", EventBytes-len(head)-2) + `"}`)
}
