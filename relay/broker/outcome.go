package broker

import (
	"errors"
	"fmt"

	"github.com/postroom/postroom"
)

var (
	// ErrUnacknowledged means that no acknowledgement came in time, or the connection
	// broke. The broker may or may not have the event.
	ErrUnacknowledged = errors.New("no acknowledgement from the broker")

	// ErrNoStream means that no stream takes the event's subject.
	ErrNoStream = errors.New("no stream takes the event's subject; create it with 'postroom stream ensure' or natsjs.EnsureStream")

	// ErrNoLeader means that a stream takes the event's subject but does not answer,
	// because the stream has no leader at the moment.
	ErrNoLeader = errors.New("the stream of the event's subject does not answer")

	// ErrFull means that a stream or its account has no room for more events. The events
	// wait in the log.
	ErrFull = errors.New("there is no room for events, they wait")

	// ErrNotAllowed means that the connection's user may not publish to the event's subject. Grant
	// the user that right, or connect as another user.
	ErrNotAllowed = errors.New("not allowed to publish to the event's subject")

	// ErrReconnected means that a broken connection was restored. Run returns it, because the
	// broker may have lost messages. The relay checks the streams for losses before it publishes.
	ErrReconnected = errors.New("connected to the broker again")

	// ErrBlockedByKey is the error of an outcome of the class [BlockedByKey].
	ErrBlockedByKey = errors.New("an earlier event of its key was not stored")
)

// Class says what an outcome means for an event.
type Class int

// The classes of outcomes, and what the relay does. Only Refused and Permanent count as
// attempts.
const (
	// Unknown means that the broker may or may not have the event. The relay publishes
	// the event again, with the same message id, until it knows the outcome. It is the zero value, so
	// that a class that a publisher forgot to set loses no event.
	Unknown Class = iota

	// Stored means that the broker has the event. The relay takes it for Unknown if the Outcome has
	// an Err.
	Stored

	// Unavailable means that the stream cannot take the event now. The event waits. If other events
	// of the stream are stored meanwhile, it waits in the table held.
	Unavailable

	// Unroutable means that no stream takes the event (it may be sealed), or that the user may not
	// publish it. The event waits, as with Unavailable, until an operator corrects the fault.
	Unroutable

	// Refused means that the broker refused this event now, but may take it later. If the broker
	// takes other events meanwhile, the relay moves the event to the table held and tries it again
	// from there. The event is dead when it has no attempts left.
	Refused

	// Permanent means that the broker will never take this event. The event is dead at
	// once.
	Permanent

	// BlockedByKey means that an earlier event of its key in the same atomic batch was
	// not stored. The event waits behind that earlier event. Only RunAtomic reports this
	// class.
	BlockedByKey
)

// Outcome is the result of one publish. The zero value says that the broker may or may not have the
// event, so the relay publishes it again.
type Outcome struct {
	Class     Class
	Duplicate bool   // the broker had the event already
	Stream    string // the stream that takes the event's subject; empty if that is not known
	Sequence  uint64 // for Stored: the event's sequence in that stream; zero if the stream has removed the event
	Err       error  // what went wrong; nil for Stored

	// Reason is one word for Err, from a small fixed set, for metrics and operators. It may be
	// empty if Class says enough, or if Err is an error of this package.
	Reason string
}

func (c Class) String() string {
	names := [...]string{"unknown", "stored", "unavailable", "unroutable", "refused", "permanent", "blocked_by_key"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Class(%d)", int(c))
	}
	return names[c]
}

// ErrorType returns one word for what went wrong, for metrics and the table held: Reason
// or, if that is empty, a word for Class and Err. It returns "" if Err is nil.
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
