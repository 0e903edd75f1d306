package main

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
