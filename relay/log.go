package relay

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/anylog"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/relay/broker"
)

// [Relay.Check] and [Relay.Run] return one of these errors if a relay cannot rely on the database.
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
	// row-level security for these tables. It is schema.ErrRowSecurity.
	ErrRowSecurity = pglog.ErrRowSecurity

	// ErrPooled says that there is a transaction pooler between the relay and
	// PostgreSQL. Give the relay a direct connection, or one through a session pooler.
	ErrPooled = pglog.ErrPooled
)

// New returns a relay that moves events from the table outbox of pool's database to a broker. It does
// no I/O and returns no error: if the Config has faults, [Relay.Check] and [Relay.Run] return them.
//
// A relay that leads opens two connections outside the pool, with the pool's settings. These
// connections must go to PostgreSQL directly or through a session pooler.
func New(pool *pgxpool.Pool, pub broker.Publisher, cfg Config) *Relay {
	//guard:a-relay-has-the-schema-of-its-config = over(pglog.New(pool), pub, cfg)
	return over(pglog.New(pool).WithSchema(cfg.Schema), pub, cfg)
}

func init() {
	anylog.Over = func(log eventlog.Source, pub broker.Publisher, cfg any) any {
		return over(log, pub, cfg.(Config))
	}
}

// Lag is how far behind the leading relay is at one moment. Ages are measured by the database's clock.
type Lag struct {
	// Age is the age of the oldest committed event that is not recorded as published; zero
	// if there is none.
	Age time.Duration

	// Events is the number of committed events that are not recorded as published. It is
	// computed from seqs, so gaps in the log count as events.
	Events int64

	// Appended is the number of seqs that the log has assigned so far.
	Appended int64

	// Outgoing events in the table held: Scheduled is the number of events that are published later,
	// Retrying of those that the broker refused and that are tried again, Waiting of those that wait
	// behind an earlier event of their key, and Dead of those that wait for an operator. Counting
	// stops at 10,000 of Dead, at 10,000 of Waiting, and at 10,000 of the two others together.
	Scheduled, Retrying, Waiting, Dead int64
}

func newLag(l eventlog.Lag) Lag {
	return Lag{
		Age: l.Age, Events: l.Events, Appended: l.Appended,
		Scheduled: l.Held[eventlog.HeldScheduled].Events, Retrying: l.Held[eventlog.HeldRetry].Events,
		Waiting: l.Held[eventlog.HeldKey].Events, Dead: l.Held[eventlog.HeldDead].Events,
	}
}

// Lag returns how far behind the leading relay is now, even if another relay leads. It asks
// the database, and is safe for concurrent use. [Relay.Health] returns the last measurement
// without asking.
func (r *Relay) Lag(ctx context.Context) (Lag, error) {
	measured, err := r.log.Lag(ctx)
	return newLag(measured), err
}
