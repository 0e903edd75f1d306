package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/clock"
)

// A sweep examines all pages of the table inbox, in steps. A step has at least sweepPages pages. A
// sweep has at most about SweepSteps steps.
const (
	sweepPages = 128
	SweepSteps = 1800
)

// Sweep removes expired rows from the next pages of the table inbox, if it is this process's turn.
// The next step is due after half of the given rest. After the last step of a sweep, the next sweep
// is due after the given pause.
func (db Upkeep) Sweep(ctx context.Context, rest, pause time.Duration) (removed int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, db.pool, readCommitted, func(tx pgx.Tx) error {
		var from, pages int64
		err := tx.QueryRow(ctx, db.sql.Sweep).Scan(&from, &pages)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take the turn: %w", err)
		}
		to, wait := from+max(sweepPages, pages/SweepSteps), rest/2
		if removed, err = db.expire(ctx, tx, from, to); err != nil {
			return err
		}
		if to >= pages {
			to, wait = 0, pause
		}
		if _, err := tx.Exec(ctx, db.sql.Swept, to, wait); err != nil {
			return fmt.Errorf("note the place: %w", err)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("remove old inbox rows: %w", err)
	}
	return removed, nil
}

// readCommitted is for transactions that wait for a lock and must then see what others committed.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// expire removes expired rows from some pages. It returns the number of removed rows.
func (db Upkeep) expire(ctx context.Context, tx pgx.Tx, from, to int64) (removed int64, err error) {
	for _, sql := range []string{db.sql.Plan, db.sql.Impatient, db.sql.LockNodes, "SET LOCAL lock_timeout = 0", db.sql.Windows} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return 0, fmt.Errorf("read for how long rows are kept: %w", err)
		}
	}
	if err := tx.QueryRow(ctx, db.sql.Expire, firstRow(from), firstRow(to), clock.Latest()).Scan(&removed); err != nil {
		return 0, fmt.Errorf("remove rows: %w", err)
	}
	return removed, nil
}

// firstRow returns the position of the first row of a page.
func firstRow(page int64) string { return fmt.Sprintf("(%d,0)", page) }
