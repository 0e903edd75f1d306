package main

import (
	"context"
	"crypto/rand"
	_ "embed" // the statements
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
)

var (
	//go:embed sql/tables.sql
	tablesSQL string
	//go:embed sql/state.sql
	stateSQL string
)

// workers is how many connections the handler may use. A quarter of them run what is
// held, and so everything that was accepted.
const workers = 32

// deployment is the payments service and the provider who calls it.
type deployment struct {
	opt    options
	log    *slog.Logger
	story  *demo.Story
	server *devstack.Postgres
	db     *demo.Database

	endpoint *endpoint
	worker   *worker
	provider *provider
	web      *http.Server
	listener net.Listener
}

// open makes a database, the service and the provider. The caller closes the deployment.
func open(ctx context.Context, server *devstack.Postgres, opt options, log *slog.Logger, story *demo.Story) (_ *deployment, err error) {
	d := &deployment{opt: opt, log: log, story: story, server: server}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.db, err = demo.CreateDatabase(ctx, server, "webhook", workers+2+opt.senders); err != nil { // 2 are the inbox's to spare
		return nil, err
	}
	if err := d.db.Migrate(ctx, tablesSQL); err != nil {
		return nil, err
	}
	return d, d.wire()
}

// wire puts the service together: an inbox with a handler that reads no stream, and
// an endpoint that gives it what the provider sends.
func (d *deployment) wire() error {
	in := inbox.New(d.db.Pool, nil, inbox.Config{Logger: d.log}) // no broker: webhooks are accepted
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

func (d *deployment) close() {
	if d.listener != nil {
		_ = d.listener.Close() // the server has, if it ran
	}
	d.db.Close()
}

// admin calls do with a session in the server's own database.
func (d *deployment) admin(ctx context.Context, do func(*pgx.Conn) error) error {
	return demo.Session(ctx, d.server.URL(), do)
}

// audit calls do with a session in the service's database, apart from the service's
// own, which are cut.
func (d *deployment) audit(ctx context.Context, do func(*pgx.Conn) error) error {
	return demo.Session(ctx, d.db.URL, do)
}

// state is how far the handler is.
type state struct{ Owed, Applied int64 }

func readState(ctx context.Context, db demo.Querier) (state, error) {
	s, err := demo.Row[state](ctx, db, stateSQL, handlerName)
	if err != nil {
		return s, fmt.Errorf("read state: %w", err)
	}
	return s, nil
}
