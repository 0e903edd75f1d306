package inbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// beginError says that no transaction could be begun.
type beginError struct{ err error }

func (e *beginError) Error() string { return "begin: " + e.err.Error() }
func (e *beginError) Unwrap() error { return e.err }

// ledgerError says that a row of ours could not be written.
type ledgerError struct{ err error }

func (e *ledgerError) Error() string { return "write ledger: " + e.err.Error() }
func (e *ledgerError) Unwrap() error { return e.err }

// commitError says that a COMMIT failed or was not answered: where it was not,
// the transaction may have committed.
type commitError struct{ err error }

func (e *commitError) Error() string { return "commit: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// lostError says that the connection broke under a transaction that had not
// committed.
type lostError struct{ err error }

func (e *lostError) Error() string { return "connection lost: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// written marks the error of a statement of ours that is a transaction of its own.
// Where the server did not answer, it is out of reach.
func written(err error) error {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pg) && !errors.As(err, &connect):
		return &ledgerError{err}
	}
	return &beginError{err}
}

// lost marks err where t's connection broke. The client breaks it itself when
// a context ends in the middle of a statement: that is the handler's failure.
func lost(t *tx, err error) error {
	if !t.Tx.Conn().IsClosed() || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &lostError{err}
}

// isOutage reports whether err says that the database cannot be worked with: no
// transaction can be begun, it lacks room (class 53), or the ledger takes no row,
// because it is read-only, was dropped, or is not ours to write. That says nothing about the event, and
// so costs no attempt. Other classes are about the row, and so the event: see isAboutTheRow.
func isOutage(err error) bool {
	var begin *beginError
	var ledger *ledgerError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &begin):
		return true
	case errors.As(err, &pg) && strings.HasPrefix(pg.Code, "53"):
		return true
	case errors.As(err, &ledger) && errors.As(err, &pg):
		return !isContention(err) && !isAboutTheRow(err)
	}
	return false
}

// isAboutTheRow reports whether the database refused a value or a row, as it
// would again: data exceptions (class 22), constraints (23), limits of the server, such
// as an entry that is too large for its index (54), and what a trigger raises (P0).
func isAboutTheRow(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"22", "23", "54", "P0"}, pg.Code[:min(2, len(pg.Code))])
}

// isMalformed reports whether the database could not read a statement, as it would not
// the next time: its text has a NUL in it. It has the code of a broken connection, but
// this one goes on: a pooler that refuses a connection says FATAL.
func isMalformed(pg *pgconn.PgError) bool {
	return pg.Code == "08P01" && cmp.Or(pg.SeverityUnlocalized, pg.Severity) == "ERROR"
}

// isContention reports whether the same transaction may well succeed at once:
// it lost to another one, the server went away under it, or its commit was not
// answered. After a commit that did succeed the next round meets the ledger row.
func isContention(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if isMalformed(pg) {
			return false
		}
		// serialization failure, deadlock, lock timeout; the classes of a broken
		// connection and of operator intervention
		return slices.Contains([]string{"40001", "40P01", "55P03"}, pg.Code) ||
			slices.ContainsFunc([]string{"08", "57P0"}, func(class string) bool { return strings.HasPrefix(pg.Code, class) })
	}
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return false // a statement failed before, and the handler overlooked it
	}
	var commit *commitError
	var broken *lostError
	return errors.As(err, &commit) || errors.As(err, &broken)
}
