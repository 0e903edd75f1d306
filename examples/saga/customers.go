package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/postroom/postroom/internal/childproc"
)

const (
	people       = 60 // customers; one in twelve has no credit, and is refused
	refusedEvery = 12

	goods         = 12 // kinds of goods in stock
	suppliedEvery = 25 // every 25th order is for goods of a supplier
	supplied      = "made-to-order"
	mostQuantity  = 4
)

func isRefused(customer int) bool { return customer%refusedEvery == 0 }

// plan returns n orders. The same seed gives the same orders.
func plan(seed uint64, n int) []Order {
	chance := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a play, not a secret
	orders := make([]Order, n)
	for i := range orders {
		o := Order{ID: fmt.Sprintf("order-%05d", i+1), Customer: 1 + chance.IntN(people), Quantity: 1 + chance.Int64N(mostQuantity)}
		item := chance.IntN(goods)
		o.SKU = sku(item)
		o.Amount = o.Quantity * price(item)
		if i%suppliedEvery == suppliedEvery/2 {
			o.SKU = supplied
			o.Customer = 1 // this customer has credit
		}
		orders[i] = o
	}
	return orders
}

func sku(item int) string  { return fmt.Sprintf("item-%02d", item+1) }
func price(item int) int64 { return 500 + 125*int64(item) }

// inStock returns how many pieces of each item are in stock: about 70 % of what n orders ask for.
func inStock(n int) int { return n * (mostQuantity + 1) / 2 / goods * 7 / 10 }

// customers place the orders. At each start of their process the customers place all orders again,
// and the service recognises the orders that it has. The type implements postroom.Runner.
type customers struct {
	shop   *orderService
	job    *job
	enough <-chan struct{}
}

// Run places the orders, and then waits until ctx ends.
func (c *customers) Run(ctx context.Context) error {
	if err := c.place(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	if ctx.Err() == nil {
		childproc.Tell(sayPlaced)
	}
	<-ctx.Done()
	return nil
}

func (c *customers) place(ctx context.Context) error {
	next := time.NewTicker(time.Second / time.Duration(c.job.Rate))
	defer next.Stop()
	for _, o := range plan(c.job.Seed, c.job.Orders) {
		select {
		case <-ctx.Done():
			return nil
		case <-c.enough:
			return nil
		default:
		}
		isNew, err := c.shop.place(ctx, o)
		if err != nil {
			return fmt.Errorf("place %s: %w", o.ID, err)
		}
		if isNew {
			<-next.C
		}
	}
	return nil
}
