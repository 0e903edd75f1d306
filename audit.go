package postroom

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Audit says who makes a change as an operator, and why. The change stores it in the table audit, in
// its own transaction. A change without an Actor is refused.
type Audit struct {
	Actor  string // required, at most 255 bytes
	Reason string // at most 4,096 bytes; methods that stop or take away something require one, and say so
}

// DB is what a store for operators uses of a *pgxpool.Pool or a *pgx.Conn. With a pool the store is
// safe for concurrent use, with a connection it is not.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Page selects a part of a list. The zero value selects the first page.
type Page struct {
	// Limit is how many entries the page has at most, from 1 to 1,000.
	//
	// Defaults to 100.
	Limit int

	// After is where the page begins: what the list returned as next with the previous page, with the
	// same filter. The text is not for reading, and may change.
	After string
}

// ErrPage says that a [Page] has a Limit that is out of range, or an After that the list did not
// return.
var ErrPage = errors.New("invalid page")
