// Package ledger has every transaction and every statement of the inbox. It begins and ends the
// transactions of handlers, and stores the inbox's state. It decides events, holds them, and
// settles them: it removes an event from the table held when the event has taken effect. It uses no
// broker and calls no handler.
package ledger

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/session"
	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. Each has a file in sql.
type statements struct {
	Decide, DecideBatch, Decided, Hold        string
	DecideOrdered, Verdict, DecideFree, Keys  string
	LockKey, Follow, Along, SettleAlong, More string
	Lead, Pardon, Keep, Restart               string
	DeadKeys, SkipDead, Wake                  string
	Still, Committed, LeaveKey, Identify      string
	Writer, Current                           string
	Generic, Archive, Result                  string
	Accept                                    string
	Plan, Due, Claim, ClaimAlone              string
	Orphans, GiveBack, Given                  string
	Paused, Postpone                          string
	Limits, Settle, Fail, Noted, Release      string
	SettleLast, SettleMany, Renew             string
	Start, Done, Undo, Forget                 string
	Subscribe, Recreated, Types, Floor, Lower string
	Place, Skipped, Lacking                   string
	Node, Instance, Leave, Unknown            string
	OtherWindows, Impatient                   string
	Sweep, LockNodes, Windows, Expire, Swept  string
	Backlog                                   string
	Trials, Try, Tried, Changes               string
}

var written = sqlfile.MustRead[statements](files)

// load returns the statements for a schema. The function schema.Name must have accepted the name.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}

// optional returns nil for a zero value.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// DB is the inbox's part of the database. Each method runs its own transaction, unless the method
// has a transaction as a parameter.
type DB struct {
	pool     *pgxpool.Pool
	sql      statements
	sessions *session.Pool
	lost     func(ctx context.Context, why error) // called when a connection was closed
}

// New returns the ledger of a schema. If a handler leaves a connection in a state in which it
// cannot be used again, the ledger closes the connection and calls the function lost.
func New(pool *pgxpool.Pool, schema string, lost func(ctx context.Context, why error)) *DB {
	return &DB{pool: pool, sql: load(schema), sessions: session.Of(pool), lost: lost}
}
