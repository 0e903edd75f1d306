package main

import (
	"context"
	_ "embed" // the statements
	"fmt"

	"github.com/postroom/postroom/examples/internal/demo"
)

var (
	//go:embed sql/prove.sql
	proveSQL string
	//go:embed sql/measure.sql
	measureSQL string
	//go:embed sql/tale.sql
	taleSQL string
)

// findings are what measure.sql returns.
type findings struct {
	Orders, Confirmed, Cancelled, Declined, Short, Expired int64
	Events, Decided, Charged, Refunded                     int64
}

// scene is a step of the story of one order.
type scene struct {
	Seconds              float64 // since it was placed
	Service, Table, What string
}

// prove runs the proof over what was gathered; placed is how many orders there are
// to be.
func prove(ctx context.Context, auditor demo.Querier, placed int64) ([]demo.Check, error) {
	return demo.Prove(ctx, auditor, proveSQL, placed)
}

// judge looks at what the run left behind; running is the error with which it ended.
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
	if interrupted { // then only the order service knows how many there are
		placed = 0
	}
	checks, err := prove(ctx, d.books[audit].Pool, placed)
	if err != nil {
		return nil, err
	}
	scenes, err := demo.Rows[scene](ctx, d.books[audit].Pool, taleSQL)
	if err != nil {
		return nil, fmt.Errorf("tell the story of an order: %w", err)
	}
	delivered, err := deliveries(ctx, d.nc)
	if err != nil {
		return nil, err
	}
	return &result{
		Proof: demo.Proof{Checks: checks, Running: running}, findings: found, scenes: scenes, interrupted: interrupted,
		killed: d.crashes.killed, kills: d.opt.kills, repeated: delivered - found.Decided,
	}, nil
}
