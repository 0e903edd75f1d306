package broker

import (
	"errors"
	"fmt"

	"github.com/postroom/postroom"
)

var (
	// ErrUnacknowledged says that no acknowledgement came, because time ran out
	// or the connection broke. The event may be stored or not.
	ErrUnacknowledged = errors.New("no acknowledgement from the broker")

	// ErrNoStream says that no stream takes the event's subject.
	ErrNoStream = errors.New("no stream takes the event's subject; create it with 'postroom stream ensure' or natsjs.EnsureStream")

	// ErrNoLeader says that nobody answered on the subject, though a stream takes
	// it: the stream has no leader at the moment.
	ErrNoLeader = errors.New("the stream of the event's subject does not answer")

	// ErrFull says that a stream, or what it is stored in, has no room for events. They
	// wait until it has.
	ErrFull = errors.New("there is no room for events, they wait")

	// ErrNotAllowed says that the user of the connection may not publish to the
	// event's subject. Grant it, or connect as another user.
	ErrNotAllowed = errors.New("not allowed to publish to the event's subject")

	// ErrReconnected ends a Run when the connection is back after it broke: what the
	// broker had may not be there any more.
	ErrReconnected = errors.New("connected to the broker again")

	// ErrBlockedByKey is the error of an outcome of the class Behind.
	ErrBlockedByKey = errors.New("an earlier event of its key is not stored")
)

// Class is what an outcome means for an event.
type Class int

// The classes of outcomes, and what the relay does. Only Refused and Permanent
// are attempts.
const (
	// Stored: the broker has the event.
	Stored Class = iota

	// Unknown: it may have it or not. It is published again, with the same id,
	// for as long as it takes.
	Unknown

	// Unavailable: the stream cannot take an event now. It waits; and where other
	// events of the stream pass, it waits in held.
	Unavailable

	// Unroutable: no stream takes the event, or this user may not publish it. It
	// waits likewise, until an operator mends that.
	Unroutable

	// Refused: the broker said no to this event, for a reason that may pass. Where
	// others pass it is retried from held, and dead when its attempts are spent.
	Refused

	// Permanent: it will never take this event. The event is dead at once.
	Permanent

	// BlockedByKey: an earlier event of its key, which was to be stored with it, was not. It
	// waits behind that one. Only atomic batches end so.
	BlockedByKey
)

// Outcome is what became of one publish.
type Outcome struct {
	Class     Class
	Duplicate bool   // the broker had the event already
	Stream    string // the stream that has the event's subject; empty where that is not known
	Sequence  uint64 // of the event in that stream, for Stored; zero where the stream has removed it since
	Err       error  // what went wrong; nil for Stored

	// Reason is Err in a word of a closed set, which operators see; empty where the
	// class, or an error of this package, says it.
	Reason string
}

func (c Class) String() string {
	names := [...]string{"stored", "unknown", "unavailable", "unroutable", "refused", "permanent", "behind"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Class(%d)", int(c))
	}
	return names[c]
}

// ErrorType returns what went wrong as metrics and held tell it: Reason or, where that is
// empty, what Class and Err say.
func (o Outcome) ErrorType() string {
	switch {
	case o.Err == nil:
		return ""
	case o.Reason != "":
		return o.Reason
	case errors.Is(o.Err, ErrNotAllowed):
		return "permission"
	case errors.Is(o.Err, ErrNoStream):
		return "no_stream"
	case errors.Is(o.Err, ErrNoLeader):
		return "no_responders"
	case errors.Is(o.Err, postroom.ErrInvalidEvent):
		return "invalid_event"
	case errors.Is(o.Err, ErrUnacknowledged):
		return "publish_timeout"
	case o.Class == BlockedByKey, o.Class == Permanent, o.Class == Refused:
		return o.Class.String()
	}
	return "_OTHER"
}
