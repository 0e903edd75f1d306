package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Tx returns the transaction of the request: what is done in it commits together with
// the answer. It must not be used after the handler returned, nor be ended by it. It panics
// in lease mode and outside a handler: that would be an effect without protection.
func Tx(ctx context.Context) pgx.Tx {
	a := attemptFrom(ctx)
	if a == nil || a.tx == nil {
		panic("idempotency: Tx was called outside a handler of transaction mode; methods without a key have none")
	}
	a.asked = true
	return a.tx
}

// rollbackPatience is how long a rollback may take before its connection is given up
// instead.
const rollbackPatience = 5 * time.Second

// savepoint is what effects are rolled back to where the answer is kept without them.
const savepoint = "postroom_handler"

// inTx makes an attempt in transaction mode.
func (g *Guard) inTx(ctx context.Context, op *operation) (e ended) {
	if op.keyed() && g.recent.has(op.lock) {
		if found, err := g.look(ctx, op.key); err == nil {
			if what, err := op.decide(found); err == nil && what == replay {
				return g.replay(ctx, op, found)
			}
		}
	}
	t, found, held, err := g.open(ctx, op)
	if err != nil {
		return ended{err: fmt.Errorf("%w: %w", ErrUnavailable, g.advise(err))}
	}
	defer func() {
		if t.owner != nil { // also where what runs panics
			t.rollback(ctx)
		}
	}()

	what, err := op.decide(found)
	switch {
	case err != nil:
		return ended{err: err}
	case what == replay:
		t.rollback(ctx)
		return g.replay(ctx, op, found)
	case !held:
		return ended{err: ErrInProgress}
	case what == resume && found.begun:
		return ended{err: fmt.Errorf("%w: an attempt in lease mode has done or begun steps, which a transaction would do again: let lease mode finish it, or forget the key with Guard.Delete",
			ErrOutcomeUnknown)}
	}
	t.lent = true
	a := &attempt{op: op, number: 1, tx: t}
	e = ended{number: 1}
	if what == resume {
		a.number, e.from = found.Attempts+1, found.State
		e.number, e.takeover = a.number, found.State == StatePending
	}
	res, err := g.runTx(ctx, a)
	e.response = res.response
	if err == nil && res.verdict != undo {
		if err = g.finish(ctx, a, found, res); err == nil {
			e.kept, e.to = op.keyed(), StateComplete
		}
	}
	e.err = err
	return e
}

// runTx runs the operation and has a last look at what it left.
func (g *Guard) runTx(ctx context.Context, a *attempt) (result, error) {
	inner, _, cancel := a.op.context(ctx, a)
	defer cancel()
	res, err := a.op.run(inner, a)
	lost := a.tx.lost.Load()
	switch {
	case lost && (err != nil || res.verdict != keepAll):
		return res, errors.Join(ErrContention, err)
	case err != nil:
		return res, err
	case res.verdict == undo:
		return res, nil
	case a.op.rules.CancelOnDisconnect && ctx.Err() != nil:
		return res, fmt.Errorf("%w: %w", ErrInterrupted, errors.Join(ctx.Err(), context.Cause(ctx)))
	}
	err = a.tx.healthy(res.verdict)
	if err != nil && inner.Err() != nil && a.tx.owner.Conn().IsClosed() { // pgx closes it in the middle of a statement
		err = fmt.Errorf("%w: %w", ErrInterrupted, errors.Join(inner.Err(), context.Cause(inner)))
	}
	return res, err
}

