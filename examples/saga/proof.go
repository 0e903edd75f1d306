package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/saga"
)

var (
	//go:embed sql/prove.sql
	proveSQL string
	//go:embed sql/measure.sql
	measureSQL string
	//go:embed sql/longest.sql
	longestSQL string
)

// findings is the row that measure.sql returns.
type findings struct {
	Orders, Confirmed, Cancelled, Declined, Short, Expired, Undone int64
	Events, Decided, Charged, Refunded                             int64
}

// prove runs the proof over the evidence. The proof fails if fewer than placed orders exist.
func prove(ctx context.Context, auditor demo.Querier, placed int64) ([]demo.Check, error) {
	return demo.Prove(ctx, auditor, proveSQL, placed)
}

// judge examines the result of the run. The parameter running is the run's error, or nil.
func (d *deployment) judge(running error, interrupted bool) (*result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), demo.JudgePatience)
	defer cancel()
	from := make(map[string]demo.Querier)
	for _, service := range services {
		from[service] = d.books[service].Pool
	}
	if err := d.books.gather(ctx, d.nc, from); err != nil {
		return nil, err
	}
	found, err := demo.Row[findings](ctx, d.books[audit].Pool, measureSQL)
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	placed := int64(d.opt.orders)
	if interrupted { // then only the order service knows how many orders there are
		placed = 0
	}
	checks, err := prove(ctx, d.books[audit].Pool, placed)
	if err != nil {
		return nil, err
	}
	story, stuck, err := d.ask(ctx)
	if err != nil {
		return nil, err
	}
	delivered, err := deliveries(ctx, d.nc)
	if err != nil {
		return nil, err
	}
	return &result{
		Proof: demo.Proof{Checks: checks, Running: running}, findings: found, story: story, stuck: stuck, interrupted: interrupted,
		killed: d.crashes.killed, kills: d.opt.kills, repeated: delivered - found.Decided,
	}, nil
}

// ask reads the story of one order from the order service's database, as an operator does. It also
// returns how many sagas are stuck.
func (d *deployment) ask(ctx context.Context) (story saga.Story, stuck int, err error) {
	sagas := saga.NewStore(d.books[order].Pool, saga.StoreConfig{})
	all, _, err := sagas.List(ctx, saga.Filter{Stuck: true}, postroom.Page{})
	if err != nil {
		return story, 0, err
	}
	var id string
	err = d.books[audit].Pool.QueryRow(ctx, longestSQL).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return story, len(all), nil
	}
	if err != nil {
		return story, 0, fmt.Errorf("choose an order: %w", err)
	}
	story, err = sagas.Show(ctx, "order.checkout", id)
	return story, len(all), err
}
