package ledger

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Ahead has the next delivery of a worker, and the transaction that was begun for that delivery.
type Ahead struct {
	// Opened is that transaction, begun in the round trip that ended the previous one; or nil.
	Opened *Opened

	lane <-chan *delivery.Delivery
	next *delivery.Delivery
	n    int // how many deliveries the worker has taken in a row so far
}

// NewAhead returns an Ahead that takes deliveries from a lane. If the delivery first is not nil, it
// comes before the deliveries of the lane.
func NewAhead(lane <-chan *delivery.Delivery, first *delivery.Delivery) *Ahead {
	return &Ahead{lane: lane, next: first}
}

// Run returns how many deliveries in a row this worker has taken.
func (a *Ahead) Run() int { return a.n }

// Peek returns the next delivery, or nil if none waits.
func (a *Ahead) Peek() *delivery.Delivery {
	if a.next == nil {
		select {
		case a.next = <-a.lane:
		default:
		}
	}
	return a.next
}

// Pop returns the delivery that Peek returned last, or nil. That delivery becomes the current one.
func (a *Ahead) Pop() *delivery.Delivery {
	d := a.next
	a.next = nil
	a.n++
	return d
}

// Take returns the transaction that was begun for the current delivery, or nil.
func (a *Ahead) Take() (*Tx, pgconn.CommandTag, error) {
	if a == nil || a.next != nil || a.Opened == nil {
		return nil, pgconn.CommandTag{}, nil
	}
	o := a.Opened
	a.Opened = nil
	return o.Tx, o.Tag, o.Err
}

// Drop ends the transaction that was begun for the current delivery. Call it if the
// delivery must wait, or does not need the transaction.
func (a *Ahead) Drop(ctx context.Context) {
	if tx, _, _ := a.Take(); tx != nil {
		tx.Abort(ctx)
	}
}
