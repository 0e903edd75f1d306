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

// Services. Each service has a stream, which stores the events whose types begin with the service's
// name.
const (
	order   = "order"
	payment = "payment"
	stock   = "stock"
)

var (
	services = []string{payment, stock, order}
	streams  = map[string]string{order: "ORDER", payment: "PAYMENT", stock: "STOCK"}
)

// workers is how many events a handler handles at the same time.
const workers = 3

// reading returns a handler's subscription to a service's stream. The subscription has only those
// of the given types that this stream stores. The name of the handler must never change, because
// the inbox decides an event once for each name.
func reading(handler, service string, types []string) inbox.Subscription {
	var its []string
	for _, t := range types {
		if strings.HasPrefix(t, service+".") {
			its = append(its, t)
		}
	}
	return inbox.Subscription{
		Name: handler, Stream: streams[service], Types: its, Workers: workers, Timeout: 5 * time.Second,
		Schedule: postroom.FastBackoff(), Attempts: postroom.FastAttempts, // a demo should not take a quarter of an hour
	}
}

// subscriptions returns all subscriptions of the services, for the progress and the proof.
func subscriptions() []inbox.Subscription {
	all := []inbox.Subscription{
		reading(payment, payment, []string{"payment.charge", "payment.refund"}),
		reading(stock, stock, []string{"stock.reserve", "stock.release"}),
	}
	types := saga.New(nil, nil, checkout(0)).Types()
	for _, service := range services {
		all = append(all, reading("checkout."+service, service, types))
	}
	return all
}

// roleService is the role in which this program runs as a process of a service.
const roleService = "service"

var roles = map[string]childproc.Role{roleService: serve}

// job is what a process of a service needs to know.
type job struct {
	Service        string
	Database, NATS string
	Verbose        bool

	// For the order service, whose customers place orders.
	Seed     uint64
	Orders   int
	Rate     int // orders in a second
	Patience time.Duration
}

// The lines that parent and child send each other.
const (
	sayEnough = "enough" // parent to child: place no more orders
	sayPlaced = "placed" // child to parent: the customers will place no more orders
)

const (
	// lease and ackWait say how long a killed process delays its work. After lease, another relay
	// can lead. After ackWait, the broker delivers the killed process's events again. If processes
	// seldom die, the defaults are better: 5 and 30 seconds.
	lease   = time.Second
	ackWait = time.Second

	drainTimeout = 5 * time.Second

	// connections is the size of the pool: enough for the workers of three handlers, for the two
	// spare connections of the inbox, and for the customers. The relay has two outside the pool.
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
