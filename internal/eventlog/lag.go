package eventlog

import "time"

// Lag is how far behind a relay is at one moment. Ages are measured by the database's
// clock.
type Lag struct {
	// Age is the age of the oldest committed event that is not recorded as published; zero
	// if there is none.
	Age time.Duration

	// Events is the number of committed events that are not recorded as published. It is
	// computed from seqs, so gaps in the log count as events.
	Events int64

	// Appended is the number of seqs that the log has assigned so far.
	Appended int64

	// Held is the number of outgoing events that are held, by reason. Counting stops at 10,000
	// events of HeldDead, at 10,000 of HeldKey, and at 10,000 of the others.
	Held map[HeldReason]HeldCount

	// HeldKeys is the number of keys whose later events wait for a held event.
	HeldKeys int64

	// Overdue is the time since the earliest due time of a held event; zero if none is due.
	Overdue time.Duration

	// OldestEventAge is the age of the oldest event in the log, published or not.
	OldestEventAge time.Duration

	// OldestWriterAge is the age of the oldest transaction that has written to the log and
	// is still open; zero if there is none. Its events are published after it commits.
	OldestWriterAge time.Duration

	// HiddenWriters is the number of open transactions that OldestWriterAge leaves out,
	// because the relay's role may not see when they began. PostgreSQL shows the start of a
	// transaction only to members of the transaction's role or of pg_read_all_stats.
	HiddenWriters int64

	// Bytes has the sizes of tables on disk, with their indexes, by name.
	Bytes map[string]int64

	// Sagas has the counts of each saga of the database.
	Sagas []SagaCount

	// SagasHidden reports whether the relay's role may not count the instances of sagas. If it is
	// true, call postroom.grant_relay for the role again.
	SagasHidden bool
}

// SagaCount counts the instances of a saga that have not ended.
type SagaCount struct {
	Saga string

	// Running and Compensating are the numbers of instances in these states, up to 10,000 each.
	// Stuck is the number of instances, in the two states together, that have waited for longer
	// than their saga allows. For Stuck, the log looks only at the 10,000 instances that have
	// waited for the longest.
	Running, Compensating, Stuck int64

	// Oldest is the longest time that an instance has waited for its current step.
	Oldest time.Duration
}

// HeldReason is why an event is held.
type HeldReason string

// Reasons for which an event is held.
const (
	HeldScheduled HeldReason = "scheduled" // it is published later
	HeldRetry     HeldReason = "retry"     // it failed and is tried again
	HeldKey       HeldReason = "key"       // it waits behind an earlier event of its key
	HeldDead      HeldReason = "dead"      // an operator has to decide
)

// HeldCount has the number of events that are held for one reason, and the time since the first of
// them failed (HeldRetry), was held (HeldKey) or died (HeldDead). HeldScheduled has no Age.
type HeldCount struct {
	Events int64
	Age    time.Duration
}