// open begins a transaction, takes the operation's lock and looks for its row, in one
// round trip where there is none. It returns whether the lock was free.
func (g *Guard) open(ctx context.Context, op *operation) (_ *tx, found *row, held bool, err error) {
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	owner, err := g.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, false, fmt.Errorf("begin: %w", err)
	}
	var began time.Time
	present, batch := false, &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: op.rules.Isolation})
	g.sessions.Begin(owner.Conn(), batch)
	if !op.keyed() {
		batch.Queue(g.sql.began).QueryRow(func(r pgx.Row) error { return r.Scan(&began) })
	} else {
		batch.Queue(g.sql.lock, op.lock).QueryRow(func(r pgx.Row) error { return r.Scan(&held, &began) })
		batch.Queue(g.sql.present, op.key.Scope, op.key.Principal, op.key.Value).Query(func(rows pgx.Rows) error {
			present = rows.Next()
			rows.Close()
			return rows.Err()
		})
		if op.rules.Store != StoreSuccess {
			batch.Queue("SAVEPOINT " + savepoint)
		}
	}
	results := owner.SendBatch(ctx, batch)
	t := &tx{handle: handle{results.Tx(), &fate{sessions: g.sessions}}, owner: owner, g: g}
	err = results.Close()
	t.began = began
	if err == nil && present {
		found, err = g.lookIn(ctx, t.Tx, op.key)
	}
	if err != nil {
		t.rollback(ctx)
		return nil, nil, false, fmt.Errorf("begin: %w", err)
	}
	return t, found, held || !op.keyed(), nil
}

// look returns the row of a key, or nil where there is none, without a transaction.
func (g *Guard) look(ctx context.Context, k Key) (*row, error) {
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	return g.lookIn(ctx, g.pool, k)
}

func (g *Guard) lookIn(ctx context.Context, db querier, k Key) (*row, error) {
	rows, _ := db.Query(ctx, g.sql.look, k.Scope, k.Principal, k.Value) // collecting reports the error
	f, err := pgx.CollectOneRow(rows, scanRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return f, err
}

// querier is a pool, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// finish keeps the answer and commits, in one round trip.
func (g *Guard) finish(ctx context.Context, a *attempt, found *row, res result) error {
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	op, batch := a.op, &pgx.Batch{}
	if !a.tx.failed() { // else the savepoint is what only this transaction has
		batch.Queue(g.sql.still, a.tx.began)
	}
	if op.keyed() {
		columns, err := g.keep(ctx, op.key, res.kept, a.ref, res.dropped)
		if err != nil {
			if isInterruption(err) { // of what the Codec asked
				return fmt.Errorf("%w: %w", ErrInterrupted, err)
			}
			return fmt.Errorf("%w: %w", ErrNotCommitted, err)
		}
		if res.verdict == keepAnswer {
			if err := a.tx.undo(ctx, batch); err != nil {
				return err
			}
		}
		k := op.key
		if found != nil {
			batch.Queue(g.sql.clear, k.Scope, k.Principal, k.Value)
		}
		batch.Queue(g.sql.store, k.Scope, k.Principal, k.Value, op.print[:], a.number,
			columns.status, columns.headers, columns.body, columns.ref, columns.dropped, op.rules.TTL, op.rules.From == FromCreation)
	}
	batch.Queue("COMMIT")
	return a.tx.end(ctx, batch)
}

// tx is the transaction of a handler: one of pgx, which only the guard ends.
type tx struct {
	handle

	g     *Guard
	owner *pgxpool.Conn // nil once it was given back
	began time.Time     // as the database has it: what tells it from another of its connection
	lent  bool          // a handler had it
}

// closed is a transaction that has ended.
var closed = func() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}()

// undo has the effects rolled back to the savepoint. Where a statement has failed, that is
// not left to the batch: its statements may be prepared first, which the server refuses in
// a transaction that has failed.
func (t *tx) undo(ctx context.Context, batch *pgx.Batch) error {
	const sql = "ROLLBACK TO SAVEPOINT " + savepoint
	if !t.failed() {
		batch.Queue(sql)
		return nil
	}
	t.over.Store(true)
	if _, err := t.owner.Exec(ctx, sql); err != nil { // nothing can be committed any more
		return whyFailed("roll back to the savepoint", err)
	}
	return nil
}

// failed reports whether a statement of the transaction has failed.
func (t *tx) failed() bool { return t.owner.Conn().PgConn().TxStatus() == 'E' }

