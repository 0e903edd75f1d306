package relay

import (
	"context"
)

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
	// eventlog.ErrLeaseLost where another has begun. It may be called concurrently.
	Confirm func(ctx context.Context) error
}
