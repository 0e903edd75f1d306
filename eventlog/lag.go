package eventlog

import "time"

// Lag is how far behind a relay is at one moment. Ages are measured by the database's
// clock.
type Lag struct {
	// Age is the age of the oldest committed event that is not recorded as published; zero
	// if there is none.
	Age time.Duration

	// Events is how many such events there are. It is computed from seqs: gaps in the log
	// count as events.
	Events int64

	// Appended is how many seqs the log has given out so far.
	Appended int64

	// Held is how many outgoing events are held, by reason. Counting stops at 100,000 in
	// all.
	Held map[HeldReason]HeldCount

	// HeldKeys is how many keys wait for a held event.
	HeldKeys int64

	// Overdue is how long the held event that is due first has been due.
	Overdue time.Duration

	// OldestEventAge is the age of the oldest event in the log, published or not.
	OldestEventAge time.Duration

	// OldestWriterAge is the age of the oldest transaction that has written to the log and
	// is still open; zero if there is none. Its events are published after it commits.
	OldestWriterAge time.Duration

	// HiddenWriters is how many such transactions OldestWriterAge leaves out, because the
	// relay's role may not see when they began. PostgreSQL tells that to members of their
	// role and of pg_read_all_stats.
	HiddenWriters int64

	// Bytes has the sizes of tables on disk, with their indexes, by name.
	Bytes map[string]int64

	// Sagas has a count for each saga of the database.
	Sagas []SagaCount

	// SagasHidden says that the relay's role may not count the instances of sagas: grant it
	// the rights of a relay again.
	SagasHidden bool
}

// SagaCount is how many instances of a saga have not ended.
type SagaCount struct {
	Saga string

	// Running and Compensating are how many instances have that state, up to 10,000. Stuck is
	// how many of both have waited for longer than their definition allows, among the 10,000
	// that began to wait first.
	Running, Compensating, Stuck int64

	// Oldest is for how long the instance has waited for its step that has waited for the
	// longest.
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

// HeldCount is how many events are held for one reason, and how long the oldest has been.
type HeldCount struct {
	Events int64
	Age    time.Duration
}
