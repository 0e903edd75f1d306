// Package choreography is a shop of three services without a saga. Each service reacts to events
// of the others, and undoes its own part. It is the shop of examples/saga, for comparison.
//
//	order.placed ──► payment.charged ──► stock.reserved ──► order.confirmed
//	             └─► payment.declined ────────────────────► order.cancelled
//	                                 └─► stock.short
//	                                       └─► payment.refunded ──► order.cancelled
//	order.deadline ─► order.expired ──► payment.refunded or .voided ──► order.cancelled
//	                                └─► stock.released
//
// Events of different services overtake each other, because two streams have no common order. So
// the event that undoes a step can come before the step. Each service keeps a row for each order.
// The row's lock lets one handler at a time decide. The row also says whether the order is closed.
package choreography

import (
	"context"
	_ "embed" // for the SQL of the tables
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/outbox"
)

var (
	//go:embed sql/order.sql
	orderTables string
	//go:embed sql/payment.sql
	paymentTables string
	//go:embed sql/stock.sql
	stockTables string
)

// Events of the services. Each service writes the events whose types begin with its name.
const (
	orderPlaced    = "order.placed"
	orderDeadline  = "order.deadline" // scheduled: the time of an order is over
	orderExpired   = "order.expired"  // the time was over before the order had ended
	orderConfirmed = "order.confirmed"
	orderCancelled = "order.cancelled"

	paymentCharged  = "payment.charged"
	paymentDeclined = "payment.declined"
	paymentRefunded = "payment.refunded"
	paymentVoided   = "payment.voided" // nothing was charged, and nothing will be charged

	stockReserved = "stock.reserved"
	stockShort    = "stock.short"
	stockReleased = "stock.released"
)

// Order is the data of all events. Each service needs a part of it. No service asks another for
// data.
type Order struct {
	ID       string `json:"id"`
	Customer int    `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Amount   int64  `json:"amount"`           // cents
	Reason   string `json:"reason,omitempty"` // why an order was not completed
}

// Reasons for which orders are cancelled.
const (
	reasonDeclined = "declined"
	reasonStock    = "out of stock"
	reasonTime     = "out of time"
)

// Orders adds the handlers of the order service to its inbox, and returns a function that places an
// order. The function reports whether the order is new. Its argument patience is how long the order
// may take.
func Orders(in *inbox.Inbox, pool *pgxpool.Pool, out *outbox.Outbox) (place func(ctx context.Context, o Order, patience time.Duration) (isNew bool, err error)) {
	s := &orderService{pool: pool, outbox: out}
	s.subscribe(in)
	return s.place
}

// Payments adds the handlers of the payment service to its inbox.
func Payments(in *inbox.Inbox, out *outbox.Outbox) { (&paymentService{outbox: out}).subscribe(in) }

// Stock adds the handlers of the stock service to its inbox.
func Stock(in *inbox.Inbox, out *outbox.Outbox) { (&stockService{outbox: out}).subscribe(in) }

// on returns the subscription of a handler to events of some types in a stream.
func on(handler, stream string, types ...string) inbox.Subscription {
	return inbox.Subscription{
		Name: handler, Stream: stream, Types: types, Timeout: 5 * time.Second,
		Schedule: postroom.DefaultBackoff(), Attempts: postroom.DefaultAttempts,
	}
}
