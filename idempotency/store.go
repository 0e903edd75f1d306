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
	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/lent"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/session"
)

// store is the table of keys, with the connections to it.
type store struct {
	pool     *pgxpool.Pool
	sessions *session.Pool
	schema   string
	sql      statements
	claims   *claim.Table // in lease mode
	cfg      *Config
	renewer  remedy.Renewer
}

// advise adds advice to an error of the guard's own statements.
func (s *store) advise(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "idempotency", Schema: s.schema, DB: s.pool})
}

// renew resets the pool if err says that its connections take no writes, and new connections do.
func (s *store) renew(ctx context.Context, err error) {
	//guard:a-guard-leaves-a-server-that-takes-no-writes remove
	s.renewer.Renew(ctx, s.pool, err)
}

// bounded returns a context for a use of the database. This context does not end when the caller's
// context ends, because pgx would then close the connection.
func (s *store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
}

// look returns the row of a key, or nil if there is no row. The parameter other is the principal in
// its other form: see Key.stored. It begins no transaction.
func (s *store) look(ctx context.Context, k Key, other string) (*row, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.lookIn(ctx, s.pool, k, other)
}

func (s *store) lookIn(ctx context.Context, db querier, k Key, other string) (*row, error) {
	rows, _ := db.Query(ctx, s.sql.Look, k.Scope, k.Principal, k.Value, clock.Latest(), other) // CollectRows reports the error
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

// touch extends the TTL of an answer that the guard has just repeated.
func (s *store) touch(ctx context.Context, op *operation) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.pool.Exec(ctx, s.sql.Touch, op.key.Scope, op.key.Principal, op.key.Value, op.rules.TTL); err != nil {
		s.cfg.Logger.WarnContext(ctx, "the time of an idempotency key was not extended", "error", err)
	}
}

// Tx returns the transaction of the request. Everything that the handler writes in this transaction
// commits together with the answer. The handler must not end the transaction. It must not use the
// transaction after returning, also not in another goroutine: that gets pgx.ErrTxClosed. If a call
// is running then, the guard waits for its end, and commits nothing if the call does not end. The
// guard cannot take back what Conn of the transaction returned: it closes the connection. Tx panics
// in lease mode and outside a handler, because an effect would not be protected there.
func Tx(ctx context.Context) pgx.Tx {
	a := attemptFrom(ctx)
	if a == nil || a.tx == nil {
		panic("idempotency: Tx was called outside a handler of transaction mode; methods without a key have no transaction")
	}
	a.asked.Store(true)
	return a.tx.loan
}

// rollbackPatience limits the time of a rollback. After that time the connection is closed.
const rollbackPatience = 5 * time.Second

// savepoint is the savepoint to which effects are rolled back if only the answer is kept.
const savepoint = "postroom_handler"

// open begins a transaction, tries to take the operation's lock and looks for the operation's row.
// If there is no row, open makes one round trip. If held is true, open has the lock or needs none.
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
		batch.Queue(s.sql.Present, op.key.Scope, op.key.Principal, op.key.Value, op.other).Query(func(rows pgx.Rows) error {
			present = rows.Next()
			rows.Close()
			return rows.Err()
		})
		if op.rules.Store != StoreSuccess {
			batch.Queue("SAVEPOINT " + savepoint)
		}
	}
	results := owner.SendBatch(ctx, batch)
	t := &tx{Tx: results.Tx(), fate: watched.Of(s.sessions), owner: owner, store: s}
	t.loan = lent.New(t.Tx, ErrTxOwned, t.fate)
	err = results.Close()
	t.began = began
	if err == nil && present {
		found, err = s.lookIn(ctx, t.Tx, op.key, op.other)
	}
	if err != nil {
		t.rollback(ctx)
		return nil, nil, false, fmt.Errorf("begin: %w", err)
	}
	return t, found, held || !op.keyed, nil
}

