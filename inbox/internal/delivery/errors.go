package delivery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/remedy"
)

// BeginError says that the inbox could not begin a transaction.
type BeginError struct{ Err error }

func (e *BeginError) Error() string { return "begin: " + e.Err.Error() }
func (e *BeginError) Unwrap() error { return e.Err }

// LedgerError says that the inbox could not write one of its rows.
type LedgerError struct{ Err error }

func (e *LedgerError) Error() string { return "write to the inbox table: " + e.Err.Error() }
func (e *LedgerError) Unwrap() error { return e.Err }

// CommitError says that a COMMIT failed, or that the server did not answer it. Without an answer,
// the transaction may have committed.
type CommitError struct{ Err error }

func (e *CommitError) Error() string { return "commit: " + e.Err.Error() }
func (e *CommitError) Unwrap() error { return e.Err }

// InDoubt reports whether err says that the server did not answer a COMMIT, so that the transaction
// may have committed.
func InDoubt(err error) bool {
	var commit *CommitError
	return errors.As(err, &commit) && !errors.Is(err, pgx.ErrTxCommitRollback) && !IsRefused(err)
}

// LostError says that the connection broke before the transaction committed.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "connection lost: " + e.Err.Error() }
func (e *LostError) Unwrap() error { return e.Err }

// Written classifies the error of a statement of the inbox that is a transaction of its own. If the
// server refused the statement, Written returns a LedgerError. Otherwise the connection failed or
// the server did not answer, and Written returns a BeginError, which is an outage.
func Written(err error) error {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pg) && !errors.As(err, &connect):
		return &LedgerError{Err: err}
	}
	return &BeginError{Err: err}
}

// IsOutage reports whether err says that the inbox cannot use the database. There are four cases. No
// transaction can begin. The server lacks resources (class 53). A pooler keeps no prepared statements,
// so statements fail at random. Or the inbox cannot write any row: for instance, the table is read-only or was dropped, or the inbox lacks the right to write.
// Such an error costs no attempt, because the event usually did not cause it: see IsShort. If the
// database refuses only one row, the error is about the event of that row: see IsAboutTheRow.
func IsOutage(err error) bool {
	var begin *BeginError
	var ledger *LedgerError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &begin):
		return true
	case errors.As(err, &pg) && isUnable(pg):
		return true
	case errors.As(err, &ledger) && errors.As(err, &pg):
		return !IsContention(err) && !IsAboutTheRow(err)
	}
	return false
}

// isUnable reports whether the server lacks resources (class 53), or is behind a pooler that keeps no
// prepared statements.
func isUnable(pg *pgconn.PgError) bool {
	//guard:a-pooler-without-prepared-statements-costs-no-attempt 2 false
	return strings.HasPrefix(pg.Code, "53") || remedy.IsUnprepared(pg)
}

// IsShort reports whether a statement of a handler failed because the server lacks resources (class
// 53), or because a pooler keeps no prepared statements. The event itself may be the cause: it may
// need more memory, locks or temporary files than the server allows. So a worker does not wait until
// the outage ends: see ShortRounds.
func IsShort(err error) bool {
	var begin *BeginError
	var ledger *LedgerError
	var pg *pgconn.PgError
	return errors.As(err, &pg) && isUnable(pg) && !errors.As(err, &begin) && !errors.As(err, &ledger)
}

// ShortRounds is how often a worker runs an event, with short waits, while the server lacks
// resources. After that, the attempt counts as snoozed.
const ShortRounds = 3

// IsAboutTheRow reports whether the database refused a value or a row, and would refuse
// it again: data exceptions (class 22), constraints (23), limits of the server, such as
// an entry that is too large for its index (54), and errors that a trigger raises (P0).
func IsAboutTheRow(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"22", "23", "54", "P0"}, pg.Code[:min(2, len(pg.Code))])
}

// IsRefused reports whether the server refused a statement, so that the statement changed nothing. It
// returns false if a connection broke, or if a server or a pooler ended it: the statement may have
// committed before.
func IsRefused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !slices.Contains([]string{"FATAL", "PANIC"}, cmp.Or(pg.SeverityUnlocalized, pg.Severity)) &&
		(isMalformed(pg) || !strings.HasPrefix(pg.Code, "08") && !strings.HasPrefix(pg.Code, "57P"))
}

// isMalformed reports whether the database could not read a statement because the statement's text
// contains a NUL. Another try would fail as well. The error has the code of a broken connection,
// but the connection still works. The severity of this error is ERROR. If a pooler refuses a
// connection, it sends the same code with FATAL.
func isMalformed(pg *pgconn.PgError) bool {
	return pg.Code == "08P01" && cmp.Or(pg.SeverityUnlocalized, pg.Severity) == "ERROR"
}

// IsContention reports whether the same transaction may succeed if it is run again at once: it
// conflicted with another transaction, the connection broke, or the server did not answer its
// commit. If a commit without an answer succeeded, the next round finds the inbox row.
func IsContention(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if isMalformed(pg) {
			return false
		}
		// The codes are: serialization failure, deadlock, lock timeout. The prefixes are: broken
		// connection, and operator intervention.
		return slices.Contains([]string{"40001", "40P01", "55P03"}, pg.Code) ||
			slices.ContainsFunc([]string{"08", "57P0"}, func(class string) bool { return strings.HasPrefix(pg.Code, class) })
	}
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return false // an earlier statement failed, and the handler ignored that
	}
	var commit *CommitError
	var broken *LostError
	return errors.As(err, &commit) || errors.As(err, &broken)
}

