package invoke

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/cause"
	"github.com/postroom/postroom/internal/guard"
)

// returnedError describes an error that a user's function returned. It is made inside the
// guard, within a time limit, and does not contain the user's error itself. The reason is
// that methods of a user's error may panic, never return, or return a hundred megabytes,
// and the rest of the inbox often calls methods of errors.
type returnedError struct {
	text  string
	marks []error // errors of this package, for errors.Is and errors.As
}

func (e *returnedError) Error() string   { return e.text }
func (e *returnedError) Unwrap() []error { return e.marks }

// errInside takes the place of the user's error inside an error of this package.
var errInside = errors.New("what the handler returned")

// sentinels are the errors that this package looks for in an error of a handler.
var sentinels = []error{
	postroom.ErrPermanent, delivery.ErrOutcomeUnknown, delivery.ErrSettled,
	context.Canceled, context.DeadlineExceeded, pgx.ErrTxCommitRollback,
}

// returned describes an error that a user's function returned. Call it inside a guard,
// because it calls the error's methods.
func returned(err error) error {
	if err == nil {
		return nil
	}
	text := guard.Text(err, guard.MaxText)
	tree := guard.Tree(err)
	r := &returnedError{text: text}
	for _, sentinel := range sentinels {
		if guard.Is(tree, sentinel) {
			r.marks = append(r.marks, sentinel)
		}
	}
	if pg, ok := guard.As[*pgconn.PgError](tree); ok && pg != nil {
		r.marks = append(r.marks, known(pg))
	}
	if panicked, ok := guard.As[*guard.PanicError](tree); ok && panicked != nil {
		r.marks = append(r.marks, panicked)
	}
	if after, ok := postroom.RetryDelay(err); ok {
		r.marks = append(r.marks, postroom.RetryAfter(after, errInside))
	}
	if after, ok := postroom.SnoozeDelay(err); ok {
		mark := postroom.Snooze(after, errInside)
		if pace, ok := postroom.SnoozePace(err); ok {
			mark = postroom.SnoozeKey(after, pace, errInside)
		}
		r.marks = append(r.marks, mark)
	}
	if reason, ok := postroom.DiscardReason(err); ok {
		r.marks = append(r.marks, postroom.Discard(guard.Clean(reason, guard.MaxText)))
	}
	return r.with(tree)
}

// with adds the errors of the tree that Postroom's own functions returned to the handler.
func (e *returnedError) with(tree []error) error {
	if _, ok := guard.As[*delivery.BeginError](tree); ok {
		e.marks = append(e.marks, &delivery.BeginError{Err: errInside})
	}
	if _, ok := guard.As[*delivery.LedgerError](tree); ok {
		e.marks = append(e.marks, &delivery.LedgerError{Err: errInside})
	}
	if own, ok := guard.As[*cause.ClassError](tree); ok {
		e.marks = append(e.marks, &cause.ClassError{Class: own.Class, Err: errInside})
	}
	return e
}

// known copies those fields of a database error that matter. The error may come from the
// user's code.
func known(pg *pgconn.PgError) *pgconn.PgError {
	clip := func(s string) string { return guard.Clean(s, 128) }
	code := pg.Code
	if !isState(code) {
		code = ""
	}
	severity := clip(cmp.Or(pg.SeverityUnlocalized, pg.Severity)) // a pooler sends only Severity
	return &pgconn.PgError{
		Severity: severity, SeverityUnlocalized: severity, Code: code,
		TableName: clip(pg.TableName), ConstraintName: clip(pg.ConstraintName),
	}
}

// isState reports whether a text can be an SQLSTATE.
func isState(code string) bool {
	if len(code) != 5 {
		return false
	}
	for _, c := range []byte(code) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
