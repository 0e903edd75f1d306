// Package operator has the acts of operators: they pause handlers and relays, and order that events of
// the log are published again. Package deadletter is for dead events. For events that are held and
// not dead, the command has 'postroom held'.
//
// Each act writes a row of the audit in its own transaction: who did what, why, and to how many
// events. The processes obey what the database says. None of these acts needs them to run.
//
// # Pauses
//
// A pause is a row of the database. All processes that run the handler obey it within two seconds.
// Processes that start later obey it too. A paused handler starts no event, but finishes the events
// that run. The stream keeps the events that are published during the pause. For a paused external
// handler, the inbox still stores events in the table held, but runs none. Paused relays send
// nothing: events wait in the log.
//
// # Republishing
//
// An order of [Store.Republish] chooses the events of a time, a type or a key, and one of
// [Store.RepublishSeqs] the events that a comparison found missing in a stream. The leading relay
// carries the orders out, beside live events.
package operator

import (
	"context"
	"embed"
	"fmt"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. Each has a file in sql.
type statements struct {
	Pause, Resume, Pauses, Handlers                string
	Count, Republish, Republishes, CancelRepublish string
}

var written = sqlfile.MustRead[statements](files)

// Outgoing is the name that outgoing events, which are on their way to the broker, have instead of a
// handler's name, and that the relays have in [Pause.Handler].
const Outgoing = held.Outgoing

// Config tunes a [Store]. The zero value is ready to use.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string
}

// Store carries out the acts of operators. With a *pgxpool.Pool it is safe for concurrent use, with
// a *pgx.Conn it is not. Any number of stores, in any number of processes, may work on one database.
type Store struct {
	db     postroom.DB
	schema string
	err    error // the fault of the Config, or nil
	tables change.Tables
	log    pglog.Reach
	sql    statements
}

// New returns a store. It does no I/O and returns no error: if the Config is wrong,
// [Store.Check] and all other methods return the error.
func New(db postroom.DB, cfg Config) *Store {
	name, err := schema.Name(cfg.Schema)
	//guard:a-schema-without-a-name-is-not-asked false
	if err != nil {
		return &Store{db: db, err: fmt.Errorf("operator: config: Schema: %w", err)}
	}
	sql := sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
	return &Store{db: db, schema: name, tables: change.New(db, name), log: pglog.ReachOf(db, name), sql: sql}
}

// Check reports whether the database has the tables that a store needs.
func (s *Store) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return s.tables.Explain(schema.Require(ctx, s.db, s.schema))
}

// given returns a pointer to v, or nil, which is NULL, if v is the zero value.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
