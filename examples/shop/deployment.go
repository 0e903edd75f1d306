package main

import (
	"context"
	_ "embed" // the statements
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/relay"
)

const (
	stream = "SHOP" // the stream's subjects begin with "order."

	// workers is how many events each handler handles at the same time. A worker mostly waits until
	// the disk has synced, and one sync serves many workers. So more workers are faster, until the
	// processors are busy.
	workers = 8
)

//go:embed sql/tables.sql
var tablesSQL string

// deployment is the shop with its servers. In a company, shop, billing and analytics would be three
// services with three databases. Here one process plays all three.
type deployment struct {
	*demo.Base

	opt     options
	log     *slog.Logger
	story   *demo.Story
	servers *devstack.Stack
	meters  *meters
	waits   waits

	shop   *shop
	relay  *relay.Relay
	inbox  *inbox.Inbox
	copier *copier
}

// open makes the tables, the stream and the shop. The caller closes the deployment.
func open(ctx context.Context, servers *devstack.Stack, opt options, log *slog.Logger, story *demo.Story) (*deployment, error) {
	base, err := demo.OpenBase(ctx, servers, "demo", opt.clients+2*workers+2, tablesSQL, // 2 are spare: the inbox asks for them
		jetstream.StreamConfig{Name: stream, Subjects: []string{"order.>"}})
	if err != nil {
		return nil, err
	}
	d := &deployment{Base: base, opt: opt, log: log, story: story, servers: servers, meters: newMeters()}
	d.wire()
	return d, nil
}
