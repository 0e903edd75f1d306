package main

import (
	"context"
	"crypto/rand"
	_ "embed" // the statements
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/examples/internal/narrate"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/tables.sql
	tablesSQL string
	//go:embed sql/state.sql
	stateSQL string
)

const (
	// workers is how many connections the handler may use. A quarter of them run
	// what is held, and so everything that was accepted.
	workers = 32

	stallPatience = 2 * time.Minute // for how long nothing may happen
)

// demo is the payments service and the provider who calls it.
type demo struct {
	opt      options
	log      *slog.Logger
	story    *narrate.Story
	server   *devstack.Postgres
	database string
	url      string // of the database
	pool     *pgxpool.Pool

	endpoint *endpoint
	worker   *worker
	provider *provider
	web      *http.Server
	listener net.Listener
}

// open makes a database, the service and the provider. The caller closes the demo.
func open(ctx context.Context, server *devstack.Postgres, opt options, log *slog.Logger, story *narrate.Story) (_ *demo, err error) {
	d := &demo{opt: opt, log: log, story: story, server: server, database: "postroom_webhook_" + strings.ToLower(rand.Text()[:10])}
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
	return d, d.wire()
}

func (d *demo) connect(ctx context.Context) error {
	var err error
	if d.url, err = d.server.CreateDatabase(ctx, d.database, ""); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		return fmt.Errorf("parse database URL: %w", err)
	}
	cfg.MaxConns = int32(workers + 2 + d.opt.senders) //nolint:gosec // at most 134; 2 are the inbox's to spare
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return nil
}

// wire puts the service together: an inbox with a handler that reads no stream, and
// an endpoint that gives it what the provider sends.
func (d *demo) wire() error {
	in := inbox.New(d.pool, nil, inbox.Config{Logger: d.log}) // no broker: webhooks are accepted
	in.Handle(inbox.Subscription{
		Name:    handlerName,
		Workers: workers,
		// What a broken connection leaves claimed is run again after two of these.
		Timeout: 2 * time.Second,
	}, postroom.JSON(apply))
	d.worker = &worker{inbox: in}

	oldSecret, newSecret := newSecret(), newSecret()
	verifier, err := newVerifier(oldSecret, newSecret)
	if err != nil {
		return err
	}
	d.endpoint = &endpoint{verifier: verifier, inbox: in, log: d.log}
	mux := http.NewServeMux()
	mux.Handle("POST "+source, d.endpoint)
	d.web = &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn)}
	if d.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	d.provider, err = newProvider("http://"+d.listener.Addr().String()+source, oldSecret, newSecret, plan(d.opt.seed, d.opt.payments))
	return err
}

func newSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

func (d *demo) close() {
	if d.listener != nil {
		_ = d.listener.Close() // the server has, if it ran
	}
	if d.pool != nil {
		d.pool.Close()
	}
}

// admin calls do with a session in the server's own database.
func (d *demo) admin(ctx context.Context, do func(*pgx.Conn) error) error {
	return session(ctx, d.server.URL(), do)
}

// audit calls do with a session in the service's database, apart from the service's
// own, which are cut.
func (d *demo) audit(ctx context.Context, do func(*pgx.Conn) error) error {
	return session(ctx, d.url, do)
}

func session(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}

// state is how far the handler is.
type state struct{ Owed, Applied int64 }

func readState(ctx context.Context, db querier) (state, error) {
	rows, _ := db.Query(ctx, stateSQL, handlerName) // CollectOneRow reports the error
	s, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[state])
	if err != nil {
		return s, fmt.Errorf("read state: %w", err)
	}
	return s, nil
}
