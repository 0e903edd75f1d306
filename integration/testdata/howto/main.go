// Howto has the code that the examples of docs/howto/test-a-handler.md test.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/outbox"
)

func main() {}

// Order is the data of events.
type Order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount,omitempty"`
}

// OrderPlaced is the type of the events.
var OrderPlaced = postroom.NewType("order.placed", func(o Order) string { return o.ID })

var (
	shop  = outbox.New(outbox.Config{Source: "/shop"})
	order = Order{ID: "o-1"}
)

func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "CREATE TABLE charge (order_id text, amount int)")
	return err
}

func placeOrder(ctx context.Context, tx pgx.Tx, o Order) error {
	return shop.Write(ctx, tx, OrderPlaced.New(o))
}

func writeOrders(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	for i := range n {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return placeOrder(t.Context(), tx, Order{ID: fmt.Sprint("o-", i%10), Amount: i})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func charge(ctx context.Context, tx pgx.Tx, _ postroom.Event, o Order) error {
	_, err := tx.Exec(ctx, "INSERT INTO charge VALUES ($1, $2)", o.ID, o.Amount)
	return err
}

// chargeBy returns a function that is wrong on purpose: it writes outside of the transaction that
// it gets.
func chargeBy(pool *pgxpool.Pool) func(context.Context, pgx.Tx, postroom.Event, Order) error {
	return func(ctx context.Context, _ pgx.Tx, _ postroom.Event, o Order) error {
		_, err := pool.Exec(ctx, "INSERT INTO charge VALUES ($1, $2)", o.ID, o.Amount)
		return err
	}
}

// h is a handler that charges. It fails once, for an order with the amount 7.
var h = func() postroom.Handler {
	var failed atomic.Bool
	return OrderPlaced.Handler(func(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error {
		if o.Amount == 7 && failed.CompareAndSwap(false, true) {
			return errors.New("the card reader is off")
		}
		return charge(ctx, tx, ev, o)
	})
}()

// chargeAt returns an external handler that charges through a vendor's HTTP interface at url.
func chargeAt(url string) inbox.ExternalHandler {
	client := &http.Client{Timeout: 200 * time.Millisecond}
	return func(ctx context.Context, a *inbox.Attempt) error {
		_, err := inbox.Step(ctx, a, "charge", func(ctx context.Context, key string) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", http.NoBody)
			if err != nil {
				return "", err
			}
			req.Header.Set("Idempotency-Key", key)
			resp, err := client.Do(req)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			ref, err := io.ReadAll(resp.Body)
			return string(ref), err
		})
		return err
	}
}
