package main

import (
	"context"
	_ "embed" // the statements
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/examples/internal/demo"
)

var (
	//go:embed sql/prove.sql
	proveSQL string
	//go:embed sql/measure.sql
	measureSQL string
)

// gather brings what the provider remembers into the database.
func (d *deployment) gather(ctx context.Context, db *pgx.Conn) error {
	d.provider.mu.Lock()
	defer d.provider.mu.Unlock()
	b := &d.provider.books
	var sent, expected, bad, changed [][]any
	sums := make(map[string]*sum)
	for h, answered := range b.answered {
		sent = append(sent, []any{h.id, h.n, h.payment, h.eventType, h.amount, answered})
		if sums[h.payment] == nil {
			sums[h.payment] = &sum{}
		}
		sums[h.payment].add(h)
	}
	for payment, s := range sums {
		expected = append(expected, []any{payment, s.authorized, s.captured, s.refunded, s.state()})
	}
	for _, a := range b.bad {
		bad = append(bad, []any{a.id, string(a.kind), a.answer})
	}
	for _, id := range b.changed {
		changed = append(changed, []any{id})
	}
	return demo.Store(ctx, db,
		demo.Evidence{Table: "sent", Columns: []string{"webhook_id", "n", "payment", "type", "amount", "answered"}, Rows: sent},
		demo.Evidence{Table: "expected", Columns: []string{"payment", "authorized", "captured", "refunded", "state"}, Rows: expected},
		demo.Evidence{Table: "bad", Columns: []string{"webhook_id", "kind", "answer"}, Rows: bad},
		demo.Evidence{Table: "changed", Columns: []string{"webhook_id"}, Rows: changed},
	)
}

// sum is a payment in the provider's own books.
type sum struct{ authorized, captured, refunded int64 }

func (s *sum) add(h *hook) {
	switch h.eventType {
	case authorized:
		s.authorized += h.amount
	case captured:
		s.captured += h.amount
	case refunded:
		s.refunded += h.amount
	}
}

// state is where a payment stands. It is written a second time on purpose, apart
// from the tables. Incomplete are payments of an interrupted run only.
func (s *sum) state() string {
	whole := func(part, of int64, name string) string {
		if part == of {
			return name
		}
		return "partly " + name
	}
	switch {
	case s.authorized < s.captured || s.captured < s.refunded:
		return "incomplete"
	case s.refunded > 0:
		return whole(s.refunded, s.captured, "refunded")
	case s.captured > 0:
		return whole(s.captured, s.authorized, "captured")
	default:
		return "authorized"
	}
}

func prove(ctx context.Context, db demo.Querier) ([]demo.Check, error) {
	return demo.Prove(ctx, db, proveSQL, handlerName, source)
}

// findings are what measure.sql returns.
type findings struct {
	Payments, Webhooks, Applied, Conflicts, OutOfOrder, Kept int64
}

// judge looks at what the run left behind; running is the error with which it
// ended.
func (d *deployment) judge(running error) (r *result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), demo.JudgePatience)
	defer cancel()
	err = d.audit(ctx, func(conn *pgx.Conn) error {
		if err := d.gather(ctx, conn); err != nil {
			return err
		}
		checks, err := prove(ctx, conn)
		if err != nil {
			return err
		}
		found, err := demo.Row[findings](ctx, conn, measureSQL, handlerName)
		if err != nil {
			return fmt.Errorf("measure: %w", err)
		}
		r = d.result(demo.Proof{Checks: checks, Running: running}, found)
		return nil
	})
	return r, err
}

func (d *deployment) result(proof demo.Proof, found findings) *result {
	return &result{
		Proof: proof, findings: found,
		interrupted: d.provider.finished.Load() < int64(len(d.provider.deliveries)),
		requests:    d.provider.requests.Load(), again: d.provider.again.Load(),
		duplicates: d.counts.duplicates.Load(), refused: d.counts.refused.Load(), unavailable: d.counts.unavailable.Load(),
	}
}
