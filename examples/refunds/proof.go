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

// findings is the row that measure.sql returns.
type findings struct {
	Charges, Refunds, Entries, Events, Calls, Effects, Cents int64
}

// gather stores in the database the records of the clients, of the provider and of the broker.
func (d *deployment) gather(ctx context.Context) error {
	messages, err := demo.ReadStream(ctx, d.NATS, stream)
	if err != nil {
		return err
	}
	var told, published [][]any
	for _, m := range messages {
		published = append(published, []any{m.ID()})
	}
	d.clients.mu.Lock()
	for _, t := range d.clients.told {
		told = append(told, []any{t.merchant, t.kind, t.key, t.status, t.body})
	}
	d.clients.mu.Unlock()
	if _, err := d.Pool.Exec(ctx, "TRUNCATE told, provided, published"); err != nil {
		return fmt.Errorf("empty the tables of evidence: %w", err)
	}
	return demo.Store(ctx, d.Pool,
		demo.Evidence{Table: "told", Columns: []string{"merchant", "kind", "key", "status", "body"}, Rows: told},
		demo.Evidence{Table: "provided", Columns: []string{"key", "kind", "ref", "amount", "calls", "effects"}, Rows: d.provider.books()},
		demo.Evidence{Table: "published", Columns: []string{"event_id"}, Rows: published},
	)
}

func prove(ctx context.Context, db demo.Querier) ([]demo.Check, error) {
	return demo.Prove(ctx, db, proveSQL)
}

// judge examines the result of the run. If an error ended the run, the parameter running is it.
func (d *deployment) judge(running error) (*result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), demo.JudgePatience)
	defer cancel()
	if err := d.gather(ctx); err != nil {
		return nil, errors.Join(running, err)
	}
	checks, err := prove(ctx, d.Pool)
	if err != nil {
		return nil, errors.Join(running, err)
	}
	found, err := demo.Row[findings](ctx, d.Pool, measureSQL)
	if err != nil {
		return nil, errors.Join(running, fmt.Errorf("measure: %w", err))
	}
	c := d.clients
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := make(map[told]bool)
	for _, t := range c.told {
		keys[told{merchant: t.merchant, kind: t.kind, key: t.key}] = true
	}
	return &result{
		Proof: demo.Proof{Checks: checks, Running: running}, findings: found, crashes: int64(d.crashes), keys: int64(len(keys)),
		requests: c.requests, replayed: c.replayed, inProgress: c.inProgress, mismatches: c.mismatches,
	}, nil
}
