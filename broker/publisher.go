// Package broker is the port between a relay and the broker that it publishes to: the
// interfaces, and the types that pass through them. Package natsjs implements it for NATS
// JetStream. An implementation for another broker needs this package, package eventlog and
// the root package, and no other package of this module.
package broker

import (
	"context"
	"errors"

	"github.com/postroom/postroom/eventlog"
)

// Publisher sends events to a broker. No method is optional: a publisher that can only
// publish embeds [PublishOnly], and Abilities says what it can do.
//
// All methods may be called concurrently, except that only one Run or RunAtomic runs at a
// time.
type Publisher interface {
	// Abilities returns what the publisher can do besides publishing. It does no I/O.
	Abilities() Abilities

	// Check reports whether the publisher can publish. An error that
	// matches [postroom.ErrUnrecoverable] is a fault of the set-up, any other an outage.
	Check(ctx context.Context) error

	// Connected reports whether there is a connection to the broker. It does no I/O.
	Connected() bool

	// Run publishes the batches that it receives until ctx ends or batches is closed. It
	// may stop receiving while the broker is away. It does not retry: the relay sends a
	// failed event again in a later batch.
	//
	// For each message that it received it calls report once, from any goroutine: with
	// the class Stored after the broker stored the event durably, otherwise with what
	// went wrong. report does not block. After Run returned, report is not
	// called. An error of Run that matches [postroom.ErrUnrecoverable] ends the relay, any
	// other is retried. Run returns [ErrReconnected] when its connection broke and is
	// back: the relay then checks whether the broker lost messages.
	Run(ctx context.Context, batches <-chan []*Message, report func(m *Message, o Outcome)) error

	Inspector
	Verifier
	AtomicPublisher
}

// Inspector examines the configuration of streams.
type Inspector interface {
	// Inspect examines the streams with the given names or, without names, those that take
	// the given subjects. Each fault is an error of its own:
	//
	//   - If a [Risk] is in its tree, the relay's Config can accept it.
	//   - If it matches [postroom.ErrUnrecoverable], the relay does not start.
	//   - If it matches [ErrNoStream] or [ErrFull], the relay waits until it is gone.
	//
	// covered reports whether any of the subjects has a stream. err is an outage; the faults
	// may then be incomplete.
	Inspect(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error)
}

// Verifier says which messages streams still have, so that the relay notices if the broker
// loses some.
type Verifier interface {
	// Compare reports whether a stream still has the message at a position. An error is an
	// outage: the comparison said nothing.
	Compare(ctx context.Context, at eventlog.StreamPosition) (StreamState, error)

	// ReadStored begins to read which events a stream has in a range. next returns the
	// next of them, and none at the end. Call stop when you are done.
	ReadStored(ctx context.Context, stream string, within SeqRange) (next func(ctx context.Context) ([]StoredMessage, error), stop func(), err error)
}

// AtomicPublisher publishes in atomic batches: the broker stores all events of a batch or
// none, and sends one acknowledgement for all.
type AtomicPublisher interface {
	// InspectAtomic does what Inspect of [Inspector] does, and also examines what atomic
	// batches need.
	InspectAtomic(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error)

	// RunAtomic does what Run of [Publisher] does, in atomic batches. As soon as another
	// term has begun, the broker refuses what this term sends: then token.Confirm returns
	// an error, and RunAtomic returns it.
	//
	// Events of a key that come together in a batch are stored in their order. If one of
	// them is not stored, none after it is. RunAtomic reports these with the class
	// [BlockedByKey], and does so before it reports the one that they wait for. It reports
	// the other events of a key in their order.
	RunAtomic(ctx context.Context, token LeaderToken, batches <-chan []*Message, report func(m *Message, o Outcome)) error
}

// LeaderToken distinguishes one term of a leader from all others of the same log.
type LeaderToken struct {
	Instance string // the identity of the log
	Epoch    int64  // the number of the term, which only rises

	// Confirm returns nil if the term still leads, and an error that matches
	// [eventlog.ErrLeaseLost] if another one has begun. It may be called concurrently.
	Confirm func(ctx context.Context) error
}

// Abilities are what a publisher can do besides publishing.
type Abilities struct {
	// Inspects reports whether Inspect examines streams. If not, a relay does not
	// start unless [NotInspected] is accepted.
	Inspects bool

	// Verifies reports whether Compare and ReadStored say what streams have. If not, a
	// relay does not start unless [NotVerified] is accepted.
	Verifies bool

	// Batches reports whether RunAtomic publishes atomic batches. If not, a relay refuses
	// to start with Config.Atomic.
	Batches bool

	// Risks are the risks that Inspect may find and that an operator may accept.
	Risks []Risk
}

// Risk names a setting of a stream with which the broker loses events that it has
// acknowledged, or takes none. A relay does not start with it, unless its Config accepts
// it. A Risk is an error, for errors.Is.
type Risk string

// The risks of a publisher that cannot look at its streams.
const (
	// NotInspected: the relay cannot check whether the streams keep what they acknowledge. A wrong
	// setting shows only when events are gone.
	NotInspected Risk = "not-inspected"

	// NotVerified: the relay cannot check whether streams still have what they acknowledged.
	// If the broker loses events, the relay does not notice and does not publish them again.
	NotVerified Risk = "not-verified"
)

func (r Risk) Error() string { return string(r) }

// PublishOnly is embedded by a publisher that can only publish. Its methods
// return errors that match [errors.ErrUnsupported], and its Abilities are none. A relay
// with such a publisher refuses to start unless [NotInspected] and [NotVerified] are
// accepted.
type PublishOnly struct{}

// Abilities returns none.
func (PublishOnly) Abilities() Abilities { return Abilities{} }

// Connected returns true: such a publisher cannot know better.
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
func (PublishOnly) Compare(context.Context, eventlog.StreamPosition) (StreamState, error) {
	return StreamState{}, errors.ErrUnsupported
}

// ReadStored fails.
func (PublishOnly) ReadStored(context.Context, string, SeqRange) (next func(context.Context) ([]StoredMessage, error), stop func(), err error) {
	return nil, nil, errors.ErrUnsupported
}
