// Package failure classifies errors of the database.
package failure

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/remedy"
)

// IsContention reports whether the database rolled the transaction back because of other
// transactions: err is a serialization failure or a deadlock.
func IsContention(err error) bool { return HasCode(err, "40001", "40P01") }

// IsInterruption reports whether err says that work was interrupted: a context ended, the server
// cancelled a statement (for instance at its time limit), or a time limit of the network passed.
func IsInterruption(err error) bool {
	err = guard.Seal(err) // err may be of a user's type, with methods that panic
	var slow interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || HasCode(err, "57014") ||
		errors.As(err, &slow) && slow.Timeout()
}

// HasCode reports whether err comes from the server and has one of these SQLSTATEs.
func HasCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains(codes, pg.Code)
}

// IsRefusal reports whether the server answered with an error that proves that nothing
// was committed. An error about a server that shuts down, or a session that ends, proves
// nothing: the server may have sent it after the commit.
func IsRefusal(err error) bool {
	var pg *pgconn.PgError
	//guard:a-broken-connection-proves-nothing 4 true
	//guard:a-session-that-ends-proves-nothing 2 true
	return errors.As(err, &pg) && cmp.Or(pg.SeverityUnlocalized, pg.Severity) == "ERROR" &&
		//guard:a-server-that-shuts-down-proves-nothing true
		!strings.HasPrefix(pg.Code, "57") && !strings.HasPrefix(pg.Code, "08")
}

// IsShort reports whether the server lacks resources or refuses writes, or whether a pooler keeps no
// prepared statements. Then a later attempt may succeed. Such an error of a COMMIT does not prove that nothing was committed: a server that cannot
// write its log ends with a PANIC. See IsRefusal.
func IsShort(err error) bool {
	var pg *pgconn.PgError
	//guard:a-pooler-without-prepared-statements-is-unavailable 2.3 false
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "53") || pg.Code == "25006" || remedy.IsUnprepared(pg))
}

// IsAboutTheRow reports whether the server refused a value or a row, and would refuse it again.
// These are data exceptions (class 22), violated constraints (23), limits of the server (54), and
// errors that a trigger raises (P0).
func IsAboutTheRow(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"22", "23", "54", "P0"}, pg.Code[:min(2, len(pg.Code))])
}

// IsTwin reports whether store.sql failed because the key has a row already.
func IsTwin(err error) bool {
	var pg *pgconn.PgError
	//guard:a-users-constraint-is-no-twin 3 true
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == "idempotency_pkey"
}

// IsOther reports whether still.sql or store.sql failed because a handler began another
// transaction. These statements then fail on purpose, with 22P02.
func IsOther(err error) bool { return HasCode(err, "22P02") }
