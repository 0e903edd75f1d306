package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/saga"
)

// The services. The stream of a service stores the events whose types begin with its name.
const (
	order   = "order"
	payment = "payment"
	stock   = "stock"
)

var (
	services = []string{payment, stock, order}
	streams  = map[string]string{order: "ORDER", payment: "PAYMENT", stock: "STOCK"}
)

// workers is the number of events that a handler handles at the same time.
const workers = 3

// newSubscription returns a handler's subscription to a service's stream. Of the given types, the
// subscription has only those that the stream stores. The name of the handler must never change,
// because a handler with a new name gets all events of the stream again.
func newSubscription(handler, service string, types []string) inbox.Subscription {
	var its []string
	for _, t := range types {
		if strings.HasPrefix(t, service+".") {
			its = append(its, t)
		}
	}
	return inbox.Subscription{
		Name: handler, Stream: streams[service], Types: its, Workers: workers, Timeout: 5 * time.Second,
		Schedule: postroom.FastBackoff(), // the default schedule takes a quarter of an hour, too long for a demo
	}
}

// subscriptions returns all subscriptions of the services. The report of the progress and the proof
// at the end use it to see whether each handler has decided all its events.
func subscriptions() []inbox.Subscription {
	all := []inbox.Subscription{
		newSubscription(payment, payment, []string{"payment.charge", "payment.refund"}),
		newSubscription(stock, stock, []string{"stock.reserve", "stock.release"}),
	}
	types := saga.New(nil, nil, checkout(0)).Types()
	for _, service := range services {
		all = append(all, newSubscription("checkout."+service, service, types))
	}
	return all
}

// roleService is the role of a child process that runs one service.
const roleService = "service"

var roles = map[string]childproc.Role{roleService: serve}

// job is the configuration that the process of a service gets from its parent.
type job struct {
	Service        string
	Database, NATS string
	Verbose        bool

	// Only the order service uses these fields: its process also runs the customers.
	Seed     uint64
	Orders   int
	Rate     int // orders per second
	Patience time.Duration
}

// The lines that the program (parent) and the process of a service (child) send each other.
const (
	sayEnough = "enough" // parent to child: place no more orders
	sayPlaced = "placed" // child to parent: the customers have placed their last order
)

const (
	// The constants lease and ackWait limit how long the work of a killed process waits. After
	// lease, another relay can lead. After ackWait, the broker delivers the process's events again.
	// If processes seldom die, the defaults are better: 5 and 30 seconds.
	lease   = time.Second
	ackWait = time.Second

	drainTimeout = 5 * time.Second

	// connections is the size of the pool: one for each worker of three handlers, two more for the
	// inbox, and one for the customers. The relay has two connections outside the pool.
	connections = 3*workers + 3
)

// serve runs a service's relay and inbox, on the service's own database, until ctx ends.
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
		relay.New(base.Pool, natsjs.NewPublisher(base.NATS), relay.Config{Lease: lease, DrainTimeout: drainTimeout, Logger: log}),
		in,
	}
	switch j.Service {
	case order:
		s := &orderService{pool: base.Pool, checkout: saga.New(base.Pool, events, checkout(j.Patience))}
		s.subscribe(in)
		parts = append(parts, &customers{shop: s, job: &j, enough: childproc.Told(sayEnough)})
	case payment:
		subscribePayment(in, events)
	case stock:
		subscribeStock(in, events)
	default:
		return fmt.Errorf("no such service: %q", j.Service)
	}
	return postroom.Run(ctx, parts...)
}
