package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Stock is what is held of one handler, as backlog.sql returns it.
type Stock struct {
	Handler                          string
	Retrying, Waiting, Dead, Keys    int64
	RetryingAge, WaitingAge, DeadAge float64
	Overdue                          float64
}

// Backlog returns what is held of each handler.
func (db *DB) Backlog(ctx context.Context, handlers []string) ([]Stock, error) {
	rows, _ := db.pool.Query(ctx, db.sql.backlog, handlers) // its error is returned by CollectRows
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Stock])
	if err != nil {
		return nil, fmt.Errorf("count held events: %w", err)
	}
	return all, nil
}