// finish stores the answer and commits, in one round trip, or in two if the handler may have changed
// the user.
func (t *tx) finish(ctx context.Context, a *attempt, found *row, res result) error {
	ctx, cancel := t.store.bounded(ctx)
	defer cancel()
	op, batch := a.op, &pgx.Batch{}
	//guard:a-simple-connection-answers-in-its-own-encoding false
	if conn := t.owner.Conn().PgConn(); conn.TxStatus() == 'T' && conn.ParameterStatus("client_encoding") != "UTF8" { // the simple protocol of pgx would refuse parameters
		if _, err := t.owner.Exec(ctx, session.FormatsSQL); err != nil {
			return whyFailed("return to the guard's encoding", err)
		}
	}
	// If the handler ended this transaction and began another, a statement below fails. If answer
	// and effects are kept, this is store.sql. If a statement of the handler failed, it is the
	// rollback to the savepoint, which only this transaction has. Otherwise it is still.sql.
	if !t.failed() && (!op.keyed || res.verdict == keepAnswer) {
		//guard:an-answer-asks-whether-it-is-the-same-transaction remove
		batch.Queue(t.store.sql.Still, t.began)
	}
	if op.keyed {
		columns, err := keep(ctx, t.store.cfg.Codec, op.key, res.kept, a.refOf(res), res.dropped)
		if err != nil {
			if failure.IsInterruption(err) { // the Codec ran out of time
				return fmt.Errorf("%w: %w", ErrInterrupted, err)
			}
			return fmt.Errorf("%w: %w", ErrNotCommitted, err)
		}
		//guard:effects-of-a-kept-error-are-undone false
		if res.verdict == keepAnswer {
			if err := t.undo(ctx, batch); err != nil {
				return err
			}
		} else if err := t.fate.AsOwn(ctx, t.owner.Conn()); err != nil {
			return whyFailed("return to the guard's user", err)
		}
		k := op.key
		if found != nil {
			//guard:what-no-longer-counts-is-cleared remove
			batch.Queue(t.store.sql.Clear, k.Scope, k.Principal, k.Value, clock.Latest())
		}
		batch.Queue(t.store.sql.Store, k.Scope, k.Principal, k.Value, op.print[:], a.number,
			columns.Status, columns.Headers, columns.Body, columns.Ref, columns.Dropped, op.rules.TTL, op.rules.From == FromCreation, t.began)
	}
	batch.Queue("COMMIT")
	return t.end(ctx, batch)
}

// tx is the transaction of a handler. Only the guard ends it.
type tx struct {
	Tx   pgx.Tx
	loan *lent.Tx // what the handler gets
	fate *watched.Fate

	store *store
	owner *pgxpool.Conn // nil after it was given back or cut
	began time.Time     // by the database's clock; no other transaction of the connection began at the same time
	lent  bool          // a handler got the transaction
}

// undo rolls the effects back to the savepoint, with a statement of the batch. If a statement has
// failed, or the handler may have changed the user, undo rolls back at once and not in the batch:
// pgx may first prepare the batch's statements, and the server refuses that in a failed transaction,
// or if the handler's user lacks rights. The rollback also undoes the change of the user.
func (t *tx) undo(ctx context.Context, batch *pgx.Batch) error {
	const sql = "ROLLBACK TO SAVEPOINT " + savepoint
	//guard:effects-of-another-role-are-rolled-back-at-once 2 true
	if !t.failed() && !t.fate.ChangesUser() {
		batch.Queue(sql)
		return nil
	}
	if _, err := t.owner.Exec(ctx, sql); err != nil { // the transaction can no longer commit
		return whyFailed("roll back to the savepoint", err)
	}
	return nil
}

// failed reports whether a statement of the transaction has failed.
func (t *tx) failed() bool { return t.owner.Conn().PgConn().TxStatus() == 'E' }

