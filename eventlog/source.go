// Package eventlog is the port between a relay and the log that it reads: what one asks
// of the other, and what they exchange. What outbox.NewLog returns implements it on
// PostgreSQL, package relay uses it, and neither knows the other.
package eventlog

import (
	"context"
	"time"
)

// Source is a log of committed events that one process at a time may publish.
//
// All its methods may be called concurrently. An error that matches
// [postroom.ErrUnrecoverable] is a fault of the set-up, any other an outage, unless a method
// says otherwise.
type Source interface {
	History

	// Check reports whether the log can be read.
	Check(ctx context.Context) error

	// Lead begins a term, in which owner leads for the given time unless it
	// records again before. It returns an error that matches [ErrLeaseHeld] where
	// another owner leads. An owner that leads already begins a new term, and its
	// former one is over. It takes the lease last, after all else that a term needs,
	// and does not wait for ever for a log that does not answer.
	Lead(ctx context.Context, owner string, lease time.Duration) (Term, error)

	// Subjects returns subjects that are in use, each once. It may leave out those
	// that were not used lately. The relay looks whether streams take them.
	Subjects(ctx context.Context) ([]string, error)

	// Backlog returns how far behind the relay is.
	Backlog(ctx context.Context) (Backlog, error)
}

// History is what a log knows of what it had published. What a broker loses is found,
// and repaired, by it. All its methods may be called concurrently.
type History interface {
	// Places returns where streams ended when a relay last recorded that.
	Places(ctx context.Context) ([]Place, error)

	// Sources returns the sources of the log's events, each once.
	Sources(ctx context.Context) ([]string, error)

	// Marks returns the marks that the log has for a stream, the newest first.
	Marks(ctx context.Context, stream string) ([]Mark, error)

	// Published begins to read the events that are published now and may not have
	// been at a mark, from a time on where since is not zero, and those that may be on
	// their way. next returns the next of them, in the order of their seqs, none at the
	// end.
	Published(ctx context.Context, after Mark, since time.Time) (next func(ctx context.Context) ([]Entry, error), err error)
}

// Term is the time in which one relay leads. After any error it is over, and
// what was read in it is void: the relay releases it and leads anew. Reader, recorder
// and memory share one fate, because a database that failed over hands out seqs again,
// and what is remembered of the old ones would hide new events.
//
// Read may run beside Renew, Record or Release; none of them runs twice at once.
type Term interface {
	// Taken returns from when on the lease is counted: a moment before whatever took it
	// was sent. It also returns how long the log takes to answer.
	Taken() (at time.Time, roundTrip time.Duration)

	// Renew keeps the lease for the given time from now on, and so does each Record after
	// it. It returns an error that matches [ErrLeaseLost] if another term has
	// begun. It does not run beside Record, Prune or Release.
	Renew(ctx context.Context, lease time.Duration) error

	// Read returns the next events in publishing order, about limit of them and as many
	// as [PageBytes] allows; none if there are none. Each is returned once in a term.
	// They may lie in the memory of into, whose own events are gone then. The caller owns
	// the slice and does not change what the events share.
	Read(ctx context.Context, limit int, into []Logged) (Page, error)

	// Rewound returns the next events that are published again by an operator's wish,
	// limit of them at the most and as many as [PageBytes] allows; none if there are
	// none. Each is returned once in a term. With a limit of 0 it only says how rewinds
	// stand. It does not run beside Read.
	Rewound(ctx context.Context, limit int) (Rewound, error)

	// HeldKeys returns the keys that have events in held, in no order. Later
	// events of these keys have to be held too. It does not run beside Read.
	HeldKeys(ctx context.Context) ([]string, error)

	// Record stores what became of events, and extends the lease. It retains
	// nothing. It returns an error that matches [ErrLeaseLost] if another
	// term has begun.
	Record(ctx context.Context, p Progress) error

	// Prune removes published events that are older than keep from the log, a
	// bounded number at once, and reports how many it removed and whether there
	// are more. It does not run beside Record or Release.
	Prune(ctx context.Context, keep time.Duration) (removed int64, more bool, err error)

	// Places returns where streams ended when that was last recorded. It is called
	// before the first Record.
	Places() []Place

	// Claim returns what distinguishes this term from all others: the identity of the
	// log, and the number of the term, which only rises.
	Claim() (instance string, epoch int64)

	// Confirm returns nil if this term still leads, and an error that matches
	// [ErrLeaseLost] if another has begun. It may run beside everything.
	Confirm(ctx context.Context) error

	// Release records, gives the lease back and ends the term, whatever it
	// returns.
	Release(ctx context.Context, p Progress) error
}
