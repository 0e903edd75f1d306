// Package eventlog is the port between a relay and the log that it reads: the methods that
// a relay calls, and the types that they exchange. Package pglog implements the
// port on PostgreSQL. Package relay uses the port.
package eventlog

import (
	"context"
	"time"

	"github.com/postroom/postroom/relay/broker"
)

// Source is a log of committed events. Only one process at a time may publish them.
//
// All its methods may be called concurrently. An error that matches [postroom.ErrUnrecoverable] is
// a fault of the set-up. Any other error is an outage, unless the comment of a method says
// otherwise.
type Source interface {
	History

	// Check reports whether the log can be read.
	Check(ctx context.Context) error

	// Lead begins a term, in which the relay with the name owner leads. The parameter lease says
	// how long the term lasts. The term lasts longer if the relay calls Renew or Record in time. If
	// another owner leads, Lead returns an error that matches [ErrLeaseHeld]. If the given owner
	// leads already, Lead ends the previous term. Lead first prepares all that a term needs, and
	// takes the lease last. If the log does not answer, Lead returns an error after some time.
	Lead(ctx context.Context, owner string, lease time.Duration) (Term, error)

	// Paused returns an operator's pause of the log's relays, and whether there is one. While
	// there is a pause, no relay publishes. A relay calls Paused once a second.
	Paused(ctx context.Context) (p Pause, paused bool, err error)

	// Subjects returns subjects that are in use, each once. It may leave out subjects
	// that were not used lately. The relay checks whether streams take these subjects.
	Subjects(ctx context.Context) ([]string, error)

	// Lag returns how far behind the relay is.
	Lag(ctx context.Context) (Lag, error)
}

// History says what a log has published. The relay and package reconcile use it to find the events
// that a broker lost. All its methods may be called concurrently.
type History interface {
	// Positions returns the positions of the streams, as a relay last recorded them.
	Positions(ctx context.Context) ([]broker.StreamPosition, error)

	// Sources returns the sources of the log's events, each once.
	Sources(ctx context.Context) ([]string, error)

	// Checkpoints returns the checkpoints of a stream, the newest first.
	Checkpoints(ctx context.Context, stream string) ([]Checkpoint, error)

	// Entries begins to read the events that were published after a checkpoint, and the events that
	// a relay may be publishing now. If the time since is not zero, Entries may leave out events
	// that were written before that time. If repair is true, events that republishes of operators
	// still have to publish are not left out. Each call of the function next returns more events, in
	// the order of their seqs. At the end it returns none.
	Entries(ctx context.Context, after Checkpoint, since time.Time, repair bool) (next func(ctx context.Context) ([]HistoryEntry, error), err error)
}

// Term is the time during which one relay leads. After any error the term is over: the relay calls
// Release, forgets what it read in this term, and begins a new term. It must forget, because a
// database that failed over assigns some seqs again. If the relay remembered the old seqs, it would
// skip new events.
//
// Read may run at the same time as Renew, Record or Release. No method runs twice at the same time.
type Term interface {
	// LeaseStart returns the time at which the lease began: a moment before the statement
	// that took the lease was sent. It also returns how long the log takes to answer.
	LeaseStart() (at time.Time, roundTrip time.Duration)

	// Renew makes the lease last for the given time from now. Each later Record renews the lease
	// for the same time. If another term has begun, Renew returns an error that matches
	// [ErrLeaseLost]. Renew must not run at the same time as Record, Prune or Release.
	Renew(ctx context.Context, lease time.Duration) error

	// Read returns the next events in publishing order: about limit events, or fewer because of
	// [PageBytes]. If there are no more events, it returns none. In a term, it returns an event
	// again only after Record got it in Held, Returned or Lost. Read may overwrite buffer and reuse
	// its memory. The caller owns the result, but must not change an event's Data or Headers.
	Read(ctx context.Context, limit int, buffer []broker.Event) (Page, error)

	// PutBack notes that the relay has no room for some events that Read has returned and that were not
	// read from the table held. Read does not return them again in this term, and the next term reads
	// them again. PutBack may run at the same time as any other method.
	PutBack(seqs []int64)

	// ReadAgain returns events that were put back: of those with the given seqs, which are ascending,
	// all up to the seq through, which is lower than the last of them because of [PageBytes]. It leaves
	// out events that Record got in Held meanwhile. It must not run at the same time as Read.
	ReadAgain(ctx context.Context, seqs []int64) (page Page, through int64, err error)

	// ReadRepublish returns the next events of the running republish: at most limit events, or
	// fewer because of [PageBytes]. For each republish, it returns an event at most once in a term.
	// With a limit of 0 it returns only the status of the republishes. It must not run at the same
	// time as Read.
	ReadRepublish(ctx context.Context, limit int) (RepublishPage, error)

	// HeldKeys returns the keys that have events in the table held, in any order. The relay must
	// hold later events of these keys too. HeldKeys must not run at the same time as Read.
	HeldKeys(ctx context.Context) ([]string, error)

	// Record stores what happened to events, and extends the lease. It keeps no reference
	// to memory of p. If another term has begun, it returns an error that matches
	// [ErrLeaseLost].
	//
	// One call writes a limited number of rows and bytes, so that it ends long before the lease.
	// The term keeps what is left, and the next calls write it: see Unrecorded.
	Record(ctx context.Context, p Progress) error

	// Unrecorded returns how much the calls of Record so far have left to write: events of
	// Progress.Held, and other changes. As long as one number is not zero, the relay calls Record
	// again soon, even if there is no progress. Unrecorded must not run at the same time as Record.
	Unrecorded() (held, other int)

	// Prune deletes from the log the published events that are older than the duration keep. One
	// call deletes a limited number of events. It returns this number, and whether there are more
	// to delete. It must not run at the same time as Record or Release.
	Prune(ctx context.Context, keep time.Duration) (removed int64, more bool, err error)

	// Positions returns the positions that the streams had when the term began. The relay calls it
	// before the first Record.
	Positions() []broker.StreamPosition

	// Token returns two values that distinguish this term from all others: the identity of the log,
	// and the number of the term. Each later term has a higher number.
	Token() (instance string, epoch int64)

	// Confirm returns nil if this term still leads. If another term has begun, it returns
	// an error that matches [ErrLeaseLost]. It may run at the same time as any other
	// method.
	Confirm(ctx context.Context) error

	// Release records p, gives up the lease and ends the term. The term ends even if
	// Release returns an error.
	Release(ctx context.Context, p Progress) error
}
