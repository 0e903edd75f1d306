package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Backlog returns what is held of each handler.
func (db Upkeep) Backlog(ctx context.Context, handlers []string) ([]delivery.Stock, error) {
	rows, _ := db.pool.Query(ctx, db.sql.backlog, handlers) // its error is returned by CollectRows
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[delivery.Stock])
	if err != nil {
		return nil, fmt.Errorf("count held events: %w", err)
	}
	return all, nil
}