// end sends the statements that end the transaction. Where one fails, those behind it
// are not reached: there is no commit without all of them.
func (t *tx) end(ctx context.Context, batch *pgx.Batch) error {
	t.over.Store(true)
	statements := batch.Len()
	t.g.sessions.End(t.owner.Conn(), batch)
	results := t.owner.SendBatch(ctx, batch)
	var tag pgconn.CommandTag
	var err error
	for range statements {
		if tag, err = results.Exec(); err != nil {
			break
		}
	}
	left := results.Close() // of what the session was set back by: the commit is decided
	switch {
	case err == nil && tag.String() != "COMMIT":
		err = fmt.Errorf("%w: the server answered %s", ErrNotCommitted, tag)
	case err == nil:
	case isTwin(err):
		err = errTwin
	case isOther(err):
		err = errEnded
	case isContention(err), isShort(err), isRefusal(err):
		err = whyFailed("commit", err)
	default:
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	if err == nil {
		t.give(ctx, t.g.sessions.Ended(ctx, t.owner.Conn(), left))
	}
	return err
}

// rollback ends the transaction without its effects. Its context may have ended; the
// connection is given back all the same.
func (t *tx) rollback(ctx context.Context) {
	t.over.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
	defer cancel()
	_ = t.Tx.Rollback(ctx) // where it fails, the connection is closed, and the server rolls back
	var left error
	if t.lent {
		left = t.g.sessions.Reset(ctx, t.owner.Conn())
	}
	t.give(ctx, left)
}

// give gives the connection back. left says why it was closed.
func (t *tx) give(ctx context.Context, left error) {
	t.g.given(ctx, t.owner.Conn(), t.fate, left)
	t.owner.Release() // which closes a connection that is not idle
	t.owner = nil
}

// given is called when a handler's connection is given back.
func (g *Guard) given(ctx context.Context, conn *pgx.Conn, f *fate, left error) {
	if f.keeps.Load() {
		_ = conn.Close(ctx) // the pool opens another
	}
	if left != nil {
		g.cfg.Logger.WarnContext(ctx, "a connection was closed, as a handler left it so that the next one could not use it", "error", left)
	}
}

// lend runs what is a user's in a transaction on a connection of the pool.
func (g *Guard) lend(ctx context.Context, level pgx.TxIsoLevel, f *fate, fn func(tx pgx.Tx) error) error {
	conn, err := g.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer conn.Release()
	if err := g.sessions.Note(ctx, conn.Conn()); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { // also where fn panics
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
		defer cancel()
		g.given(ctx, conn.Conn(), f, g.sessions.Reset(ctx, conn.Conn()))
	}()
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: level}, fn)
}

// healthy reports whether the transaction could commit: no statement in it has failed, or
// what was done in it is rolled back all the same. That it is the one that the guard began
// is for the server to say: still.sql.
func (t *tx) healthy(v verdict) error {
	switch conn := t.owner.Conn(); {
	case conn.IsClosed():
		return fmt.Errorf("%w: the connection broke under the handler", ErrUnavailable)
	case conn.PgConn().IsBusy():
		return fmt.Errorf("%w: the handler left rows or a batch open", ErrNotCommitted)
	case conn.PgConn().TxStatus() == 'E' && v == keepAnswer:
		return nil
	case conn.PgConn().TxStatus() == 'E' && t.lost.Load():
		return ErrContention
	case conn.PgConn().TxStatus() == 'E':
		return whyFailed("a statement failed, and the handler answered with success", value(t.fate.failed.Load()))
	}
	return nil
}

// errEnded says that a handler left the transaction that it was given.
var errEnded = fmt.Errorf("%w: the handler ended the transaction with a statement of its own: what it committed itself has taken effect; remove the statement", ErrNotCommitted)

// isOther reports whether still.sql found another transaction.
func isOther(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "22P02"
}

// Commit returns ErrTxOwned.
func (t *tx) Commit(context.Context) error { return ErrTxOwned }

// Rollback returns ErrTxOwned.
func (t *tx) Rollback(context.Context) error { return ErrTxOwned }
