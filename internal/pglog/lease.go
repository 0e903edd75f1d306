package pglog

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
	// database vanishes meanwhile, the operating system notices that much sooner.
	adoptTimeout = 6 * time.Hour

	// endTimeout is how long Lead tries to give the lease back if a term cannot begin.
	endTimeout = 10 * time.Second
)

// errRestored should not happen: a log is restored while no program is connected to it.
var errRestored = errors.New("the log was restored from a dump just now")

// lease is the lease of a term. A term writes only on the connection of its lease and with
// its epoch. So it can store nothing after another term has begun.
type lease struct {
	log       *Log
	conn      *pgx.Conn
	length    time.Duration // by which Record and Renew extend it
	instance  string
	epoch     int64
	taken     time.Time     // before the statement was sent that took the lease
	roundTrip time.Duration // a statement to the database and back
}

// take takes the lease for owner, and sets taken. The lease runs from then on, so take does
// first what can be done before: it checks the sequence, and prepares the statements that
// renew the lease.
func (l *lease) take(ctx context.Context, owner string) (row leadRow, err error) {
	var restored bool
	err = within(ctx, func(ctx context.Context) (err error) {
		if restored, err = l.log.checkSequence(ctx, l.conn); err != nil {
			return err
		}
		for _, sql := range []string{l.log.sql.Renew, l.log.sql.Record} {
			if _, err := l.conn.Prepare(ctx, sql, sql); err != nil {
				return fmt.Errorf("prepare to renew lease: %w", err)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return row, err
	case restored:
		row, err = l.adopt(ctx, owner)
	default:
		err = within(ctx, func(ctx context.Context) (err error) {
			row, err = l.lead(ctx, l.conn, owner)
			return err
		})
		if err == nil && row.Restored {
			err = errRestored
		}
	}
	l.instance, l.epoch = row.Instance, row.Epoch
	return row, err
}

// lead runs lead.sql. The lease counts from before the statement is sent.
func (l *lease) lead(ctx context.Context, db querier, owner string) (leadRow, error) {
	l.taken = time.Now()
	row, err := oneRow[leadRow](ctx, db, l.log.sql.Lead, noPlan, owner, l.length)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, eventlog.ErrLeaseHeld
	}
	if err != nil {
		return row, fmt.Errorf("take lease: %w", err)
	}
	return row, nil
}

// adopt takes the lease of a restored log, and adopts the log in the same transaction. That
// may take longer than the lease, and no other relay may begin the same meanwhile. So adopt
// renews the lease at the end, and counts it from there.
func (l *lease) adopt(ctx context.Context, owner string) (row leadRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, l.conn, func(tx pgx.Tx) error {
		if row, err = l.lead(ctx, tx, owner); err != nil {
			return err
		}
		if row.Restored {
			if row, err = oneRow[leadRow](ctx, tx, l.log.sql.Adopt, row.Epoch); err != nil {
				return fmt.Errorf("adopt restored log: %w", err)
			}
		}
		l.taken = time.Now()
		if _, err = tx.Exec(ctx, l.log.sql.Renew, row.Epoch, l.length); err != nil {
			return fmt.Errorf("renew lease: %w", err)
		}
		return nil
	})
	return row, err
}

// LeaseStart returns when the lease began that [Log.Lead] took, by this process's clock: just
// before the statement was sent. So the lease does not end sooner than its length after that,
// even if the statement took long. LeaseStart also returns how long a statement to the
// database and back took before that.
func (l *lease) LeaseStart() (at time.Time, roundTrip time.Duration) { return l.taken, l.roundTrip }

// Token returns the identity of the log's instance, and the epoch of the term, which only
// rises.
func (l *lease) Token() (instance string, epoch int64) { return l.instance, l.epoch }

// Renew extends the lease to the given time from now, and so does each [eventlog.Term.Record]
// after it. It returns [eventlog.ErrLeaseLost] if another term has begun. It may run at the
// same time as Read, but not as Record, Prune or Release.
func (l *lease) Renew(ctx context.Context, length time.Duration) error {
	l.length = length
	return l.renew(ctx)
}

// renew extends the lease to its length from now.
func (l *lease) renew(ctx context.Context) error {
	return l.update(ctx, l.log.sql.Renew, l.epoch, l.length)
}

// Confirm returns nil if this term still leads, and [eventlog.ErrLeaseLost] if another has
// begun. It uses a connection of the pool, and may run at the same time as all other
// methods.
func (l *lease) Confirm(ctx context.Context) error {
	var leads bool
	if err := l.log.pool.QueryRow(ctx, l.log.sql.Confirm, l.epoch).Scan(&leads); err != nil {
		return fmt.Errorf("outbox: look at lease: %w", l.log.advise(err))
	}
	if !leads {
		return fmt.Errorf("outbox: look at lease: %w", eventlog.ErrLeaseLost)
	}
	return nil
}

// update runs a statement that changes a row if this term still leads.
func (l *lease) update(ctx context.Context, sql string, args ...any) error {
	tag, err := l.conn.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("outbox: record: %w", l.log.advise(err))
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("outbox: record: %w", eventlog.ErrLeaseLost)
	}
	return nil
}

// release gives the lease back.
func (l *lease) release(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, l.log.sql.Release, noPlan, l.epoch)
	return err
}

// end gives the lease back if its term could not begin.
func (l *lease) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return l.release(ctx)
}
