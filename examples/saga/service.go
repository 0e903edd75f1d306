package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// jobVariable has what a process of a service is to do, as JSON. It is not a flag,
// which everybody on the machine could read.
const jobVariable = "POSTROOM_SAGA_JOB"

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

// serveJob is the program in a process of a service, and reports whether this is
// one. It ends when its parent does, however that ends: its standard input does
// then.
func serveJob() (served bool, err error) {
	text := os.Getenv(jobVariable)
	if text == "" {
		return false, nil
	}
	signal.Ignore(os.Interrupt) // Ctrl-C is for the parent, and does not reach us where apart can help it
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return true, fmt.Errorf("read %s: %w", jobVariable, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	enough := make(chan struct{})
	go func() { // ends with the process
		told := false
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if lines.Text() == sayEnough && !told {
				told = true
				close(enough)
			}
		}
		stop()
		time.Sleep(12 * drainTimeout) // nobody waits for what takes longer
		os.Exit(1)
	}()
	return true, j.serve(ctx, enough)
}

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
func (j *job) serve(ctx context.Context, enough <-chan struct{}) error {
	level := slog.LevelError
	if j.Verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("service", j.Service)

	cfg, err := pgxpool.ParseConfig(j.Database)
	if err != nil {
		return fmt.Errorf("parse database URL: %w", err)
	}
	cfg.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer pool.Close()
	nc, err := nats.Connect(j.NATS, natsjs.ConnectOptions()...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()

	events := outbox.New(outbox.Config{Source: "/" + j.Service})
	in := inbox.New(pool, nc, inbox.Config{AckWait: ackWait, DrainTimeout: drainTimeout, Logger: log})
	parts := []postroom.Runner{
		relay.New(outbox.NewLog(pool), natsjs.NewPublisher(nc), relay.Config{Lease: lease, DrainTimeout: drainTimeout, Logger: log}),
		in,
	}
	switch j.Service {
	case order:
		s := &orderService{pool: pool, outbox: events}
		s.subscribe(in)
		parts = append(parts, &customers{shop: s, job: j, enough: enough})
	case payment:
		(&paymentService{outbox: events}).subscribe(in)
	case stock:
		(&stockService{outbox: events}).subscribe(in)
	default:
		return fmt.Errorf("no such service: %q", j.Service)
	}
	return postroom.Run(ctx, parts...)
}
