// Package eventlog is the port between a relay and the log that it reads: the methods that
// a relay calls, and the types that they exchange. The log that outbox.NewLog returns
// implements it on PostgreSQL. Package relay uses it. Neither knows the other.
package eventlog

import (
	"context"
	"time"
)

// Source is a log of committed events that one process at a time may publish.
//
// All its methods may be called concurrently. An error that matches
// [postroom.ErrUnrecoverable] is a fault of the set-up. Any other is an outage, unless a
// method says otherwise.
type Source interface {
	History

	// Check reports whether the log can be read.
	Check(ctx context.Context) error

	// Lead begins a term: owner leads for the given time, and for longer if it renews or
	// records before that ends. If another owner leads, it returns an error that matches
	// [ErrLeaseHeld]. If owner leads already, its former term is over. Lead takes the lease
	// last, after everything else that a term needs. It does not wait for ever for a log
	// that does not answer.
	Lead(ctx context.Context, owner string, lease time.Duration) (Term, error)

	// Paused returns an operator's pause of the log's relays, and whether there is one. While
	// there is, no relay publishes. A relay asks once a second.
	Paused(ctx context.Context) (p Pause, paused bool, err error)

	// Subjects returns subjects that are in use, each once. It may leave out those that
	// were not used lately. The relay checks whether streams take them.
	Subjects(ctx context.Context) ([]string, error)

	// Lag returns how far behind the relay is.
	Lag(ctx context.Context) (Lag, error)
}

// History is what a log knows about what was published. The relay and package reconcile
// use it to find what a broker lost. All its methods may be called concurrently.
type History interface {
	// Positions returns the positions of the streams, as a relay last recorded them.
	Positions(ctx context.Context) ([]StreamPosition, error)

	// Sources returns the sources of the log's events, each once.
	Sources(ctx context.Context) ([]string, error)

	// Checkpoints returns the checkpoints of a stream, the newest first.
	Checkpoints(ctx context.Context, stream string) ([]Checkpoint, error)

	// Entries begins to read the events that were published after a checkpoint, or may
	// have been, and those that may be on their way. If since is not zero, it begins with
	// events of about that time. Each call of next returns more of them, in the order of
	// their seqs, and none at the end.
	Entries(ctx context.Context, after Checkpoint, since time.Time) (next func(ctx context.Context) ([]HistoryEntry, error), err error)
}

// Term is the time in which one relay leads. After any error the term is over, and what was
// read in it is void: the relay releases it and begins a new one. A term reads, records and
// remembers as one unit. A database that failed over gives out seqs again, so that a memory
// of the old ones would hide new events.
//
// Read may run beside Renew, Record or Release. No method runs twice at the same time.
type Term interface {
	// LeaseStart returns the time from which the lease counts: a moment before the
	// statement that took it was sent. It also returns how long the log takes to answer.
	LeaseStart() (at time.Time, roundTrip time.Duration)

	// Renew extends the lease to the given time from now, and so does each Record after
	// it. If another term has begun, it returns an error that matches [ErrLeaseLost]. It
	// does not run beside Record, Prune or Release.
	Renew(ctx context.Context, lease time.Duration) error

	// Read returns the next events in publishing order: about limit of them, as far as
	// [PageBytes] allows, and none if there are none. It returns each event once in a term.
	// It may store them in the memory of into, whose events are lost then. The caller owns
	// the slice, and does not change what the events share.
	Read(ctx context.Context, limit int, into []Event) (Page, error)

	// ReadRepublish returns the next events of the republish that runs: at most limit of
	// them, as far as [PageBytes] allows, and none if there are none. It returns each event
	// once in a term. With a limit of 0 it only returns how the republishes stand. It does
	// not run beside Read.
	ReadRepublish(ctx context.Context, limit int) (RepublishPage, error)

	// HeldKeys returns the keys that have events in held, in no order. Later events of
	// these keys have to be held too. It does not run beside Read.
	HeldKeys(ctx context.Context) ([]string, error)

	// Record stores what became of events, and extends the lease. It keeps no part of p.
	// If another term has begun, it returns an error that matches [ErrLeaseLost].
	Record(ctx context.Context, p Progress) error

	// Prune deletes published events that are older than keep from the log. It deletes a
	// bounded number, and returns how many and whether there are more. It does not run
	// beside Record or Release.
	Prune(ctx context.Context, keep time.Duration) (removed int64, more bool, err error)

	// Positions returns the positions of the streams when the term began. It is called
	// before the first Record.
	Positions() []StreamPosition

	// Token returns what distinguishes this term from all others: the identity of the log,
	// and the number of the term, which only rises.
	Token() (instance string, epoch int64)

	// Confirm returns nil if this term still leads. If another has begun, it returns an
	// error that matches [ErrLeaseLost]. It may run beside all other methods.
	Confirm(ctx context.Context) error

	// Release records, gives the lease back and ends the term, even if it returns an error.
	Release(ctx context.Context, p Progress) error
}