// end sends the statements that end the transaction. If a statement fails, the server skips the
// rest. So the server commits only if all statements succeed.
func (t *tx) end(ctx context.Context, batch *pgx.Batch) error {
	statements := batch.Len()
	//guard:the-session-is-set-back-after-a-commit remove
	t.store.sessions.End(t.owner.Conn(), batch)
	results := t.owner.SendBatch(ctx, batch)
	var tag pgconn.CommandTag
	var err error
	for range statements {
		if tag, err = results.Exec(); err != nil {
			break
		}
	}
	left := results.Close() // an error that comes only now is from the reset of the session, after the commit
	switch {
	//guard:the-server-says-what-was-committed false
	case err == nil && tag.String() != "COMMIT":
		err = fmt.Errorf("%w: the server answered %s", ErrNotCommitted, tag)
	case err == nil:
	//guard:a-twins-answer-is-repeated false
	case failure.IsTwin(err):
		err = errTwin
	case failure.IsOther(err):
		err = errEnded
	//guard:an-unanswered-commit-is-not-known 1 = @1 != nil
	//guard:a-panic-during-the-commit-proves-nothing 1 = @ || failure.IsShort(@1)
	case failure.IsContention(err), failure.IsRefusal(err):
		err = whyFailed("commit", err)
	default:
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	if err == nil {
		t.give(ctx, t.store.sessions.Ended(ctx, t.owner.Conn(), left))
	}
	return err
}

// back takes the transaction back from the handler. It returns false if a goroutine of the handler
// still uses the connection. If so, the pool no longer has the connection, and the server rolls back.
func (t *tx) back(within time.Duration) bool {
	//guard:a-handlers-transaction-in-use-is-cut = @ || true
	if t.loan.Back(within) {
		return true
	}
	lent.Cut(t.owner)
	t.owner = nil
	return false
}

// errStillUsed says that nothing was committed, because a goroutine still used the transaction.
var errStillUsed = fmt.Errorf("%w: %w", ErrNotCommitted, lent.ErrStillUsed)

// rollback rolls the transaction back and gives the connection back, even if ctx has ended.
func (t *tx) rollback(ctx context.Context) {
	if !t.back(rollbackPatience) { // the function run panicked
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
	defer cancel()
	_ = t.Tx.Rollback(ctx) // if it fails, the connection is closed and the server rolls back
	var left error
	//guard:the-session-is-set-back-after-a-rollback false
	if t.lent {
		left = t.store.sessions.Reset(ctx, t.owner.Conn())
	}
	t.give(ctx, left)
}

// give gives the connection back. If it was closed because of an error, left is this error.
func (t *tx) give(ctx context.Context, left error) {
	t.store.given(ctx, t.owner.Conn(), t.fate, left)
	t.owner.Release() // closes the connection if it is not idle
	t.owner = nil
}

// given closes a handler's connection if a reset cannot undo the changes of its session.
func (s *store) given(ctx context.Context, conn *pgx.Conn, f *watched.Fate, left error) {
	//guard:what-no-reset-undoes-closes-the-connection false
	if f.Keeps() {
		_ = conn.Close(ctx) // the pool opens a new connection
	}
	if left != nil {
		s.cfg.Logger.WarnContext(ctx, "connection closed: a handler changed its session", "error", left)
	}
}

// lending is a transaction of the pool for a function of the guard, which lends it to a user's code.
type lending struct {
	pgx.Tx

	loan *lent.Tx
	used bool // a goroutine of the user's code still uses the transaction
}

// back takes the transaction back from the user's code.
func (l *lending) back(within time.Duration) error {
	if l.used = !l.loan.Back(within); l.used {
		return errStillUsed
	}
	return nil
}

// lend runs a function in a transaction on a connection of the pool. The function lends the
// transaction to a user's code, and takes it back before it uses the transaction itself.
func (s *store) lend(ctx context.Context, level pgx.TxIsoLevel, f *watched.Fate, fn func(tx *lending) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := s.sessions.Note(ctx, conn.Conn()); err != nil {
		conn.Release()
		return fmt.Errorf("begin: %w", err)
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		conn.Release()
		return fmt.Errorf("begin: %w", err)
	}
	l := &lending{Tx: tx, loan: lent.New(tx, ErrTxOwned, f)}
	defer func() { // even if fn panics
		if l.used || l.back(rollbackPatience) != nil {
			lent.Cut(conn)
			return
		}
		defer conn.Release()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
		defer cancel()
		_ = tx.Rollback(ctx) // fails after a commit; if it fails otherwise, the connection is closed
		s.given(ctx, conn.Conn(), f, s.sessions.Reset(ctx, conn.Conn()))
	}()
	if err := fn(l); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// healthy returns an error if the transaction cannot end as the verdict v says: its connection is
// closed or busy, or a statement failed and the effects must be kept. Only the server knows whether
// this is still the transaction that the guard began: see still.sql.
func (t *tx) healthy(v verdict) error {
	switch conn := t.owner.Conn(); {
	case conn.IsClosed():
		return fmt.Errorf("%w: the connection broke while the handler used it", ErrUnavailable)
	//guard:open-rows-are-noticed false
	case conn.PgConn().IsBusy():
		return fmt.Errorf("%w: the handler left rows or a batch open", ErrNotCommitted)
	case conn.PgConn().TxStatus() == 'E' && v == keepAnswer:
		return nil
	case conn.PgConn().TxStatus() == 'E' && t.fate.Lost():
		return ErrContention
	//guard:a-failed-statement-is-noticed false
	case conn.PgConn().TxStatus() == 'E':
		return whyFailed("a statement failed, and the handler answered with success", t.fate.Last())
	}
	return nil
}

// errEnded says that a handler ended its transaction.
var errEnded = fmt.Errorf("%w: the handler ended the transaction with its own statement, so its changes may have been committed: remove that statement", ErrNotCommitted)
