package pglog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/eventlog"
)

const (
	// adoptTimeout limits the adoption of a log of another server (adopt.sql), which may read a whole index.
	// If the database vanishes meanwhile, the operating system notices it long before the limit.
	adoptTimeout = 6 * time.Hour

	// endTimeout is how long Lead tries to give up the lease if a term cannot begin.
	endTimeout = 10 * time.Second
)

// errRestored should never occur, because a log is moved while no program is connected to it.
var errRestored = errors.New("the log was moved here from another cluster just now")

// lease is the lease of a term. A term writes only on the connection of its lease, and each write
// checks the term's epoch. So a term can store nothing after another term has begun.
type lease struct {
	log       *Log
	conn      *pgx.Conn
	pid       uint32        // the server process of conn
	length    time.Duration // how long the lease lasts after each Record and Renew
	instance  string
	epoch     int64
	taken     time.Time     // a time just before the statement that took the lease was sent
	roundTrip time.Duration // how long the database takes to answer a short statement
}

// take takes the lease for owner, and sets the field taken, the time from which the lease is
// counted. To lose little of the lease, it first does all other work: it checks the sequence, and
// prepares the statements that renew the lease.
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

// lead runs lead.sql. It sets the field taken just before it sends the statement.
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

// adopt takes the lease of a log that comes from another server, and adopts the log in the same
// transaction. Meanwhile no other relay can begin an adoption, because the row of the table relay is
// locked. If another relay has adopted the log before, adopt only takes the lease. The adoption may
// take longer than the lease, so adopt renews the lease at the end and sets the field taken again.
func (l *lease) adopt(ctx context.Context, owner string) (row leadRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, l.conn, func(tx pgx.Tx) error {
		if row, err = l.lead(ctx, tx, owner); err != nil {
			return err
		}
		adopted, err := oneRow[leadRow](ctx, tx, l.log.sql.Adopt, row.Epoch)
		switch {
		case err == nil:
			row = adopted
		case !errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("adopt the log of another server: %w", err)
		}
		l.taken = time.Now()
		if _, err = tx.Exec(ctx, l.log.sql.Renew, row.Epoch, l.length); err != nil {
			return fmt.Errorf("renew lease: %w", err)
		}
		return nil
	})
	return row, err
}

// LeaseStart returns when the lease of this term began, by this process's clock: just before
// [Log.Lead] sent the statement that took the lease. So the lease does not end before that time
// plus the lease's length, even if the statement took long. LeaseStart also returns the time of a
// round trip to the database, which Lead measured after it had connected.
func (l *lease) LeaseStart() (at time.Time, roundTrip time.Duration) { return l.taken, l.roundTrip }

// Token returns the identity of the log's instance, and the epoch of the term, which is
// higher for each later term.
func (l *lease) Token() (instance string, epoch int64) { return l.instance, l.epoch }

// Renew makes the lease last for the given time from now. Each later [eventlog.Term.Record] renews
// the lease for the same time. If another term has begun, Renew returns [eventlog.ErrLeaseLost]. It
// may run at the same time as Read, but not at the same time as Record, Prune or Release.
func (l *lease) Renew(ctx context.Context, length time.Duration) error {
	l.length = length
	return l.renew(ctx)
}

// renew makes the lease last for its length from now.
func (l *lease) renew(ctx context.Context) error {
	return l.update(ctx, "", l.log.sql.Renew, l.epoch, l.length)
}

// Confirm returns nil if this term still leads, and [eventlog.ErrLeaseLost] if another term has
// begun. It uses a connection of the pool, and may run at the same time as any other method.
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

// update runs a statement that changes a row only if this term still leads. The text content says, in
// an error, what the statement has.
func (l *lease) update(ctx context.Context, content, sql string, args ...any) error {
	err := l.send(ctx, func(ctx context.Context) error {
		tag, err := l.conn.Exec(ctx, sql, args...)
		if err == nil && tag.RowsAffected() == 0 {
			err = eventlog.ErrLeaseLost
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("outbox: record%s: %w", content, l.log.advise(err))
	}
	return nil
}

// send runs statements on the connection of the lease. If they do not end before the deadline of ctx,
// the error says for which processes the server waited just before. A statement of a term is small, so
// it takes long only if it waits for a lock, or if the server or the network is very slow.
func (l *lease) send(ctx context.Context, f func(ctx context.Context) error) error {
	deadline, limited := ctx.Deadline()
	if !limited {
		return f(ctx)
	}
	// The lease may end soon after the deadline. So the server is asked before it.
	limit := min(time.Until(deadline)/4, time.Second)
	blockers := make(chan string, 1)
	timer := time.AfterFunc(time.Until(deadline)-limit, func() { blockers <- l.blockers(limit) })
	err := f(ctx)
	if timer.Stop() || err == nil {
		return err
	}
	//guard:a-late-recording-says-for-whom-it-waits false
	if text := <-blockers; text != "" {
		return fmt.Errorf("it waited for a lock of %s: %w", text, err)
	}
	return err
}

// blockers returns the processes for whose locks the server process of the lease waits, or "" if
// there are none or the server does not say so in time.
func (l *lease) blockers(limit time.Duration) (text string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := l.log.pool.QueryRow(ctx, l.log.sql.Blockers, l.pid).Scan(&text); err != nil {
		return ""
	}
	return text
}

// release gives up the lease.
func (l *lease) release(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, l.log.sql.Release, noPlan, l.epoch)
	return err
}

// end gives up the lease of a term that could not begin.
func (l *lease) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return l.release(ctx)
}
