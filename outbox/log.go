package outbox

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// What [Log] returns where a relay could not rely on the database.
var (
	// ErrSequenceBehind says that the log's sequence stands below what is
	// recorded as published: the log was truncated with RESTART IDENTITY, or
	// came by logical replication, which does not carry sequences. New events
	// would be taken for published ones. Set the sequence above the recorded
	// high, with setval.
	ErrSequenceBehind = pglog.ErrSequenceBehind

	// ErrSequenceOptions says that the log's sequence has a CACHE or INCREMENT
	// other than 1, or CYCLE: seqs would not order the events of a key.
	ErrSequenceOptions = pglog.ErrSequenceOptions

	// ErrPooled says that there is a transaction pooler between the relay and
	// PostgreSQL. Give the relay a direct connection, or one through a session pooler.
	ErrPooled = pglog.ErrPooled
)

// Log is the log of a database, for a relay: all that it does is what [eventlog.Source]
// says. It is safe for concurrent use and holds no connection; an [eventlog.Term] does.
type Log struct {
	eventlog.Source
	log *pglog.Log // is Source
}

// NewLog returns the log in the schema postroom of pool's database. It does no
// I/O. While it leads, a relay keeps two connections made as the pool's are, but
// beside it; they must go straight to PostgreSQL or through a session pooler.
func NewLog(pool *pgxpool.Pool) *Log { return newLog(pglog.New(pool)) }

func newLog(log *pglog.Log) *Log { return &Log{Source: log, log: log} }

// ForOperator returns the log for an operator, who is told how to get an operator's rights.
func (l *Log) ForOperator() *Log { return newLog(l.log.ForOperator()) }

// WithSchema returns the log in the schema of the given name, empty meaning
// postroom. All methods report an invalid name.
func (l *Log) WithSchema(name string) *Log { return newLog(l.log.WithSchema(name)) }
