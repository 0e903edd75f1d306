package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/idempotency/internal/claim"
	"github.com/postroom/postroom/idempotency/internal/failure"
	"github.com/postroom/postroom/idempotency/internal/watched"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/session"
)

// store is the table of keys, and the connections on which it is reached.
type store struct {
	pool     *pgxpool.Pool
	sessions *session.Pool
	schema   string
	sql      statements
	claims   *claim.Table // in lease mode
	cfg      *Config
}

// advise returns an error of a statement of ours with what to do about it.
func (s *store) advise(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "idempotency", Schema: s.schema, DB: s.pool})
}

// bounded returns a context for a use of the database: it does not end with the caller's,
// which would break the connection off.
func (s *store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
}

// look returns the row of a key, or nil if there is none, without a transaction.
func (s *store) look(ctx context.Context, k Key) (*row, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.lookIn(ctx, s.pool, k)
}

func (s *store) lookIn(ctx context.Context, db querier, k Key) (*row, error) {
	rows, _ := db.Query(ctx, s.sql.Look, k.Scope, k.Principal, k.Value) // collecting reports the error
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

// touch keeps an answer that was just repeated for longer.
func (s *store) touch(ctx context.Context, op *operation) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.pool.Exec(ctx, s.sql.Touch, op.key.Scope, op.key.Principal, op.key.Value, op.rules.TTL); err != nil {
		s.cfg.Logger.WarnContext(ctx, "the time of an idempotency key was not extended", "error", err)
	}
}

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

// open begins a transaction, takes the operation's lock and looks for its row, in one
// round trip if there is none. It returns whether the lock was free.
func (s *store) open(ctx context.Context, op *operation) (_ *tx, found *row, held bool, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	owner, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, false, fmt.Errorf("begin: %w", err)
	}
	var began time.Time
	present, batch := false, &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: op.rules.Isolation})
	s.sessions.Begin(owner.Conn(), batch)
	if !op.keyed {
		batch.Queue(s.sql.Began).QueryRow(func(r pgx.Row) error { return r.Scan(&began) })
	} else {
		batch.Queue(s.sql.Lock, op.lock).QueryRow(func(r pgx.Row) error { return r.Scan(&held, &began) })
		batch.Queue(s.sql.Present, op.key.Scope, op.key.Principal, op.key.Value).Query(func(rows pgx.Rows) error {
			present = rows.Next()
			rows.Close()
			return rows.Err()
		})
		if op.rules.Store != StoreSuccess {
			batch.Queue("SAVEPOINT " + savepoint)
		}
	}
	results := owner.SendBatch(ctx, batch)
	t := &tx{Handle: watched.Handle{Tx: results.Tx(), Fate: watched.Of(s.sessions)}, owner: owner, store: s}
	err = results.Close()
	t.began = began
	if err == nil && present {
		found, err = s.lookIn(ctx, t.Tx, op.key)
	}
	if err != nil {
		t.rollback(ctx)
		return nil, nil, false, fmt.Errorf("begin: %w", err)
	}
	return t, found, held || !op.keyed, nil
}

// finish keeps the answer and commits, in one round trip.
func (t *tx) finish(ctx context.Context, a *attempt, found *row, res result) error {
	ctx, cancel := t.store.bounded(ctx)
	defer cancel()
	op, batch := a.op, &pgx.Batch{}
	// The first statement says whether the transaction is another. It is store.sql, if nothing is
	// undone before it; and if a statement failed, the savepoint is what only this one has.
	if !t.failed() && (!op.keyed || res.verdict == keepAnswer) {
		batch.Queue(t.store.sql.Still, t.began)
	}
	if op.keyed {
		columns, err := keep(ctx, t.store.cfg.Codec, op.key, res.kept, a.ref, res.dropped)
		if err != nil {
			if failure.IsInterruption(err) { // of what the Codec asked
				return fmt.Errorf("%w: %w", ErrInterrupted, err)
			}
			return fmt.Errorf("%w: %w", ErrNotCommitted, err)
		}
		if res.verdict == keepAnswer {
			if err := t.undo(ctx, batch); err != nil {
				return err
			}
		}
		k := op.key
		if found != nil {
			batch.Queue(t.store.sql.Clear, k.Scope, k.Principal, k.Value)
		}
		batch.Queue(t.store.sql.Store, k.Scope, k.Principal, k.Value, op.print[:], a.number,
			columns.Status, columns.Headers, columns.Body, columns.Ref, columns.Dropped, op.rules.TTL, op.rules.From == FromCreation, t.began)
	}
	batch.Queue("COMMIT")
	return t.end(ctx, batch)
}

// tx is the transaction of a handler: one of pgx, which only the guard ends.
type tx struct {
	watched.Handle

	store *store
	owner *pgxpool.Conn // nil once it was given back
	began time.Time     // as the database has it: what tells it from another of its connection
	lent  bool          // a handler had it
}

// undo has the effects rolled back to the savepoint. Where a statement has failed, that is
// not left to the batch: its statements may be prepared first, which the server refuses in
// a transaction that has failed.
func (t *tx) undo(ctx context.Context, batch *pgx.Batch) error {
	const sql = "ROLLBACK TO SAVEPOINT " + savepoint
	if !t.failed() {
		batch.Queue(sql)
		return nil
	}
	t.Fate.End()
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
	t.Fate.End()
	statements := batch.Len()
	t.store.sessions.End(t.owner.Conn(), batch)
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
	case failure.IsContention(err), failure.IsShort(err), failure.IsRefusal(err):
		err = whyFailed("commit", err)
	default:
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	if err == nil {
		t.give(ctx, t.store.sessions.Ended(ctx, t.owner.Conn(), left))
	}
	return err
}

// rollback ends the transaction without its effects. Its context may have ended; the
// connection is given back all the same.
func (t *tx) rollback(ctx context.Context) {
	t.Fate.End()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
	defer cancel()
	_ = t.Tx.Rollback(ctx) // where it fails, the connection is closed, and the server rolls back
	var left error
	if t.lent {
		left = t.store.sessions.Reset(ctx, t.owner.Conn())
	}
	t.give(ctx, left)
}

// give gives the connection back. left says why it was closed.
func (t *tx) give(ctx context.Context, left error) {
	t.store.given(ctx, t.owner.Conn(), t.Fate, left)
	t.owner.Release() // which closes a connection that is not idle
	t.owner = nil
}

// given is called when a handler's connection is given back.
func (s *store) given(ctx context.Context, conn *pgx.Conn, f *watched.Fate, left error) {
	if f.Keeps() {
		_ = conn.Close(ctx) // the pool opens another
	}
	if left != nil {
		s.cfg.Logger.WarnContext(ctx, "a connection was closed, as a handler left it so that the next one could not use it", "error", left)
	}
}

// lend runs what is a user's in a transaction on a connection of the pool.
func (s *store) lend(ctx context.Context, level pgx.TxIsoLevel, f *watched.Fate, fn func(tx pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer conn.Release()
	if err := s.sessions.Note(ctx, conn.Conn()); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { // also where fn panics
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
		defer cancel()
		s.given(ctx, conn.Conn(), f, s.sessions.Reset(ctx, conn.Conn()))
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
	case conn.PgConn().TxStatus() == 'E' && t.Fate.Lost():
		return ErrContention
	case conn.PgConn().TxStatus() == 'E':
		return whyFailed("a statement failed, and the handler answered with success", t.Fate.Failed())
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
