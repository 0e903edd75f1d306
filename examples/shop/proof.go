package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"

	"github.com/postroom/postroom/examples/internal/demo"
)

var (
	//go:embed sql/prove.sql
	proveSQL string
	//go:embed sql/measure.sql
	measureSQL string
)

// judge examines the result of the run. The parameter running is the run's error, or nil.
func (d *deployment) judge(running error) (*result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), demo.JudgePatience)
	defer cancel()
	if err := d.gather(ctx); err != nil {
		return nil, fmt.Errorf("gather evidence: %w", err)
	}
	checks, err := d.prove(ctx, d.Pool)
	if err != nil {
		return nil, err
	}
	found, err := demo.Row[findings](ctx, d.Pool, measureSQL)
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	counted, err := d.meters.read(ctx)
	if err != nil {
		return nil, errors.Join(errors.New("read metrics"), err)
	}
	return d.result(demo.Proof{Checks: checks, Running: running}, found, counted), nil
}

// gather adds evidence to the database: the messages of the stream, and the orders that the clients
// rolled back. The run itself left neither of them in the database.
func (d *deployment) gather(ctx context.Context) error {
	read, err := demo.ReadStream(ctx, d.NATS, stream)
	if err != nil {
		return err
	}
	var messages, rolledBack [][]any
	for _, m := range read {
		messages = append(messages, []any{int64(m.Seq), m.ID(), m.Type(), m.Key(), m.Header.Get(copyHeader) != ""}) //nolint:gosec // not that many
	}
	for _, o := range d.shop.placed.rollbacks() {
		rolledBack = append(rolledBack, []any{o.ID, o.Customer})
	}
	return demo.Store(ctx, d.Pool,
		demo.Evidence{Table: "stream_message", Columns: []string{"seq", "event_id", "type", "key", "copied"}, Rows: messages},
		demo.Evidence{Table: "rolled_back", Columns: []string{"order_id", "customer"}, Rows: rolledBack},
	)
}

// prove runs the proof. The proof gets the number of orders that the clients committed.
func (d *deployment) prove(ctx context.Context, db demo.Querier) ([]demo.Check, error) {
	return demo.Prove(ctx, db, proveSQL, d.shop.placed.committed.Load())
}

// findings is the row that measure.sql returns.
type findings struct {
	Orders, Charged, Counted, Held int64
	P50, P99                       float64 // seconds
	Version                        string
	Durable                        bool
}

// result summarises a run. If the run was not complete, events that are still missing do not count
// as lost.
func (d *deployment) result(proof demo.Proof, found findings, c counts) *result {
	r := &result{
		orders: orders{
			Seed: d.opt.seed, Clients: d.opt.clients,
			Orders: found.Orders, RolledBack: int64(len(d.shop.placed.rollbacks())), Held: found.Held,
		},
		effects: effects{
			Published: c.published, Late: c.late, Charged: found.Charged, Counted: found.Counted,
			CopiesSent: d.copier.sent.Load(), Suppressed: c.charge.suppressed + c.tallied.suppressed,
			ByBilling: c.charge.suppressed, ByAnalytics: c.tallied.suppressed,
		},
		pace: pace{
			PlacingSecs: d.shop.placed.placing.Seconds(), TotalSecs: d.shop.placed.took.Seconds(),
			P50: found.P50, P99: found.P99,
		},
		waits: d.waits,
		violations: violations{
			Lost: proof.Violations("lost"), Ghosts: proof.Violations("ghost"), Doubles: proof.Violations("double"),
		},
		Proof: proof,
		software: software{
			PostgreSQL: found.Version, PostgresFrom: d.servers.Postgres.Source(), Durable: found.Durable,
			NATS: d.NATS.ConnectedServerVersion(),
		},
	}
	r.Open, r.Undecided = proof.OpenViolations()
	return r
}
