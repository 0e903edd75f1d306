package main

import (
	"context"
	_ "embed" // the statements
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
)

// querier is what the proof reads from: a connection, or a test's transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// gather brings what the provider remembers into the database.
func (d *demo) gather(ctx context.Context, db *pgx.Conn) error {
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
	for _, table := range []struct {
		name    string
		columns []string
		rows    [][]any
	}{
		{"sent", []string{"webhook_id", "n", "payment", "type", "amount", "answered"}, sent},
		{"expected", []string{"payment", "authorized", "captured", "refunded", "state"}, expected},
		{"bad", []string{"webhook_id", "kind", "answer"}, bad},
		{"changed", []string{"webhook_id"}, changed},
	} {
		if _, err := db.CopyFrom(ctx, pgx.Identifier{table.name}, table.columns, pgx.CopyFromRows(table.rows)); err != nil {
			return fmt.Errorf("store evidence in %s: %w", table.name, err)
		}
	}
	// The tables were filled a moment ago; without this they count as empty.
	if _, err := db.Exec(ctx, "ANALYZE"); err != nil {
		return fmt.Errorf("analyze: %w", err)
	}
	return nil
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

// check is one statement of the proof.
type check struct {
	N          int
	Violation  string // what one is: lost, ghost, double or wrong
	Name       string
	Violations int64
}

func prove(ctx context.Context, db querier) ([]check, error) {
	rows, _ := db.Query(ctx, proveSQL, handlerName, source) // CollectRows reports the error
	checks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[check])
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	return checks, nil
}

// findings are what measure.sql returns.
type findings struct {
	Payments, Webhooks, Applied, Conflicts, OutOfOrder, Kept int64
}

func measure(ctx context.Context, db querier) (findings, error) {
	rows, _ := db.Query(ctx, measureSQL, handlerName) // CollectOneRow reports the error
	found, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[findings])
	if err != nil {
		return found, fmt.Errorf("measure: %w", err)
	}
	return found, nil
}

// judge looks at what the run left behind; running is the error with which it
// ended.
func (d *demo) judge(running error) (r *result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), judgePatience)
	defer cancel()
	err = d.audit(ctx, func(conn *pgx.Conn) error {
		if err := d.gather(ctx, conn); err != nil {
			return err
		}
		checks, err := prove(ctx, conn)
		if err != nil {
			return err
		}
		found, err := measure(ctx, conn)
		r = d.result(running, checks, found)
		return err
	})
	return r, err
}
