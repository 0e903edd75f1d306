package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// roleService is this program as a process of a service.
const roleService = "service"

var roles = map[string]childproc.Role{roleService: serve}

// job is what a process of a service is told.
type job struct {
	Service        string
	Database, NATS string
	Verbose        bool

	// For the order service, whose customers place orders.
	Seed     uint64
	Orders   int
	Rate     int // in a second
	Patience time.Duration
}

// What parent and child tell each other, line by line.
const (
	sayEnough = "enough" // no more orders are to be placed
	sayPlaced = "placed" // no more will be
)

const (
	// lease and ackWait are how long it takes until somebody goes on with what a
	// killed process had in hand: the relay's lead, and the events it handled. The
	// defaults, 5 and 30 seconds, are better where processes seldom die.
	lease   = time.Second
	ackWait = time.Second

	drainTimeout = 5 * time.Second

	// connections is for three handlers, two to spare, and one for the customers.
	// The relay has its own.
	connections = 3*workers + 3
)

// serve runs a service until ctx ends: its relay and its inbox, on its own database.
func serve(ctx context.Context, text []byte) error {
	var j job
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	log := demo.ServiceLog(os.Stderr, j.Verbose).With("service", j.Service)
	base, err := demo.Connect(ctx, j.Database, j.NATS, connections)
	if err != nil {
		return err
	}
	defer base.Close()

	events := outbox.New(outbox.Config{Source: "/" + j.Service})
	in := inbox.New(base.Pool, base.NATS, inbox.Config{AckWait: ackWait, DrainTimeout: drainTimeout, Logger: log})
	parts := []postroom.Runner{
		relay.New(outbox.NewLog(base.Pool), natsjs.NewPublisher(base.NATS), relay.Config{Lease: lease, DrainTimeout: drainTimeout, Logger: log}),
		in,
	}
	switch j.Service {
	case order:
		s := &orderService{pool: base.Pool, outbox: events}
		s.subscribe(in)
		parts = append(parts, &customers{shop: s, job: &j, enough: childproc.Told(sayEnough)})
	case payment:
		(&paymentService{outbox: events}).subscribe(in)
	case stock:
		(&stockService{outbox: events}).subscribe(in)
	default:
		return fmt.Errorf("no such service: %q", j.Service)
	}
	return postroom.Run(ctx, parts...)
}
