// Package failure tells the errors of a database apart, by what they say of the statement or
// the transaction that failed.
package failure

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/guard"
)

// IsContention reports whether the database rolled back because of other transactions:
// serialization failure and deadlock.
func IsContention(err error) bool { return HasCode(err, "40001", "40P01") }

// IsInterruption reports whether err says that time was over: a context ended, a
// statement's or a network's time limit passed.
func IsInterruption(err error) bool {
	err = guard.Seal(err) // it may be a user's
	var slow interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || HasCode(err, "57014") ||
		errors.As(err, &slow) && slow.Timeout()
}

// HasCode reports whether err is the server's, with one of these SQLSTATEs.
func HasCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains(codes, pg.Code)
}

// IsRefusal reports whether the server answered, with an error: then it is known that
// nothing was committed. A server that is going away, or a session that ends, says so as
// well, and it is not known then: it may have done so when the commit was done.
func IsRefusal(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && cmp.Or(pg.SeverityUnlocalized, pg.Severity) == "ERROR" &&
		!strings.HasPrefix(pg.Code, "57") && !strings.HasPrefix(pg.Code, "08")
}

// IsShort reports whether the server lacks room, or takes no writes: nothing was
// committed, and it may be later.
func IsShort(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "53") || pg.Code == "25006")
}
