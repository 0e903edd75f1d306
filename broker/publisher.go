// Package broker is the port between a relay and the broker that it publishes to: what
// one asks of the other, and what they exchange. Package natsjs implements it for NATS
// JetStream. Whoever implements it for another broker needs this package, package
// eventlog and the root package, and no other of this module.
package broker

import (
	"context"
	"errors"

	"github.com/postroom/postroom/eventlog"
)

// Publisher sends events to a broker. No method is optional: a publisher that cannot do
// what some of them are for embeds [PublishOnly] and says so with Abilities.
//
// All its methods may be called concurrently, but for Run and RunAtomic, of which one
// runs at a time.
type Publisher interface {
	// Abilities returns what the publisher can do beside publishing. It does no I/O.
	Abilities() Abilities

	// Check reports whether the broker can be published to. An error that
	// matches [postroom.ErrUnrecoverable] is a fault of the set-up, any other an outage.
	Check(ctx context.Context) error

	// Connected reports whether there is a connection to the broker. It does no I/O.
	Connected() bool

	// Run publishes the batches that it receives until ctx ends or batches is
	// closed. It may leave batches waiting while the broker is away. It does not
	// repeat: an event that failed comes again in a later batch.
	//
	// For each message that it received it calls settle once, from any goroutine:
	// with the class Stored after the broker stored the event durably, otherwise
	// with what went wrong. settle does not block. After Run returned it is not
	// called. An error of Run that matches [postroom.ErrUnrecoverable] ends the relay, any
	// other is retried. Run returns [ErrReconnected] when its connection broke and is
	// back: the relay then looks whether the broker has what it had.
	Run(ctx context.Context, batches <-chan []*Message, settle func(m *Message, o Outcome)) error

	Inspector
	Verifier
	AtomicPublisher
}

// Inspector looks at where events are stored.
type Inspector interface {
	// Inspect examines the streams of the given names or, without names, those
	// that take the given subjects. Each fault is an error of its own. One that has a
	// [Risk] in its tree can be accepted; one that matches [postroom.ErrUnrecoverable] keeps a
	// relay from its first term, and one that matches [ErrNoStream] or [ErrFull] is waited for.
	// covered reports whether any of the subjects has a stream. err is an outage,
	// after which the faults are not all.
	Inspect(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error)
}

// Verifier tells what streams still have, so that the relay notices what the broker
// loses.
type Verifier interface {
	// Compare looks whether a stream still has what it had at a place. An error is an
	// outage: nothing can be told.
	Compare(ctx context.Context, at eventlog.Place) (StreamState, error)

	// ReadStored begins to read which events a stream has: up to a sequence, and from
	// another on or, where since is set, from that time on. next returns the next of
	// them, none at the end; stop ends the reading.
	ReadStored(ctx context.Context, stream string, span SeqRange) (next func(ctx context.Context) ([]StoredMessage, error), stop func(), err error)
}

// AtomicPublisher publishes in atomic batches: many events, which the broker stores
// together or not at all, under one acknowledgement.
type AtomicPublisher interface {
	// InspectAtomic examines streams as [Inspector] does with Inspect, and also for
	// what atomic batches need.
	InspectAtomic(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error)

	// RunAtomic publishes as [Publisher] does with Run, in atomic batches. What comes
	// after another term has begun is refused by the broker itself: then claim says so,
	// and RunAtomic returns its error.
	//
	// Events of a key that come together in a batch are stored in their order. Where
	// one of them is not stored, none after it is. These are settled with the class
	// [BlockedByKey] before the one that they wait for is settled; the others of a key are
	// settled in their order.
	RunAtomic(ctx context.Context, claim LeaderToken, batches <-chan []*Message, settle func(m *Message, o Outcome)) error
}

// LeaderToken is a term as a broker can tell it from others.
type LeaderToken struct {
	Instance string // the identity of the log
	Epoch    int64  // the number of the term, which only rises

	// Confirm returns nil where the term still leads, and an error that matches
	// [eventlog.ErrLeaseLost] where another has begun. It may be called concurrently.
	Confirm func(ctx context.Context) error
}

// Abilities are what a publisher can do beside publishing.
type Abilities struct {
	// Inspects reports whether Inspect looks at streams. Otherwise a relay does not
	// start unless [NotInspected] is accepted.
	Inspects bool

	// Verifies reports whether Compare and Stored tell what streams have. Otherwise a
	// relay does not start unless [NotVerified] is accepted.
	Verifies bool

	// Batches reports whether RunAtomic publishes atomic batches. Otherwise a relay
	// refuses to.
	Batches bool

	// Risks are those that Inspect may find and that an operator may accept.
	Risks []Risk
}

// Risk names something under which events are acknowledged and lost all the same, or not
// taken at all. A relay refuses it, unless its Config accepts it. A Risk is an error, for
// errors.Is.
type Risk string

// The risks of a publisher that cannot look at its streams.
const (
	// NotInspected: nobody looks whether streams keep what they acknowledge. A wrong
	// setting shows when events are gone.
	NotInspected Risk = "not-inspected"

	// NotVerified: nobody looks whether streams still have what they acknowledged. What
	// the broker loses is not noticed, and not published again.
	NotVerified Risk = "not-verified"
)

func (r Risk) Error() string { return string(r) }

// PublishOnly is embedded by a publisher that does nothing but publish. Its methods
// return errors that match [errors.ErrUnsupported], and its Abilities are none. A relay
// with such a publisher refuses to start unless [NotInspected] and [NotVerified] are
// accepted.
type PublishOnly struct{}

// Abilities returns none.
func (PublishOnly) Abilities() Abilities { return Abilities{} }

// Connected returns true: it cannot be told.
func (PublishOnly) Connected() bool { return true }

// Inspect fails.
func (PublishOnly) Inspect(context.Context, []string, []string) (covered bool, faults []error, err error) {
	return false, nil, errors.ErrUnsupported
}

// InspectAtomic fails.
func (PublishOnly) InspectAtomic(context.Context, []string, []string) (covered bool, faults []error, err error) {
	return false, nil, errors.ErrUnsupported
}

// RunAtomic fails.
func (PublishOnly) RunAtomic(context.Context, LeaderToken, <-chan []*Message, func(*Message, Outcome)) error {
	return errors.ErrUnsupported
}

// Compare fails.
func (PublishOnly) Compare(context.Context, eventlog.Place) (StreamState, error) {
	return StreamState{}, errors.ErrUnsupported
}

// ReadStored fails.
func (PublishOnly) ReadStored(context.Context, string, SeqRange) (next func(context.Context) ([]StoredMessage, error), stop func(), err error) {
	return nil, nil, errors.ErrUnsupported
}
