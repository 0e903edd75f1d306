package main

import (
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// The services know one another by these events only. Each writes those that begin
// with its name, to the stream that has its name.
//
//	order.placed ──► payment.charged ──► stock.reserved ──► order.confirmed
//	             └─► payment.declined ────────────────────► order.cancelled
//	                                 └─► stock.short
//	                                       └─► payment.refunded ──► order.cancelled
//	order.deadline ─► order.expired ──► payment.refunded or .voided ──► order.cancelled
//	                                └─► stock.released
const (
	orderPlaced    = "order.placed"
	orderDeadline  = "order.deadline" // scheduled: the time of an order is over
	orderExpired   = "order.expired"  // it was over before the order had ended
	orderConfirmed = "order.confirmed"
	orderCancelled = "order.cancelled"

	paymentCharged  = "payment.charged"
	paymentDeclined = "payment.declined"
	paymentRefunded = "payment.refunded"
	paymentVoided   = "payment.voided" // nothing was charged, and nothing will be

	stockReserved = "stock.reserved"
	stockShort    = "stock.short"
	stockReleased = "stock.released"
)

// Services, in the order in which they are killed.
const (
	order   = "order"
	payment = "payment"
	stock   = "stock"
)

var services = []string{payment, stock, order}

// streams are the services' streams.
var streams = map[string]string{order: "ORDER", payment: "PAYMENT", stock: "STOCK"}

// subscription says which events of which service a handler takes. The name is for
// ever: events are decided once for each name.
type subscription struct {
	service, handler string
	from             string
	types            []string
}

var subscriptions = []subscription{
	{payment, "payment.charge", order, []string{orderPlaced}},
	{payment, "payment.refund-short", stock, []string{stockShort}},
	{payment, "payment.refund-expired", order, []string{orderExpired}},
	{stock, "stock.reserve", payment, []string{paymentCharged}},
	{stock, "stock.release", order, []string{orderExpired}},
	{order, "order.confirm", stock, []string{stockReserved}},
	{order, "order.cancel", payment, []string{paymentDeclined, paymentRefunded, paymentVoided}},
	{order, "order.expire", order, []string{orderDeadline}},
}

// workers is how many events a handler works on at a time.
const workers = 3

// subscribe returns a handler's subscription by its name.
func subscribe(handler string) inbox.Subscription {
	for _, s := range subscriptions {
		if s.handler == handler {
			return inbox.Subscription{
				Name: handler, Stream: streams[s.from], Types: s.types, Workers: workers, Timeout: 5 * time.Second,
				Schedule: postroom.FastBackoff(), Attempts: postroom.FastAttempts, // nobody waits for a demo for a quarter of an hour
			}
		}
	}
	panic("no such handler: " + handler)
}

// Order is what all events say: each service needs a part of it, and none asks
// another.
type Order struct {
	ID       string `json:"id"`
	Customer int    `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Amount   int64  `json:"amount"`           // cents
	Reason   string `json:"reason,omitempty"` // of what did not go well
}

// Reasons for which orders are cancelled.
const (
	reasonDeclined = "declined"
	reasonStock    = "out of stock"
	reasonTime     = "out of time"
)
