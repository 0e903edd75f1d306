package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// judgePatience bounds the gathering of evidence and the proof.
const judgePatience = 5 * time.Minute

var (
	//go:embed sql/prove.sql
	proveSQL string
	//go:embed sql/measure.sql
	measureSQL string
	//go:embed sql/tale.sql
	taleSQL string
)

// check is one statement of the proof.
type check struct {
	N          int
	Violation  string // what one is: lost, ghost, double or wrong
	Name       string
	Violations int64
}

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
func (d *demo) prove(ctx context.Context, placed int64) ([]check, error) {
	rows, _ := d.books[audit].Query(ctx, proveSQL, placed) // CollectRows reports the error
	checks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[check])
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	return checks, nil
}

func (d *demo) measure(ctx context.Context) (findings, error) {
	rows, _ := d.books[audit].Query(ctx, measureSQL) // CollectOneRow reports the error
	found, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[findings])
	if err != nil {
		return found, fmt.Errorf("measure: %w", err)
	}
	return found, nil
}

// tell returns the story of one order.
func (d *demo) tell(ctx context.Context) ([]scene, error) {
	rows, _ := d.books[audit].Query(ctx, taleSQL) // CollectRows reports the error
	scenes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[scene])
	if err != nil {
		return nil, fmt.Errorf("tell the story of an order: %w", err)
	}
	return scenes, nil
}

// judge looks at what the run left behind; running is the error with which it ended.
func (d *demo) judge(running error, interrupted bool) (*result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), judgePatience)
	defer cancel()
	from := make(map[string]querier)
	for _, service := range services {
		from[service] = d.books[service]
	}
	if err := d.gather(ctx, from); err != nil {
		return nil, err
	}
	found, err := d.measure(ctx)
	if err != nil {
		return nil, err
	}
	placed := int64(d.opt.orders)
	if interrupted { // then only the order service knows how many there are
		placed = 0
	}
	checks, failed := d.prove(ctx, placed)
	scenes, silent := d.tell(ctx)
	delivered, uncounted := d.deliveries(ctx)
	return &result{
		findings: found, checks: checks, scenes: scenes, running: running, interrupted: interrupted,
		killed: d.crashes.killed, kills: d.opt.kills, repeated: delivered - found.Decided,
	}, errors.Join(failed, silent, uncounted)
}
