package relay

import (
	"context"
	"time"

	"github.com/postroom/postroom"
)

// Source is a log of committed events that one process at a time may publish.
//
// It is an interface so that this package holds no SQL, and generic so that a
// log can return a term type of its own without knowing this package. All its
// methods may be called concurrently.
type Source[T Term] interface {
	// Check reports whether the log can be read. An error that matches
	// postroom.ErrRefused is a fault of the set-up, any other an outage.
	Check(ctx context.Context) error

	// Lead begins a term, in which owner leads for the given time unless it
	// records again before. It returns an error that matches
	// postroom.ErrLeaseHeld where another owner leads. An owner that leads
	// already begins a new term, and its former one is over. It takes the lease last,
	// after all else that a term needs, and does not wait for ever for a log that does not
	// answer.
	Lead(ctx context.Context, owner string, lease time.Duration) (T, error)
}

// Term is the time in which one relay leads. After any error it is over, and
// what was read in it is void: the relay releases it and leads anew.
//
// Read may run beside Renew, Record or Release; none of them runs twice at once.
type Term interface {
	// Taken returns from when on the lease is counted: a moment before whatever took it
	// was sent. It also returns how long the log takes to answer.
	Taken() (at time.Time, roundTrip time.Duration)

	// Renew keeps the lease for the given time from now on, and so does each Record after
	// it. It returns an error that matches postroom.ErrLeaseLost where another term has
	// begun. It does not run beside Record, Prune or Release.
	Renew(ctx context.Context, lease time.Duration) error

	// Read returns the next events in publishing order, about limit of them,
	// none where there are none. Each is returned once in a term. They may lie in
	// the memory of into, whose own events are gone then. The caller owns the slice
	// and does not change what the events share.
	Read(ctx context.Context, limit int, into []postroom.Logged) (postroom.Page, error)

	// Rewound returns the next events that are published again by an operator's wish,
	// limit of them at the most; none where there are none. Each is returned once in a
	// term. With a limit of 0 it only says how rewinds stand. It does not run beside
	// Read.
	Rewound(ctx context.Context, limit int) (postroom.Rewound, error)

	// HeldKeys returns the keys that have events in held, in no order. Later
	// events of these keys have to be held too. It does not run beside Read.
	HeldKeys(ctx context.Context) ([]string, error)

	// Record stores what became of events, and extends the lease. It retains
	// nothing. It returns an error that matches postroom.ErrLeaseLost where another
	// term has begun.
	Record(ctx context.Context, p postroom.Progress) error

	// Prune removes published events that are older than keep from the log, a
	// bounded number at once, and reports how many it removed and whether there
	// are more. It does not run beside Record or Release.
	Prune(ctx context.Context, keep time.Duration) (removed int64, more bool, err error)

	// Places returns where streams ended when that was last recorded.
	Places() []postroom.Place

	// Claim returns what distinguishes this term from all others: the identity of the
	// log, and the number of the term, which only rises.
	Claim() (instance string, epoch int64)

	// Confirm returns nil where this term still leads, and an error that matches
	// postroom.ErrLeaseLost where another has begun. It may run beside everything.
	Confirm(ctx context.Context) error

	// Release records, gives the lease back and ends the term, whatever it
	// returns.
	Release(ctx context.Context, p postroom.Progress) error
}

// Publisher sends events to a broker.
//
// It is an interface so that what the relay promises can be tested without a
// broker, and so that other ways of publishing fit in.
type Publisher interface {
	// Check reports whether the broker can be published to. An error that
	// matches postroom.ErrRefused is a fault of the set-up, any other an outage.
	Check(ctx context.Context) error

	// Run publishes the batches that it receives until ctx ends or batches is
	// closed. It may leave batches waiting while the broker is away. It does not
	// repeat: an event that failed comes again in a later batch.
	//
	// For each event that it received it calls settle once, from any goroutine:
	// with the class Stored after the broker stored the event durably, otherwise
	// with what went wrong. settle does not block. After Run returned it is not
	// called. An error of Run that matches postroom.ErrRefused ends the relay, any
	// other is retried.
	Run(ctx context.Context, batches <-chan []*Flight, settle func(f *Flight, o Outcome)) error
}

// Batcher is a [Publisher] that can also publish in atomic batches: many events,
// which the broker stores together or not at all, under one acknowledgement. A
// publisher need not be one.
//
// It is an interface so that the relay knows no broker.
type Batcher interface {
	// InspectAtomic examines streams as [Inspector] does with Inspect, and also for
	// what atomic batches need.
	InspectAtomic(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error)

	// RunAtomic publishes as [Publisher] does with Run, in atomic batches. What comes
	// after another term has begun is refused by the broker itself: then claim says so,
	// and RunAtomic returns its error.
	//
	// Events of a key that come together in a batch are stored in their order. Where
	// one of them is not stored, none after it is. These are settled with the class
	// [Behind] before the one that they wait for is settled; the others of a key are
	// settled in their order.
	RunAtomic(ctx context.Context, claim Claim, batches <-chan []*Flight, settle func(f *Flight, o Outcome)) error
}

// Claim is a term as a broker can tell it from others.
type Claim struct {
	Instance string // the identity of the log
	Epoch    int64  // the number of the term, which only rises

	// Confirm returns nil where the term still leads, and an error that matches
	// postroom.ErrLeaseLost where another has begun. It may be called concurrently.
	Confirm func(ctx context.Context) error
}
