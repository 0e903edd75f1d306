// Package broker is the port between a relay and the broker that it publishes to: the
// interfaces, and the types that pass through them. Package natsjs implements it for NATS
// JetStream. An implementation for another broker needs this package and the root package, and no
// other package of this module.
package broker

import (
	"context"
	"errors"
)

// Publisher sends events to a broker, examines the streams' configuration, and says which messages
// the streams still have, so that the relay notices if the broker loses messages. Abilities says which
// methods work.
//
// Each publisher embeds [PublishOnly], which has all methods except Check and Run. So a later version
// of this package can add a method, and the publishers of other packages still compile.
//
// All methods may be called concurrently, except that only one Run or RunAtomic runs at a
// time.
type Publisher interface {
	// Abilities returns what the publisher can do besides publishing. It does no I/O.
	Abilities() Abilities

	// Check returns nil if the publisher can publish. An error that matches
	// [postroom.ErrUnrecoverable] is a fault of the set-up. Any other error is an outage.
	Check(ctx context.Context) error

	// Connected reports whether there is a connection to the broker. It does no I/O.
	Connected() bool

	// Run publishes the batches that it receives, until ctx ends or the channel batches is closed.
	// It may stop receiving while the broker is unavailable. It does not retry: the relay sends a
	// failed event again in a later batch.
	//
	// Run calls the function report at most once for each message that it received, from any
	// goroutine. Run reports the class Stored after the broker stored the event durably, and
	// otherwise what went wrong. If the broker has another event with the same source and id, and with
	// other content, Run reports the class Permanent, because the event is not stored. The function
	// report does not block. No goroutine may call report after Run has returned, even if some
	// messages have no outcome yet. If the error of Run matches [postroom.ErrUnrecoverable], the
	// relay ends. After any other error, the relay calls Run again. Run returns [ErrReconnected]
	// after a broken connection was restored. The relay then checks whether the broker lost
	// messages.
	Run(ctx context.Context, batches <-chan []*Message, report func(m *Message, o Outcome)) error

	// Inspect examines the streams with the given names. If there are no names, it examines the
	// streams that take the given subjects. Each fault is an error of its own:
	//
	//   - If the error wraps a [Risk] that Abilities lists, the relay's Config can accept the risk.
	//   - If it matches [postroom.ErrUnrecoverable], the relay does not start.
	//   - If it matches [ErrNoStream] or [ErrFull], the relay waits until the fault is
	//     gone.
	//
	// The result covered reports whether any of the subjects has a stream. If err is not nil, there
	// is an outage, and the result faults may be incomplete.
	Inspect(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error)

	// Compare reports whether a stream still has the message at a position. An error is an
	// outage, and says nothing about the message.
	Compare(ctx context.Context, at StreamPosition) (StreamState, error)

	// ReadStored begins to read which events a stream has in a range. Each call of the function
	// next returns more events, at the end none. Call stop after the last call of next.
	ReadStored(ctx context.Context, stream string, within SeqRange) (next func(ctx context.Context) ([]StoredMessage, error), stop func(), err error)

	// StoredDigest returns the digest of the content of a message, as the log computes it for an event
	// with the given subject. It returns nil if the stream does not have the message, or if the
	// message is not an event.
	StoredDigest(ctx context.Context, stream string, seq uint64, subject string) ([]byte, error)

	// InspectAtomic does what Inspect does, and also examines what atomic batches need.
	InspectAtomic(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error)

	// RunAtomic does what Run does, in atomic batches: the broker stores all events of a batch or
	// none, and sends one acknowledgement for the batch. When another term has begun, the broker
	// refuses the batches of this term. token.Confirm then returns an error, and RunAtomic returns
	// that error.
	//
	// Events of a key in the same batch are stored in their order. If one of them is not
	// stored, the later events of its key are not stored either. RunAtomic reports these
	// later events with the class [BlockedByKey], before it reports the event that they
	// wait for. It reports all other events of a key in their order.
	RunAtomic(ctx context.Context, token LeaderToken, batches <-chan []*Message, report func(m *Message, o Outcome)) error

	mustEmbedPublishOnly()
}

// LeaderToken distinguishes one term from all other terms of the same log.
type LeaderToken struct {
	Instance string // the identity of the log
	Epoch    int64  // the number of the term, which is higher for each later term

	// Confirm returns nil if the term still leads. If another term has begun, it returns an error,
	// which RunAtomic returns. It may be called concurrently.
	Confirm func(ctx context.Context) error
}

// Abilities are what a publisher can do besides publishing.
type Abilities struct {
	// Inspects reports whether Inspect examines streams. If it is false, a relay starts
	// only if its Config accepts [NotInspected].
	Inspects bool

	// Verifies reports whether Compare and ReadStored say what streams have. If it is
	// false, a relay starts only if its Config accepts [NotVerified].
	Verifies bool

	// Batches reports whether RunAtomic publishes atomic batches. If it is false, a relay
	// with Config.Atomic does not start.
	Batches bool

	// Risks are the risks that Inspect may find and that an operator may accept.
	Risks []Risk
}

// Risk names a danger for events, such as a setting of a stream that lets the broker lose
// acknowledged events. A relay does not start if there is a risk that its Config does not accept. A
// Risk is an error, so that errors.Is finds it.
type Risk string

// The risks of a publisher that cannot examine its streams.
const (
	// NotInspected means that the relay cannot check whether the streams keep what they
	// acknowledge. An operator notices a wrong setting only when events are gone.
	NotInspected Risk = "not-inspected"

	// NotVerified means that the relay cannot check whether streams still have what they
	// acknowledged. If the broker loses events, the relay does not notice that and does not
	// publish them again.
	NotVerified Risk = "not-verified"
)

func (r Risk) Error() string { return string(r) }

// PublishOnly has all methods of a [Publisher] except Check and Run. Embed it in each publisher, and
// add the methods of what the publisher can do besides publishing. Abilities returns no ability, and Connected returns true. The other methods
// return errors that match [errors.ErrUnsupported]. A relay with such a publisher starts only if
// its Config accepts [NotInspected] and [NotVerified].
type PublishOnly struct{}

// Abilities returns the zero value: no ability.
func (PublishOnly) Abilities() Abilities { return Abilities{} }

// Connected returns true, because such a publisher does not know whether there is a connection.
func (PublishOnly) Connected() bool { return true }

// Inspect returns an error.
func (PublishOnly) Inspect(context.Context, []string, []string) (covered bool, faults []error, err error) {
	return false, nil, errors.ErrUnsupported
}

// InspectAtomic returns an error.
func (PublishOnly) InspectAtomic(context.Context, []string, []string) (covered bool, faults []error, err error) {
	return false, nil, errors.ErrUnsupported
}

// RunAtomic returns an error.
func (PublishOnly) RunAtomic(context.Context, LeaderToken, <-chan []*Message, func(*Message, Outcome)) error {
	return errors.ErrUnsupported
}

// Compare returns an error.
func (PublishOnly) Compare(context.Context, StreamPosition) (StreamState, error) {
	return StreamState{}, errors.ErrUnsupported
}

// ReadStored returns an error.
func (PublishOnly) ReadStored(context.Context, string, SeqRange) (next func(context.Context) ([]StoredMessage, error), stop func(), err error) {
	return nil, nil, errors.ErrUnsupported
}

// StoredDigest returns an error.
func (PublishOnly) StoredDigest(context.Context, string, uint64, string) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

func (PublishOnly) mustEmbedPublishOnly() {} //nolint:unused // Publisher has this method, so that each publisher embeds PublishOnly
