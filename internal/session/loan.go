package session

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/own.sql
var ownSQL string

// Loan is a connection of a pool while a user's code works on it, in one transaction after
// another. It looks at the statements of that code, so that nothing is sent between two
// transactions if no statement says that it leaves something in the session. What
// functions and triggers leave there is found when the connection goes back to the pool.
//
// See and its kin may be called concurrently; the other methods are the borrower's.
type Loan struct {
	pool   *Pool
	conn   *pgx.Conn
	used   atomic.Bool   // the user's code sent something
	traces atomic.Uint32 // of what it sent since the last transaction began
}

// Lend begins the loan of a connection. If the session has to be looked at before a user's
// code gets it, that is added to the batch, and look reads its result; otherwise look is
// nil.
func (p *Pool) Lend(conn *pgx.Conn, batch *pgx.Batch) (l *Loan, look func(pgx.BatchResults) error) {
	l = &Loan{pool: p, conn: conn}
	if s := stateOf(conn); p.hooked || !s.before.known {
		s.before.known = false
		batch.Queue(lookSQL)
		look = func(results pgx.BatchResults) error { return s.before.read(results.QueryRow()) }
	}
	return l, look
}

// See looks at a statement of the user's code, before it is sent.
func (l *Loan) See(sql string) {
	l.used.Store(true)
	if seen := See(sql); seen != 0 {
		l.traces.Or(uint32(seen))
	}
}

// Used reports whether the user's code sent something, in this transaction or in one before.
func (l *Loan) Used() bool { return l.used.Load() }

// Use notes that the user's code sends what leaves nothing in the session.
func (l *Loan) Use() { l.used.Store(true) }

// Unseen notes that the user's code may send what nobody looks at.
func (l *Loan) Unseen() {
	l.used.Store(true)
	l.traces.Or(uint32(Locks | Settings | Temporary))
}

// Differs reports whether what follows in the same transaction could tell that the user's
// code ran before it.
func (l *Loan) Differs() bool { return l.traces.Load() != 0 }

// Leaves reports whether the user's code left something that outlasts its transaction.
// The connection must go back to the pool then.
func (l *Loan) Leaves() bool { return Traces(l.traces.Load())&(Session|Locks) != 0 }

// Next begins the next transaction of the loan.
func (l *Loan) Next() { l.traces.Store(0) }

// Own is the statement that has those behind it, up to the end of the transaction, run as
// the user that the connection had when it was lent.
func (l *Loan) Own() (sql string, args []any) {
	before := stateOf(l.conn).before
	return ownSQL, []any{before.session, before.current}
}

// End adds to a batch, behind the end of the last transaction, what sets the session back.
// Ended has to be called when the batch was closed.
func (l *Loan) End(batch *pgx.Batch) {
	if l.used.Load() && !l.closes() {
		l.pool.end(l.conn, batch, Traces(l.traces.Load()))
	}
}

// Ended is called when the batch of End was closed, with the error of that. It closes the
// connection if its session cannot be what it was before, and returns why. It returns nil
// if the user's code sent what only the end of a connection takes away.
func (l *Loan) Ended(ctx context.Context, err error) error {
	switch {
	case l.closes():
		_ = l.conn.Close(ctx) // it is given up
		return nil
	case !l.used.Load():
		return nil
	}
	return l.pool.Ended(ctx, l.conn, err)
}

// Undone does what End and Ended do, in a round trip of its own, after the transaction was
// rolled back. That does not take away locks, nor what transactions before it left.
func (l *Loan) Undone(ctx context.Context) error {
	if l.conn.IsClosed() {
		return nil
	}
	batch := &pgx.Batch{}
	if l.End(batch); batch.Len() == 0 {
		return l.Ended(ctx, nil)
	}
	if err := l.Ended(ctx, l.conn.SendBatch(ctx, batch).Close()); err != nil {
		return fmt.Errorf("set the session back: %w", err)
	}
	return nil
}

// closes reports whether only the end of the connection takes away what was left.
func (l *Loan) closes() bool { return l.pool.keeps(Traces(l.traces.Load())) }
