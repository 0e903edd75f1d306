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

// returnedError describes an error that a user's function returned. The function returned, below,
// makes a returnedError inside a guard, within a time limit. A returnedError does not contain the
// user's error itself, because methods of that error may panic, never return, or return a hundred
// megabytes. The rest of the inbox can call the methods of a returnedError without a guard.
type returnedError struct {
	text  string
	marks []error // the errors that errors.Is and errors.As find in it
}

func (e *returnedError) Error() string   { return e.text }
func (e *returnedError) Unwrap() []error { return e.marks }

// errInside takes the place of the user's error inside an error of this module.
var errInside = errors.New("what the handler returned")

// sentinels are the errors that this package looks for in an error of a handler.
var sentinels = []error{
	postroom.ErrUnknownType,
	postroom.ErrPermanent, delivery.ErrUnanswered, delivery.ErrOutcomeUnknown, delivery.ErrSettled,
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

// with adds marks for those errors of the tree that functions of Postroom returned to the handler.
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
	if _, ok := guard.As[*cause.WaitError](tree); ok {
		e.marks = append(e.marks, &cause.WaitError{Err: errInside})
	}
	return e
}

// known returns a copy of a database error that has only the fields that the inbox uses, cleaned
// and shortened. The reason is that the user's code may have made the error.
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

// isState reports whether a text has the form of an SQLSTATE.
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
