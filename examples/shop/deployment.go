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
	stream = "SHOP" // carries every subject below order

	// workers is how many events each handler handles at the same time. Workers wait for the
	// disk most of the time, and share its syncs. So more of them are faster until the
	// processors are busy.
	workers = 8
)

//go:embed sql/tables.sql
var tablesSQL string

// deployment is the shop with its servers. In a company these would be three services with
// three databases; here one process plays them all.
type deployment struct {
	*demo.Base

	opt     options
	log     *slog.Logger
	story   *demo.Story
	servers *devstack.Stack
	meters  *meters

	shop   *shop
	relay  *relay.Relay
	inbox  *inbox.Inbox
	copier *copier
}

// open makes the tables and the stream, and wires the shop. The caller closes it.
func open(ctx context.Context, servers *devstack.Stack, opt options, log *slog.Logger, story *demo.Story) (*deployment, error) {
	base, err := demo.OpenBase(ctx, servers, "demo", opt.clients+2*workers+2, tablesSQL, // 2 are the relay's
		jetstream.StreamConfig{Name: stream, Subjects: []string{"order.>"}})
	if err != nil {
		return nil, err
	}
	d := &deployment{Base: base, opt: opt, log: log, story: story, servers: servers, meters: newMeters()}
	d.wire()
	return d, nil
}
