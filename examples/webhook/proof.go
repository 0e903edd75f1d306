package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/verdict"
)

var (
	//go:embed sql/prove.sql
	proveSQL string
	//go:embed sql/measure.sql
	measureSQL string
)

// findings is the row that measure.sql returns.
type findings struct {
	Payments, Webhooks, Applied, Duplicates, Conflicts, Refused, OutOfOrder, Kept, Begun int64
}

// result has everything that the program prints at its end.
type result struct {
	demo.Proof
	findings

	provider *provider
}

// judge examines the result of the run. The parameter running is the run's error, or nil.
func (d *deployment) judge(running error) (*result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), demo.JudgePatience)
	defer cancel()
	r := &result{Proof: demo.Proof{Running: running}, provider: d.provider}
	err := demo.Session(ctx, d.db.URL, func(conn *pgx.Conn) error {
		err := d.provider.store(ctx, conn)
		if err == nil {
			r.Checks, err = prove(ctx, conn)
		}
		if err == nil {
			r.findings, err = demo.Row[findings](ctx, conn, measureSQL, handlerName)
		}
		return err
	})
	if err != nil {
		err = errors.Join(running, fmt.Errorf("judge: %w", err))
	}
	return r, err
}

// store stores the provider's records in the database.
func (p *provider) store(ctx context.Context, db *pgx.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sent [][]any
	for h, genuine := range p.sent {
		if genuine {
			sent = append(sent, []any{h.id, h.n, h.payment, h.eventType, h.amount})
		}
	}
	return demo.Store(ctx, db,
		demo.Evidence{Table: "sent", Columns: []string{"webhook_id", "n", "payment", "type", "amount"}, Rows: sent},
		demo.Evidence{Table: "answer", Columns: []string{"webhook_id", "kind", "status"}, Rows: p.answers},
	)
}

func prove(ctx context.Context, db demo.Querier) ([]demo.Check, error) {
	return demo.Prove(ctx, db, proveSQL, handlerName, source)
}

// verdict returns nil if the proof holds and, in a complete run, each thing that it lists happened.
// If a thing did not happen, the run proves nothing about it, so verdict returns an error.
func (r *result) verdict() error {
	fault := r.Fault()
	if r.Running != nil || r.provider.finished.Load() < int64(len(r.provider.all)) { // the run was interrupted
		return fault
	}
	return errors.Join(fault, demo.Missed(
		demo.Met{N: r.Applied, What: "webhooks that took effect"},
		demo.Met{N: r.Duplicates, What: "duplicates"},
		demo.Met{N: r.Conflicts, What: "changed bodies"},
		demo.Met{N: r.Refused, What: "forged webhooks"},
		demo.Met{N: r.provider.away.Load(), What: "answers of 503"},
		demo.Met{N: r.OutOfOrder, What: "webhooks out of order"},
	))
}

// summary returns the last line of the output, which scripts read.
func (r *result) summary() string {
	return fmt.Sprintf("webhook: payments=%d webhooks=%d requests=%d applied=%d duplicates=%d conflicts=%d refused=%d answered_503=%d sent_again=%d"+
		" out_of_order=%d kept_cents=%d lost=%d ghosts=%d double_effects=%d wrong=%d verdict=%s",
		r.Payments, r.Webhooks, r.provider.requests.Load(), r.Applied, r.Duplicates, r.Conflicts, r.Refused, r.provider.away.Load(), r.provider.requests.Load()-r.Begun,
		r.OutOfOrder, r.Kept, r.Violations("lost"), r.Violations("ghost"), r.Violations("double"), r.Violations("wrong"), verdict.Of(r.verdict()))
}
