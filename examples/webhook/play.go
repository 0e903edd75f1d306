package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/webhook"
)

var (
	//go:embed sql/tables.sql
	tablesSQL string
	//go:embed sql/owed.sql
	owedSQL string
	//go:embed sql/cut.sql
	cutSQL string
)

// deployment is the payments service and the provider that calls it.
type deployment struct {
	opt      options
	story    *demo.Story
	server   *devstack.Postgres
	db       *demo.Database
	inbox    *inbox.Inbox
	web      *httptest.Server
	provider *provider
	signers  []webhook.Scheme // the schemes with which the provider signs, one after the other

	fail         context.CancelCauseFunc // ends the run
	stopHandlers func() error
}

// open makes a database, the service and the provider. The caller closes the deployment.
func open(ctx context.Context, server *devstack.Postgres, opt options, log *slog.Logger, story *demo.Story) (*deployment, error) {
	db, err := demo.OpenDatabase(ctx, server, "webhook", workers+2+opt.senders, tablesSQL) // the inbox requires 2 spare connections
	if err != nil {
		return nil, err
	}
	before, after := newSecret(), newSecret()
	in, handler := newService(db.Pool, log, before, after)
	web := httptest.NewServer(handler)
	return &deployment{
		opt: opt, story: story, server: server, db: db, inbox: in, web: web, provider: newProvider(web.URL+source, plan(opt.seed, opt.payments)),
		signers: []webhook.Scheme{webhook.Standard(before), webhook.Standard(after, before), webhook.Standard(after)},
	}, nil
}

func (d *deployment) close() {
	d.web.Close()
	d.db.Close()
}

// play runs the service, and sends the webhooks in scenes that disturb the service. It returns when
// all webhooks took effect. If ctx ends, the provider sends no more webhooks.
func (d *deployment) play(ctx context.Context) error {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.timeout)
	defer cancel()
	work, d.fail = context.WithCancelCause(work)
	defer d.fail(nil)
	d.startHandlers()
	all := d.provider.all
	d.story.Tell("a provider sends %s webhooks of %s payments, several times each and in no order, to %s",
		demo.Grouped(int64(len(all))), demo.Grouped(int64(d.opt.payments)), d.provider.url)
	scenes := []func(d *deployment, ctx context.Context, send func()) error{ // each calls send, which sends the scene's share of the deliveries
		(*deployment).cutConnections, (*deployment).restartHandlers, (*deployment).cutConnections, (*deployment).takeDatabaseAway, (*deployment).cutConnections,
	}
	var err error
	for n := 0; n < len(scenes) && err == nil && ctx.Err() == nil && work.Err() == nil; n++ {
		share, signer := all[len(all)*n/len(scenes):len(all)*(n+1)/len(scenes)], d.signers[n*len(d.signers)/len(scenes)]
		err = scenes[n](d, work, func() { d.provider.send(work, share, signer, d.opt.senders, ctx.Done()) })
	}
	if err == nil {
		err = d.settle(work)
	}
	d.story.End()
	return errors.Join(err, d.stopHandlers())
}

// startHandlers runs the inbox until the caller calls stopHandlers, as if the inbox were a process
// of its own. If the inbox ends by itself, the run ends too.
func (d *deployment) startHandlers() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := d.inbox.Run(ctx)
		if ctx.Err() == nil {
			d.fail(errors.New("the inbox ended by itself"))
		}
		ended <- err
	}()
	d.stopHandlers = func() error {
		cancel()
		return <-ended
	}
}

// during calls the function send in another goroutine. It calls the function do once, as soon as
// the function ready returns true or send has returned. It returns when both have returned.
func (d *deployment) during(send func(), ready func() bool, do func() error) error {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		send()
	}()
	defer func() { <-sent }()
	for !ready() && !demo.IsClosed(sent) {
		time.Sleep(5 * time.Millisecond)
		d.story.Progress("answered %s of %s deliveries", demo.Grouped(d.provider.finished.Load()), demo.Grouped(int64(len(d.provider.all))))
	}
	return do()
}

// cutConnections ends all connections to the database while webhooks are sent.
func (d *deployment) cutConnections(ctx context.Context, send func()) error {
	some := d.provider.finished.Load() + int64(d.opt.payments/2) // a scene has more deliveries than payments/2
	return d.during(send, func() bool { return d.provider.finished.Load() >= some }, func() error {
		n, err := d.admin(ctx, cutSQL, d.db.Name)
		d.story.Tell("all %d connections to the database were cut", n)
		return err
	})
}

// restartHandlers stops the inbox, as if its process stopped. It starts the inbox again after the
// scene's webhooks were sent. While the inbox is stopped, the endpoint still stores webhooks.
func (d *deployment) restartHandlers(_ context.Context, send func()) error {
	err := d.stopHandlers()
	d.story.Tell("the handlers are stopped; webhooks are stored and answered meanwhile")
	send()
	d.startHandlers()
	d.story.Tell("the handlers are started again")
	return err
}

// takeDatabaseAway makes the server refuse all connections to the database, until the service has
// answered a webhook with 503.
func (d *deployment) takeDatabaseAway(ctx context.Context, send func()) error {
	name := pgx.Identifier{d.db.Name}.Sanitize() // a name cannot be a parameter of this statement
	before := d.provider.away.Load()
	_, refusing := d.admin(ctx, fmt.Sprintf("ALTER DATABASE %s WITH ALLOW_CONNECTIONS false", name))
	_, cutting := d.admin(ctx, cutSQL, d.db.Name)
	err := d.during(send, func() bool { return d.provider.away.Load() > before }, func() error {
		_, err := d.admin(ctx, fmt.Sprintf("ALTER DATABASE %s WITH ALLOW_CONNECTIONS true", name))
		return err
	})
	d.story.Tell("the database was away: %s webhooks were answered with 503, and are sent again", demo.Grouped(d.provider.away.Load()-before))
	return errors.Join(refusing, cutting, err)
}

// admin runs a statement in the server's own database, because the run's database may refuse
// connections. It does so even if ctx has ended, and returns the number of affected rows.
func (d *deployment) admin(ctx context.Context, sql string, args ...any) (n int64, err error) {
	ctx = context.WithoutCancel(ctx)
	err = demo.Session(ctx, d.server.URL(), func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}

// settle waits until the handler has handled every stored webhook.
func (d *deployment) settle(ctx context.Context) error {
	return demo.Watch(ctx, d.opt.timeout, 20*time.Millisecond, func(ctx context.Context) (demo.Progress, error) {
		var owed int64
		hidden := d.db.Pool.QueryRow(ctx, owedSQL, handlerName).Scan(&owed) // fails if the connections were cut
		return demo.Progress{
			Done: hidden == nil && owed == 0, Mark: owed, Hidden: hidden,
			Missing: fmt.Sprintf("%d of %d deliveries are answered, %d webhooks are not handled yet", d.provider.finished.Load(), len(d.provider.all), owed),
		}, nil
	})
}
