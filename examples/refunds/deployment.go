package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devstack"
)

//go:embed sql/tables.sql
var tablesSQL string

// deployment has the servers of the service, and the provider that the service calls. The service's
// processes do not know the deployment. It lives on if one of these processes is killed.
type deployment struct {
	*demo.Base // its connections to the database are for the program itself, not for the service

	opt      options
	story    *demo.Story
	provider *provider
	jobs     []job // by process
	log      io.Writer
	children []*childproc.Child // by process
	clients  *clients
	crashes  int
}

// open makes the database, the tables and the stream, as an operator does before a service starts.
// It also starts the provider. The caller closes the deployment.
func open(ctx context.Context, servers *devstack.Stack, opt options, log io.Writer, story *demo.Story) (_ *deployment, err error) {
	d := &deployment{opt: opt, story: story, log: log, clients: newClients()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	d.Base, err = demo.OpenBase(ctx, servers, "refunds", 2, tablesSQL, jetstream.StreamConfig{Name: stream, Subjects: []string{"payment.>"}})
	if err != nil {
		return nil, err
	}
	if d.provider, err = startProvider(story.Tell); err != nil {
		return nil, err
	}
	addresses := opt.addresses
	if len(addresses) == 0 {
		addresses = []string{"127.0.0.1:0", "127.0.0.1:0"}
	}
	for _, address := range addresses {
		d.jobs = append(d.jobs, job{Address: address, Database: d.URL, NATS: servers.NATS.URL(), Provider: d.provider.url, Verbose: opt.verbose})
	}
	d.children = make([]*childproc.Child, len(d.jobs))
	return d, nil
}

// start starts a process of the service, and returns when the process serves requests.
func (d *deployment) start(ctx context.Context, n int) error {
	child, err := childproc.Start(rolePayments, d.jobs[n], d.log)
	if err != nil {
		return err
	}
	d.children[n] = child
	if err := child.Await(ctx, sayServes); err != nil {
		return fmt.Errorf("start the service at %s: %w", d.jobs[n].Address, err)
	}
	return nil
}

// startAll starts all processes of the service.
func (d *deployment) startAll(ctx context.Context) error {
	for n := range d.jobs {
		if err := d.start(ctx, n); err != nil {
			return err
		}
		d.story.Tell("the service runs at %s (process %d)", d.url(n), d.children[n].PID())
	}
	return nil
}

// url returns the URL of a process of the service.
func (d *deployment) url(n int) string {
	return strings.TrimPrefix(d.children[n].Says(), sayServes)
}

// restart waits until a process has ended, and starts the process again.
func (d *deployment) restart(ctx context.Context, n int) error {
	const patience = 2 * time.Minute
	err := childproc.Eventually(ctx, patience, "the end of a process that was killed", func(context.Context) (bool, error) {
		return d.children[n].Ended(), nil
	})
	if err != nil {
		return err
	}
	d.crashes++
	was := d.children[n].PID()
	if err := d.start(ctx, n); err != nil {
		return err
	}
	d.story.Tell("process %d was killed; the service runs again at %s (process %d)", was, d.url(n), d.children[n].PID())
	return nil
}

// serve runs the service until ctx ends. If a process ends, serve starts it again.
func (d *deployment) serve(ctx context.Context) error {
	if err := d.startAll(ctx); err != nil {
		return err
	}
	d.story.Tell("tokens are %s; Ctrl-C ends it", strings.Join(tokens(), " and "))
	for childproc.Sleep(ctx, 50*time.Millisecond) {
		for n, child := range d.children {
			if !child.Ended() {
				continue
			}
			if err := d.restart(ctx, n); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

// close ends the service's processes, even if the run failed. Then it closes the provider and the
// connections.
func (d *deployment) close() (err error) {
	d.clients.http.CloseIdleConnections() // otherwise the service waits for connections that no request has used
	for _, child := range d.children {
		if child != nil {
			child.End()
		}
	}
	if d.provider != nil {
		err = d.provider.close()
	}
	d.Close()
	return err
}
