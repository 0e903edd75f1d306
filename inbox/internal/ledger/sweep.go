package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// How many pages of the ledger a step examines at least, and in how many steps it
// examines all.
const (
	sweepPages = 128
	SweepSteps = 1800
)

// Sweep removes expired rows from the next pages of the ledger, if it is this process's
// turn. The next step comes after half of rest or later, and the next sweep after pause
// or later.
func (db Upkeep) Sweep(ctx context.Context, keep, rest, pause time.Duration) (removed int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	err = pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		var from, pages int64
		err := tx.QueryRow(ctx, db.sql.sweep).Scan(&from, &pages)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take the turn: %w", err)
		}
		if _, err := tx.Exec(ctx, db.sql.plan); err != nil {
			return fmt.Errorf("choose plan: %w", err)
		}
		to, wait := from+max(sweepPages, pages/SweepSteps), rest/2
		tag, err := tx.Exec(ctx, db.sql.expire, firstRow(from), firstRow(to), keep)
		if err != nil {
			return fmt.Errorf("remove rows: %w", err)
		}
		removed = tag.RowsAffected()
		if to >= pages {
			to, wait = 0, pause
		}
		if _, err := tx.Exec(ctx, db.sql.swept, to, wait, keep, removed > 0); err != nil {
			return fmt.Errorf("note the place: %w", err)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("remove old inbox rows: %w", err)
	}
	return removed, nil
}

// firstRow is the first row of a page.
func firstRow(page int64) string { return fmt.Sprintf("(%d,0)", page) }