// IsUnsettled reports whether err is a BeginError. If so, the database was out of reach, and err
// says nothing about the event. The caller then gives back the event's claim.
func IsUnsettled(err error) bool {
	var begin *BeginError
	return errors.As(err, &begin)
}

// EndedError says that a handler ended the inbox's transaction with its own statement.
type EndedError struct {
	Committed bool // true: with a COMMIT; false: with a ROLLBACK, or the statement is not known
}

func (e *EndedError) Error() string {
	if e.Committed {
		return "the handler sent a COMMIT itself: its changes before the COMMIT have taken effect, " +
			"and may be incomplete; check them before you run it again, and remove the statement"
	}
	return "the handler ended the inbox's transaction with its own statement: the inbox committed nothing; remove the statement"
}

// IsEnded reports whether a handler ended its transaction.
func IsEnded(err error) bool {
	var ended *EndedError
	return errors.As(err, &ended)
}

// AbandonedError says that the inbox gave up a handler's transaction and its connection: the handler
// did not return for some time after its context ended, or a goroutine of it still used the
// transaction for some time after the handler returned.
type AbandonedError struct{ Err error }

func (e *AbandonedError) Error() string { return e.Err.Error() }
func (e *AbandonedError) Unwrap() error { return e.Err }

// IsAbandoned reports whether the inbox gave up a handler's transaction.
func IsAbandoned(err error) bool {
	var gone *AbandonedError
	return errors.As(err, &gone)
}

var (
	// ErrOutcomeUnknown says that a call began earlier, and that it is not known whether
	// the call had an effect.
	ErrOutcomeUnknown = errors.New("the call began before, and its outcome is not known")

	// ErrUnanswered is an ErrOutcomeUnknown of a call that failed in this attempt. The vendor may be
	// unavailable.
	ErrUnanswered = fmt.Errorf("%w", ErrOutcomeUnknown)

	// ErrDuplicate says that the event is decided already, so there is nothing to do.
	ErrDuplicate = errors.New("duplicate")

	// ErrConflict says that another event with the same identity was decided.
	ErrConflict = errors.New("another event with this identity was decided")

	// ErrBlocked says that an earlier event of the key is held.
	ErrBlocked = errors.New("an earlier event of the key is held")

	// ErrSettled says that a held event is settled, or that another process has claimed it.
	ErrSettled = errors.New("the claim is over")
)

// MemberError says which event of a batch failed.
type MemberError struct {
	D   *Delivery
	Err error
}

func (e *MemberError) Error() string { return e.Err.Error() }
func (e *MemberError) Unwrap() error { return e.Err }

// ErrGoexit says that a handler ended its goroutine, as t.FailNow does.
var ErrGoexit = errors.New("the handler ended its goroutine with runtime.Goexit")

// ErrTimeout says that a handler took longer than its subscription allows.
var ErrTimeout = errors.New("the handler was not done in time")

// WhileError wraps the error of a user's function, and says why the function was called. Unlike
// fmt.Errorf, it does not call the Error method of the user's error at once. It calls that method
// when its own text is read, which happens inside a guard.
type WhileError struct {
	What    string
	Matches error // the error of this package that the WhileError matches, or nil
	Err     error
}

func (e *WhileError) Error() string { return e.What + ": " + guard.Text(e.Err, guard.MaxText) }
func (e *WhileError) Unwrap() error { return e.Err }

// Is reports whether e.Matches is target.
func (e *WhileError) Is(target error) bool { return errors.Is(e.Matches, target) }

// DeathError says that Config.OnDead failed, so an event did not become dead.
type DeathError struct{ Err error }

func (e *DeathError) Error() string { return "OnDead: " + guard.Text(e.Err, guard.MaxText) }
func (e *DeathError) Unwrap() error { return e.Err }

// AttemptError is a failed attempt at an event. The transaction was rolled back, and the event is
// not held yet.
type AttemptError struct{ Err error }

func (e *AttemptError) Error() string { return e.Err.Error() }

// RecordedError is a failed attempt at a held event.
type RecordedError struct {
	Err     error
	Holding Holding
	Stored  bool // the attempt is recorded in the table held
}

func (e *RecordedError) Error() string { return e.Err.Error() }

// ErrAlong says that an event failed while it ran in the transaction of an earlier event of its
// key. The inbox repeats the transaction with only the events before the failed event.
var ErrAlong = errors.New("an event failed that ran along")

// AlongError is the error of an event that ran in the transaction of an earlier event of
// its key.
type AlongError struct{ Err error }

func (e *AlongError) Error() string { return ErrAlong.Error() + ": " + e.Err.Error() }

// Is reports whether target is ErrAlong.
func (e *AlongError) Is(target error) bool { return target == ErrAlong }

// As finds only an AbandonedError, which says that the transaction is gone. It hides all other
// errors, because they are not errors of the first event of the key.
func (e *AlongError) As(target any) bool {
	gone, wanted := target.(**AbandonedError)
	return wanted && errors.As(e.Err, gone)
}
