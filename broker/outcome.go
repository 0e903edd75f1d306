package broker

import (
	"errors"
	"fmt"

	"github.com/postroom/postroom"
)

var (
	// ErrUnacknowledged means that no acknowledgement came: time ran out, or the
	// connection broke. The broker may have the event or not.
	ErrUnacknowledged = errors.New("no acknowledgement from the broker")

	// ErrNoStream means that no stream takes the event's subject.
	ErrNoStream = errors.New("no stream takes the event's subject; create it with 'postroom stream ensure' or natsjs.EnsureStream")

	// ErrNoLeader means that a stream takes the event's subject but does not answer: it
	// has no leader at the moment.
	ErrNoLeader = errors.New("the stream of the event's subject does not answer")

	// ErrFull means that a stream or its account has no room for events. The events wait
	// in the log.
	ErrFull = errors.New("there is no room for events, they wait")

	// ErrNotAllowed means that the connection's user may not publish to the event's
	// subject. Grant it, or connect as another user.
	ErrNotAllowed = errors.New("not allowed to publish to the event's subject")

	// ErrReconnected ends a Run when a broken connection is back. The broker may have
	// lost messages meanwhile, so the relay compares the streams first.
	ErrReconnected = errors.New("connected to the broker again")

	// ErrBlockedByKey is the error of an outcome of the class [BlockedByKey].
	ErrBlockedByKey = errors.New("an earlier event of its key was not stored")
)

// Class is what an outcome means for an event.
type Class int

// The classes of outcomes, and what the relay does. Only Refused and Permanent count as
// attempts.
const (
	// Stored: the broker has the event.
	Stored Class = iota

	// Unknown: the broker may have the event or not. The relay publishes it again, with
	// the same id, until it knows.
	Unknown

	// Unavailable: the stream cannot take the event now. The event waits. If other events
	// of the stream are stored meanwhile, it waits in held.
	Unavailable

	// Unroutable: no stream takes the event, or this user may not publish it. The event
	// waits as for Unavailable, until an operator fixes that.
	Unroutable

	// Refused: the broker refused this event, for a reason that may pass. If other events
	// are stored meanwhile, the relay retries it from held, and it is dead when it has no
	// attempts left.
	Refused

	// Permanent: the broker will never take this event. The event is dead at once.
	Permanent

	// BlockedByKey: an earlier event of its key in the same atomic batch was not stored.
	// The event waits behind that one. Only RunAtomic reports this class.
	BlockedByKey
)

// Outcome is what became of one publish.
type Outcome struct {
	Class     Class
	Duplicate bool   // the broker had the event already
	Stream    string // the stream that takes the event's subject; empty if that is not known
	Sequence  uint64 // for Stored: the event's sequence in that stream; zero if the stream removed it since
	Err       error  // what went wrong; nil for Stored

	// Reason is one word for Err, from a small fixed set, for metrics and operators. It may
	// be empty if Class or an error of this package says it all.
	Reason string
}

func (c Class) String() string {
	names := [...]string{"stored", "unknown", "unavailable", "unroutable", "refused", "permanent", "blocked_by_key"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Class(%d)", int(c))
	}
	return names[c]
}

// ErrorType returns the word for what went wrong that metrics and the table held use:
// Reason or, if that is empty, a word for Class and Err. It is empty if Err is nil.
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
