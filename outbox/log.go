package outbox

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// [Log] returns one of these errors if a relay cannot rely on the database.
var (
	// ErrSequenceBehind says that the log's sequence is lower than seqs that the relay recorded as
	// published. So new events would count as published. Causes are TRUNCATE with RESTART IDENTITY,
	// and logical replication, which does not copy sequences. Call setval to set the sequence above
	// the highest seq that the relay recorded.
	ErrSequenceBehind = pglog.ErrSequenceBehind

	// ErrSequenceOptions says that the log's sequence has CYCLE, or a CACHE or INCREMENT
	// other than 1. With such a sequence, seqs do not order the events of a key.
	ErrSequenceOptions = pglog.ErrSequenceOptions

	// ErrRowSecurity says that row-level security is active on the log's tables for the relay's role.
	// Events that the role cannot see would count as published. Give the role BYPASSRLS, or disable
	// row-level security for these tables. It is [schema.ErrRowSecurity].
	ErrRowSecurity = pglog.ErrRowSecurity

	// ErrPooled says that there is a transaction pooler between the relay and
	// PostgreSQL. Give the relay a direct connection, or one through a session pooler.
	ErrPooled = pglog.ErrPooled
)

// Log is the log of a database (the table outbox), for a relay. It implements [eventlog.Source]. It
// is safe for concurrent use. A Log keeps no connection, but an [eventlog.Term] does.
type Log struct {
	eventlog.Source
	log *pglog.Log // the same log as Source
}

// NewLog returns the log in the schema postroom of pool's database. It does no I/O. A relay that
// leads opens two connections outside the pool, with the pool's settings. These connections must go
// to PostgreSQL directly or through a session pooler.
func NewLog(pool *pgxpool.Pool) *Log { return newLog(pglog.New(pool)) }

func newLog(log *pglog.Log) *Log { return &Log{Source: log, log: log} }

// ForOperator returns the same log for use by an operator. If a right is missing, the error says
// how to grant the rights of an operator, and not those of a relay.
func (l *Log) ForOperator() *Log { return newLog(l.log.ForOperator()) }

// WithSchema returns the log in the schema with the given name; an empty name means
// postroom. If the name is invalid, all methods return an error.
func (l *Log) WithSchema(name string) *Log { return newLog(l.log.WithSchema(name)) }
