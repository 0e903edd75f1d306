package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Backlog returns how many events are held for each handler.
func (db Upkeep) Backlog(ctx context.Context, handlers []string) ([]delivery.Stock, error) {
	rows, _ := db.pool.Query(ctx, db.sql.Backlog, handlers) // CollectRows returns its error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[delivery.Stock])
	if err != nil {
		return nil, fmt.Errorf("count held events: %w", err)
	}
	return all, nil
}

// Lag returns the numbers of held events and of pending messages of each handler.
func (db Upkeep) Lag(ctx context.Context, pending map[string]int64) ([]delivery.Lag, error) {
	held, err := db.Backlog(ctx, slices.Sorted(maps.Keys(pending)))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(held, func(a, b delivery.Stock) int { return strings.Compare(a.Handler, b.Handler) })
	all := make([]delivery.Lag, len(held))
	for i, h := range held {
		all[i] = delivery.Lag{Handler: h.Handler, Pending: pending[h.Handler], Retrying: h.Retrying, Waiting: h.Waiting, Dead: h.Dead}
	}
	return all, nil
}
