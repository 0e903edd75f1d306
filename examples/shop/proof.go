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

// querier is what the proof reads from: the pool, or a test's transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// gather brings the evidence that is not in the database into it: the messages
// of the stream, and the orders that their clients rolled back.
func (d *demo) gather(ctx context.Context) error {
	messages, err := readStream(ctx, d.nc)
	if err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	_, err = d.pool.CopyFrom(ctx, pgx.Identifier{"stream_message"}, []string{"seq", "event_id", "type", "key", "copied"},
		pgx.CopyFromSlice(len(messages), func(n int) ([]any, error) {
			m := messages[n]
			return []any{int64(m.seq), m.id, m.eventType, m.key, m.copied}, nil //nolint:gosec // not that many
		}))
	if err != nil {
		return fmt.Errorf("store messages: %w", err)
	}
	orders := d.placed.rollbacks()
	_, err = d.pool.CopyFrom(ctx, pgx.Identifier{"rolled_back"}, []string{"order_id", "customer"},
		pgx.CopyFromSlice(len(orders), func(n int) ([]any, error) {
			return []any{orders[n].ID, orders[n].Customer}, nil
		}))
	if err != nil {
		return fmt.Errorf("store rolled-back orders: %w", err)
	}
	// The tables were filled a moment ago; without this they count as empty.
	if _, err := d.pool.Exec(ctx, "ANALYZE"); err != nil {
		return fmt.Errorf("analyze: %w", err)
	}
	return nil
}

// check is one statement of the proof.
type check struct {
	N          int    `json:"-"`
	Violation  string `json:"violation"` // what one is: lost, ghost or double
	Name       string `json:"name"`
	Violations int64  `json:"violations"`
}

// prove runs the proof; committed is how many orders the clients committed.
func prove(ctx context.Context, db querier, committed int64) ([]check, error) {
	rows, _ := db.Query(ctx, proveSQL, committed) // CollectRows reports the error
	checks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[check])
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	return checks, nil
}

// violations adds up the violations of one sort.
func violations(checks []check, sort string) int64 {
	var n int64
	for _, c := range checks {
		if c.Violation == sort {
			n += c.Violations
		}
	}
	return n
}

// findings are what measure.sql returns.
type findings struct {
	Orders, Charged, Counted, Held int64
	P50, P99                       float64 // seconds
	Version                        string
	Durable                        bool
}

func measure(ctx context.Context, db querier) (findings, error) {
	rows, _ := db.Query(ctx, measureSQL) // CollectOneRow reports the error
	found, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[findings])
	if err != nil {
		return found, fmt.Errorf("measure: %w", err)
	}
	return found, nil
}
