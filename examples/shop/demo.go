package main

import (
	"context"
	"crypto/rand"
	_ "embed" // the statements
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/schema"
)

const (
	stream = "SHOP" // carries every subject below order

	// workers is how many events each handler works on at a time. They wait for
	// the disk most of the time, and share its syncs: more of them are faster
	// until the processors are busy.
	workers = 8
)

//go:embed sql/tables.sql
var tablesSQL string

// demo is the shop with what it stands on. In a company these would be three
// services with three databases; here one process plays them all.
type demo struct {
	opt     options
	log     *slog.Logger
	servers *devstack.Stack
	pool    *pgxpool.Pool
	nc      *nats.Conn
	meters  *meters

	shop, billing *outbox.Outbox
	relay         *relay.Relay
	inbox         *inbox.Inbox
	copier        *copier

	placed tally // what the clients know
}

// logger writes what goes wrong, and no more, to w.
func logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// open connects to the servers and makes the tables and the stream. The caller
// closes the demo.
func open(ctx context.Context, servers *devstack.Stack, opt options, log *slog.Logger) (_ *demo, err error) {
	d := &demo{opt: opt, log: log, servers: servers, meters: newMeters()}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := d.connect(ctx); err != nil {
		return nil, err
	}
	if _, err := schema.Migrate(ctx, d.pool, ""); err != nil {
		return nil, err
	}
	if _, err := d.pool.Exec(ctx, tablesSQL); err != nil {
		return nil, fmt.Errorf("create tables: %w", err)
	}
	err = natsjs.EnsureStream(ctx, d.nc, jetstream.StreamConfig{Name: stream, Subjects: []string{"order.>"}})
	if err != nil {
		return nil, err
	}
	d.wire()
	d.copier = &copier{nc: d.nc}
	return d, nil
}

// connect connects to a new database and to the broker. A server of the user's
// own is left as it was: its database goes when the servers are closed.
func (d *demo) connect(ctx context.Context) error {
	url, err := d.servers.Postgres.CreateDatabase(ctx, "postroom_demo_"+strings.ToLower(rand.Text()[:10]), "")
	if err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("parse database URL: %w", err)
	}
	cfg.MaxConns = int32(d.opt.clients + 2*workers + 2) //nolint:gosec // at most 126; 2 are the relay's
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	if d.nc, err = nats.Connect(d.servers.NATS.URL(), natsjs.ConnectOptions()...); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	return nil
}

func (d *demo) close() {
	if d.nc != nil {
		d.nc.Close()
	}
	if d.pool != nil {
		d.pool.Close()
	}
}

// judge looks at what the run left behind; running is the error with which it ended.
func (d *demo) judge(running error) (*result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), judgePatience)
	defer cancel()
	if err := d.gather(ctx); err != nil {
		return nil, fmt.Errorf("gather evidence: %w", err)
	}
	checks, err := prove(ctx, d.pool, d.placed.committed.Load())
	if err != nil {
		return nil, err
	}
	found, err := measure(ctx, d.pool)
	if err != nil {
		return nil, err
	}
	counted, err := d.meters.read(ctx)
	if err != nil {
		return nil, errors.Join(errors.New("read metrics"), err)
	}
	return d.result(running, checks, found, counted), nil
}
