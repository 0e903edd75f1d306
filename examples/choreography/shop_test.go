package choreography

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/postroomtest/servers"
	"github.com/postroom/postroom/relay"
)

// There are three services with a database each. Every order ends in exactly one way, and
// money and goods add up.
func TestShop(t *testing.T) {
	nc := servers.NATS(t)
	var parts []postroom.Runner
	service := func(name, stream, sql string) (*pgxpool.Pool, *inbox.Inbox, *outbox.Outbox) {
		pool := tables(t, sql)
		servers.Stream(t, nc, stream, name+".>")
		in := inbox.New(pool, nc, inbox.Config{})
		parts = append(parts, in, relay.New(outbox.NewLog(pool), natsjs.NewPublisher(nc), relay.Config{}))
		return pool, in, outbox.New(outbox.Config{Source: "/" + name})
	}
	_, inPayment, outPayment := service("payment", "PAYMENT", paymentTables+"INSERT INTO account SELECT n, 1000 * (n % 2), 1000 * (n % 2) FROM generate_series(1, 4) n")
	Payments(inPayment, outPayment)
	_, inStock, outStock := service("stock", "STOCK", stockTables+"INSERT INTO item VALUES ('x', false, 9, 9, 9), ('y', true, 0, 0, 0)")
	Stock(inStock, outStock)
	pool, in, out := service("order", "ORDER", orderTables)
	place := Orders(in, pool, out)
	for i := range 12 {
		o, patience := Order{ID: fmt.Sprint("order-", i), Customer: 1 + i%4, SKU: "x", Quantity: 3, Amount: 10}, time.Hour
		if i == 4 {
			o.SKU, patience = "y", time.Second // of a supplier who never answers
		}
		if _, err := place(t.Context(), o, patience); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- postroom.Run(ctx, parts...) }()
	devtest.Eventually(t, time.Minute, "the end of all orders", func() bool {
		return value(t, pool, "SELECT count(*)::text FROM orders WHERE ended_at IS NULL") == "0"
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	got := value(t, pool, "SELECT string_agg(state || ' ' || reason || ' ' || n, ', ' ORDER BY state, reason) FROM (SELECT state, reason, count(*) AS n FROM orders GROUP BY 1, 2) s")
	if want := "cancelled declined 6, cancelled out of stock 2, cancelled out of time 1, confirmed  3"; got != want {
		t.Errorf("orders are %q, want %q", got, want)
	}
}
