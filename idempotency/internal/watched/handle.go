// Package watched records what a user's code does in a transaction.
package watched

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/idempotency/internal/failure"
	"github.com/postroom/postroom/internal/session"
)

// Fate says what happened in a transaction and in the transactions nested in it. It implements
// lent.Watcher.
type Fate struct {
	// The flag lost is set when a statement failed with a serialization failure or a deadlock.
	lost atomic.Bool

	// The field failed is the last error that the server returned for a statement. It is never
	// 25P02, which only says that an earlier statement failed.
	failed atomic.Pointer[error]

	// The flag keeps is set when the handler sends a statement whose changes to the session may
	// survive a reset of the session. Then the connection must be closed.
	keeps    atomic.Bool
	sessions *session.Pool

	// The flag user is set when the handler sends a statement that may change the role or the user,
	// or when it may send statements that the method See does not examine.
	user atomic.Bool

	// The flag set is set when the handler sends a statement that may change a setting, or when it may
	// send statements that the method See does not examine.
	set atomic.Bool
}

// Of returns the Fate of a transaction that begins on a connection of the pool.
func Of(sessions *session.Pool) *Fate { return &Fate{sessions: sessions} }

// Lost reports whether a statement failed with a serialization failure or a deadlock.
func (f *Fate) Lost() bool { return f.lost.Load() }

// Keeps reports whether the handler sent a statement after which the connection must be closed.
func (f *Fate) Keeps() bool { return f.keeps.Load() }

// Last returns the last error that the server returned for a statement, or nil.
func (f *Fate) Last() error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// See examines a statement before it is sent.
func (f *Fate) See(sql string, _ []any) {
	seen := session.See(sql)
	if f.sessions.Keeps(seen) {
		f.keeps.Store(true)
	}
	//guard:the-guard-writes-in-its-own-encoding false
	if seen&(session.Local|session.Settings) != 0 {
		f.set.Store(true)
	}
	//guard:the-guard-writes-as-its-own-user false
	if seen&session.User != 0 {
		f.user.Store(true)
	}
}

// ChangesUser reports whether the handler may have changed the role or the user.
func (f *Fate) ChangesUser() bool { return f.user.Load() }

// AsOwn makes the later statements of the transaction run as the guard's user, and with its encoding,
// if the handler may have changed these. Deferred triggers of the handler's statements run before the change, with
// the rights of the handler's user. AsOwn needs a separate round trip: pgx may prepare all statements
// of a batch before it runs the first one, and the server checks rights when it prepares a statement.
func (f *Fate) AsOwn(ctx context.Context, conn *pgx.Conn) error {
	if f.set.Load() {
		if _, err := conn.Exec(ctx, session.FormatsSQL); err != nil {
			return err
		}
	}
	if !f.ChangesUser() {
		return nil
	}
	batch := &pgx.Batch{}
	//guard:deferred-triggers-keep-the-users-role 1 = "SELECT 1"
	batch.Queue("SET CONSTRAINTS ALL IMMEDIATE")
	sql, args := f.sessions.Own(conn)
	batch.Queue(sql, args...)
	return conn.SendBatch(ctx, batch).Close()
}

// Unseen notes that the handler gets the connection itself. The guard does not see what the handler
// does with it, and the handler may still use it after the transaction: so the connection is closed.
func (f *Fate) Unseen() {
	f.user.Store(true)
	f.set.Store(true)
	//guard:a-connection-that-a-handler-got-is-closed remove
	f.keeps.Store(true)
}

// Failed records the error of a statement.
func (f *Fate) Failed(err error) {
	if failure.IsContention(err) {
		f.lost.Store(true)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code != "25P02" {
		f.failed.Store(&err)
	}
}
