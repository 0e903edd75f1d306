package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/outbox"
)

const (
	people = 1000 // customers; the card of one in ten is declined

	// For one in holdEvery orders, the transaction stays open for a while after the event was
	// written, as in a slow service or a paused process.
	holdEvery          = 200
	holdLeast, holdMax = 100 * time.Millisecond, 400 * time.Millisecond
)

// request is an order that a client is going to place.
type request struct {
	Order

	declined bool          // the client writes the event, and then rolls back
	hold     time.Duration // how long to keep the transaction open
}

// plan returns requests: n will commit, and the others will roll back. The same seed gives the same
// requests.
func plan(seed uint64, n int) []request {
	chance := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a shop, not a secret
	requests := make([]request, 0, n+n/8)
	for committed := 0; committed < n; {
		r := request{Order: Order{
			ID:       fmt.Sprintf("order-%07d", len(requests)+1),
			Customer: 1 + chance.IntN(people),
			Amount:   100 + chance.Int64N(100_000),
		}}
		r.declined = r.Customer%10 == 0
		if len(requests)%holdEvery == holdEvery/2 {
			r.hold = holdLeast + time.Duration(chance.Int64N(int64(holdMax-holdLeast)))
		}
		if !r.declined {
			committed++
		}
		requests = append(requests, r)
	}
	return requests
}

// tally is the clients' own record of their orders.
type tally struct {
	committed     atomic.Int64
	placing, took time.Duration // time until all orders were placed, and until all took effect

	mu         sync.Mutex
	rolledBack []Order // the database does not have them
}

func (t *tally) rolled(o Order) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rolledBack = append(t.rolledBack, o)
}

func (t *tally) rollbacks() []Order {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rolledBack[:len(t.rolledBack):len(t.rolledBack)]
}

// shop takes orders.
type shop struct {
	pool   *pgxpool.Pool
	outbox *outbox.Outbox
	placed tally // what the clients know
}

// placeAll places the requests, as many at a time as there are clients. When the channel closing is
// closed, placeAll finishes the running orders and stops.
func (s *shop) placeAll(ctx context.Context, requests []request, clients int, closing <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	defer func() { s.placed.placing = time.Since(began) }()

	var next atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(requests)); n = next.Add(1) - 1 {
				select {
				case <-closing:
					return
				case <-ctx.Done():
					return
				default:
				}
				if err := s.place(ctx, requests[n]); err != nil {
					cancel(fmt.Errorf("place %s: %w", requests[n].ID, err))
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

var errDeclined = errors.New("card declined")

const insertOrder = "INSERT INTO shop_order (id, customer, amount, held) VALUES ($1, $2, $3, $4)"

// place places one order. It writes the event in the order's transaction. If the transaction
// commits, the relay publishes the event. If it rolls back, the event does not exist.
func (s *shop) place(ctx context.Context, r request) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertOrder, r.ID, r.Customer, r.Amount, r.hold > 0); err != nil {
			return fmt.Errorf("insert order: %w", err)
		}
		if err := s.outbox.Write(ctx, tx, orderPlaced.New(r.Order)); err != nil {
			return err
		}
		time.Sleep(r.hold)
		if r.declined {
			return errDeclined
		}
		return nil
	})
	switch {
	case err == nil:
		s.placed.committed.Add(1)
	case errors.Is(err, errDeclined):
		s.placed.rolled(r.Order)
	default:
		return err
	}
	return nil
}
