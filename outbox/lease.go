package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/eventlog"
)

const (
	// adoptTimeout bounds the adoption of a restored log, which reads all of it. If the
	// other end vanishes meanwhile, the operating system notices that much sooner.
	adoptTimeout = 6 * time.Hour

	// endTimeout is how long a term that did not begin tries to give its lease back.
	endTimeout = 10 * time.Second
)

// errRestored is not seen: a log is restored while nobody is connected to it.
var errRestored = errors.New("the log was restored from a dump just now")

// take takes the lease for owner, and sets when it did. Whatever can be done before is
// done before, because from then on the lease runs: it checks the sequence, and prepares
// what renews the lease.
func (l *Log) take(ctx context.Context, t *logTerm, owner string) (row leadRow, err error) {
	var restored bool
	err = within(ctx, func(ctx context.Context) (err error) {
		if restored, err = l.checkSequence(ctx, t.writer); err != nil {
			return err
		}
		for _, sql := range []string{l.sql.renew, l.sql.record} {
			if _, err := t.writer.Prepare(ctx, sql, sql); err != nil {
				return fmt.Errorf("prepare to renew lease: %w", err)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return row, err
	case restored:
		return l.adopt(ctx, t, owner)
	}
	err = within(ctx, func(ctx context.Context) (err error) {
		row, err = takeLease(ctx, t.writer, t, owner)
		return err
	})
	if err == nil && row.Restored {
		err = errRestored
	}
	return row, err
}

// takeLease runs lead.sql. The lease is counted from before the statement was sent.
func takeLease(ctx context.Context, db querier, t *logTerm, owner string) (leadRow, error) {
	t.taken = time.Now()
	row, err := oneRow[leadRow](ctx, db, t.sql.lead, unplanned, owner, t.lease)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, eventlog.ErrLeaseHeld
	}
	if err != nil {
		return row, fmt.Errorf("take lease: %w", err)
	}
	return row, nil
}

// adopt takes the lease of a restored log, and adopts the log in the same transaction:
// that may take longer than the lease, and nobody else should begin it meanwhile. The
// lease is renewed at the end, and counted from there.
func (l *Log) adopt(ctx context.Context, t *logTerm, owner string) (row leadRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, t.writer, func(tx pgx.Tx) error {
		if row, err = takeLease(ctx, tx, t, owner); err != nil {
			return err
		}
		if row.Restored {
			if row, err = oneRow[leadRow](ctx, tx, l.sql.restored, row.Epoch); err != nil {
				return fmt.Errorf("adopt restored log: %w", err)
			}
		}
		t.taken = time.Now()
		if _, err = tx.Exec(ctx, l.sql.renew, row.Epoch, t.lease); err != nil {
			return fmt.Errorf("renew lease: %w", err)
		}
		return nil
	})
	return row, err
}

// Taken returns from when on the lease that [Log.Lead] took is counted, by this
// process's clock: a moment before the statement that took it was sent. So it lasts
// until that moment and its length later at the least, whatever the statement took. It
// also returns how long a statement to the database and back took just before.
func (t *logTerm) Taken() (at time.Time, roundTrip time.Duration) { return t.taken, t.roundTrip }

// Renew keeps the lease for the given time from now on, and so does each
// [eventlog.Term.Record] after it. It returns [eventlog.ErrLeaseLost] where another term has
// begun. It may run beside Read, not beside Record, Prune or Release.
func (t *logTerm) Renew(ctx context.Context, lease time.Duration) error {
	t.lease = lease
	return t.update(ctx, t.sql.renew, t.epoch, lease)
}
