package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// How many pages of inbox a step examines at least, and in how many steps it
// examines all.
const (
	sweepPages = 128
	SweepSteps = 1800
)

// Sweep removes expired rows from the next pages of inbox, if it is this process's
// turn. The next step comes after half of rest or later, and the next sweep after pause
// or later.
func (db Upkeep) Sweep(ctx context.Context, rest, pause time.Duration) (removed int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, db.pool, readCommitted, func(tx pgx.Tx) error {
		var from, pages int64
		err := tx.QueryRow(ctx, db.sql.sweep).Scan(&from, &pages)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take the turn: %w", err)
		}
		to, wait := from+max(sweepPages, pages/SweepSteps), rest/2
		var before *time.Time
		if removed, before, err = db.expire(ctx, tx, from, to); err != nil {
			return err
		}
		if to >= pages {
			to, wait = 0, pause
		}
		if _, err := tx.Exec(ctx, db.sql.swept, to, wait, before); err != nil {
			return fmt.Errorf("note the place: %w", err)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("remove old inbox rows: %w", err)
	}
	return removed, nil
}

// readCommitted is for transactions whose statements have to see what was committed while
// they waited.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// expire removes expired rows from some pages. It returns how many, and the time before
// which they were decided; nil if there were none.
func (db Upkeep) expire(ctx context.Context, tx pgx.Tx, from, to int64) (removed int64, before *time.Time, err error) {
	for _, sql := range []string{db.sql.plan, db.sql.impatient, db.sql.lockNodes, "SET LOCAL lock_timeout = 0", db.sql.windows} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return 0, nil, fmt.Errorf("read for how long rows are kept: %w", err)
		}
	}
	if err := tx.QueryRow(ctx, db.sql.expire, firstRow(from), firstRow(to)).Scan(&removed, &before); err != nil {
		return 0, nil, fmt.Errorf("remove rows: %w", err)
	}
	return removed, before, nil
}

// firstRow is the first row of a page.
func firstRow(page int64) string { return fmt.Sprintf("(%d,0)", page) }
