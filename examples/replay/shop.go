package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

const (
	stream  = "SHOP" // the stream's subjects begin with "order."
	workers = 4

	// Handlers. The replay of a handler's events never runs the other handler.
	billingCharge = "billing.charge"
	mailThanks    = "mail.thanks"
)

//go:embed sql/tables.sql
var tablesSQL string

// Order is the data of the events of an order.
type Order struct {
	ID       string `json:"id"`
	Currency string `json:"currency"`
	Amount   string `json:"amount"` // a decimal number
}

// Event types. Events of one order stay in order.
var (
	orderPlaced  = postroom.NewType("order.placed", keyOf)
	orderCharged = postroom.NewType("order.charged", keyOf)
)

func keyOf(o Order) string { return o.ID }

// shop is a service that sells goods, charges customers and thanks them.
type shop struct {
	*demo.Base

	opt     options
	letters *deadletter.Store

	orders, billing *outbox.Outbox
	relay           *relay.Relay
	inbox           *inbox.Inbox
}

// open makes the tables, the stream and the shop. The caller closes the shop.
func open(ctx context.Context, servers *devstack.Stack, opt options) (*shop, error) {
	base, err := demo.OpenBase(ctx, servers, "replay", 2*workers+8, tablesSQL,
		jetstream.StreamConfig{Name: stream, Subjects: []string{"order.>"}})
	if err != nil {
		return nil, err
	}
	s := &shop{Base: base, opt: opt}
	s.wire()
	return s, nil
}

// wire makes the parts of Postroom: outboxes, relay, inbox with its handlers, and dead letters.
func (s *shop) wire() {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil)) // thousands of events fail here on purpose
	s.orders = outbox.New(outbox.Config{Source: "/shop"})
	s.billing = outbox.New(outbox.Config{Source: "/billing"})
	s.relay = relay.New(s.Pool, natsjs.NewPublisher(s.NATS), relay.Config{Logger: quiet})
	s.inbox = inbox.New(s.Pool, s.NATS, inbox.Config{Logger: quiet})
	s.inbox.Handle(inbox.Subscription{Name: billingCharge, Stream: stream, Workers: workers, Attempts: 2, Schedule: postroom.FastBackoff()},
		orderPlaced.Handler(s.charge))
	s.inbox.Handle(inbox.Subscription{Name: mailThanks, Stream: stream, Workers: workers, Schedule: postroom.FastBackoff()},
		orderPlaced.Handler(s.thank))
	s.letters = deadletter.New(s.Pool, deadletter.Config{})
}

// during runs the relay and the inbox until the function do returns.
func (s *shop) during(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return postroom.Run(ctx, s.relay, s.inbox, runner(func(ctx context.Context) error {
		defer cancel() // when the function do has returned, the relay and the inbox drain
		return do(ctx)
	}))
}

// runner turns a function into a postroom.Runner.
type runner func(ctx context.Context) error

// Run calls the function.
func (r runner) Run(ctx context.Context) error { return r(ctx) }

// place writes an order and its event in one transaction.
func (s *shop) place(ctx context.Context, o Order) error {
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO shop_order VALUES ($1, $2, $3)", o.ID, o.Currency, o.Amount); err != nil {
			return fmt.Errorf("insert order: %w", err)
		}
		return s.orders.Write(ctx, tx, orderPlaced.New(o))
	})
}

// plan returns the night's orders.
func plan(opt options) []Order {
	chance := rand.New(rand.NewPCG(opt.seed, 0)) //nolint:gosec // a shop, not a secret
	orders := make([]Order, opt.orders)
	for i := range orders {
		o := Order{ID: fmt.Sprintf("order-%06d", i+1), Currency: "USD", Amount: fmt.Sprintf("%d.%02d", 1+chance.IntN(500), chance.IntN(100))}
		switch {
		case i%100 == 50: // a customer who writes a comma for the decimal point
			o.Amount = strings.ReplaceAll(o.Amount, ".", ",")
		case i%3 == 0:
			o.Currency = "EUR"
		}
		orders[i] = o
	}
	return orders
}

// charge charges an order in cents of a dollar, and writes an event. It needs the rate of the
// order's currency.
func (s *shop) charge(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
	units, hundredths, ok := strings.Cut(o.Amount, ".")
	cents, err := strconv.Atoi(units + hundredths)
	if err != nil || !ok || len(hundredths) != 2 {
		return postroom.Permanent(fmt.Errorf("amount %q is no number", o.Amount))
	}
	var percent int
	err = tx.QueryRow(ctx, "SELECT percent FROM rate WHERE currency = $1", o.Currency).Scan(&percent)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("no rate for currency %s", o.Currency)
	}
	if err != nil {
		return fmt.Errorf("read rate: %w", err)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO charge (order_id, cents) VALUES ($1, $2)", o.ID, cents*percent/100); err != nil {
		return fmt.Errorf("insert charge: %w", err)
	}
	return s.billing.Write(ctx, tx, orderCharged.Follow(ev, o))
}

// thank records that a customer was thanked.
func (s *shop) thank(ctx context.Context, tx pgx.Tx, _ postroom.Event, o Order) error {
	_, err := tx.Exec(ctx, "INSERT INTO thanks (order_id) VALUES ($1)", o.ID)
	return err
}
