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
	"github.com/postroom/postroom/webhook"
)

var (
	//go:embed sql/tables.sql
	tablesSQL string
	//go:embed sql/state.sql
	stateSQL string
	//go:embed sql/taken.sql
	takenSQL string
)

// workers is how many webhooks are applied at the same time.
const workers = 8

// deployment is the payments service and the provider who calls it.
type deployment struct {
	opt    options
	log    *slog.Logger
	story  *demo.Story
	server *devstack.Postgres
	db     *demo.Database

	counts   counts
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
	cfg := config(oldSecret, newSecret)
	cfg.Logger = d.log
	receiver := webhook.New(countingInbox{in, &d.counts}, cfg)
	mux := http.NewServeMux()
	mux.HandleFunc(source, func(w http.ResponseWriter, r *http.Request) { receiver.ServeHTTP(countingWriter{w, &d.counts}, r) })
	d.web = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn)}
	var err error
	if d.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	d.provider = newProvider("http://"+d.listener.Addr().String()+source, oldSecret, newSecret, plan(d.opt.seed, d.opt.payments))
	return nil
}

func newSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
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
