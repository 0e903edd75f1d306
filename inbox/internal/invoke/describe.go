package invoke

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
)

// returnedError is what is known of an error that a user's function returned. It is made
// while the guard is up, with a bound on time, and holds no value of the user's: the
// methods of such a value may panic, never return, or return a hundred megabytes, and the
// rest of this package asks errors a lot of questions.
type returnedError struct {
	text  string
	marks []error // ours, for errors.Is and errors.As
}

func (e *returnedError) Error() string   { return e.text }
func (e *returnedError) Unwrap() []error { return e.marks }

// errInside stands for the user's error within one of ours.
var errInside = errors.New("what the handler returned")

// sentinels are the errors that this package looks for in what a handler returned.
var sentinels = []error{
	postroom.ErrPermanent, delivery.ErrOutcomeUnknown, delivery.ErrSettled,
	context.Canceled, context.DeadlineExceeded, pgx.ErrTxCommitRollback,
}

// returned describes an error that a user's function returned, and calls its methods: it
// is called inside a guard.
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
	return r.with(tree)
}

// with adds what the functions of this package that a handler calls say by the types of
// their errors.
func (e *returnedError) with(tree []error) error {
	if _, ok := guard.As[*delivery.BeginError](tree); ok {
		e.marks = append(e.marks, &delivery.BeginError{Err: errInside})
	}
	if _, ok := guard.As[*delivery.LedgerError](tree); ok {
		e.marks = append(e.marks, &delivery.LedgerError{Err: errInside})
	}
	return e
}

// known is what counts of an error of the database. A user may have made it.
func known(pg *pgconn.PgError) *pgconn.PgError {
	clip := func(s string) string { return guard.Clean(s, 128) }
	code := pg.Code
	if !isState(code) {
		code = ""
	}
	severity := clip(cmp.Or(pg.SeverityUnlocalized, pg.Severity)) // a pooler sends the other alone
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
