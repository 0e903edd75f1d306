package eventlog

import "time"

// Backlog is how far behind a relay is at one moment. Ages are by the
// database's clock.
type Backlog struct {
	// Age is how long ago the oldest event was written that is committed and not
	// recorded as published; zero if there is none.
	Age time.Duration

	// Events is how many such events there are, by arithmetic: gaps in the log
	// count as events.
	Events int64

	// Appended is how many places of the log were handed out so far.
	Appended int64

	// Held is what is held of outgoing events, by reason, counted up to 100,000
	// in all.
	Held map[HeldReason]HeldCount

	// HeldKeys is how many keys wait for a held event.
	HeldKeys int64

	// Overdue is for how long the held event that is due first has been due.
	Overdue time.Duration

	// Oldest is how long ago the oldest event that is still in the log was
	// written.
	Oldest time.Duration

	// Writer is for how long the transaction has been open that was the first to begin
	// of those that have written to the log and neither committed nor rolled back;
	// zero if there is none. Its events go out when it commits.
	Writer time.Duration

	// WritersUntold is how many such transactions Writer does not count, because the
	// relay's role may not see when they began. PostgreSQL tells that to members of
	// their role and of pg_read_all_stats.
	WritersUntold int64

	// Bytes are the sizes of tables on disk, with their indexes, by name.
	Bytes map[string]int64
}

// HeldReason is why an event is held.
type HeldReason string

// The reasons.
const (
	HeldScheduled HeldReason = "scheduled" // it is to be published later
	HeldRetry     HeldReason = "retry"     // it failed and is tried again
	HeldKey       HeldReason = "key"       // it waits behind an earlier event of its key
	HeldDead      HeldReason = "dead"      // an operator has to decide
)

// HeldCount is how many events are held for a reason, and for how long the
// oldest.
type HeldCount struct {
	Events int64
	Age    time.Duration
}
