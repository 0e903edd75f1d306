package relay

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
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

	// Behind: an earlier event of its key, which was to be stored with it, was not. It
	// waits behind that one. Only a [Batcher] says so.
	Behind
)

// Outcome is what became of one publish.
type Outcome struct {
	Class     Class
	Duplicate bool   // the broker had the event already
	Stream    string // the stream that has the event's subject; empty where that is not known
	Sequence  uint64 // of the event in that stream, for Stored; zero where the stream has removed it since
	Err       error  // what went wrong; nil for Stored
}

// codes are the classes of JetStream's API errors. None is told by its text,
// which changes from version to version.
var codes = map[int]Class{
	10071: Unknown, // a fence of the message does not hold; none is sent with it
	10158: Unknown, // the same message id is being stored
	10164: Unknown, // a message with the same fence is being stored
	10201: Unknown, // part of a batch is stored

	10002: Unavailable, // the account is full
	10008: Unavailable, // no quorum
	10023: Unavailable, // insufficient resources
	10035: Unavailable, // account not found
	10039: Unavailable, // JetStream is not enabled for the account
	10076: Unavailable, // JetStream is not enabled on the server
	10077: Unavailable, // the stream is full, or could not write
	10120: Unavailable, // the account has no limits to store within
	10210: Unavailable, // too many batches in flight
	10211: Unavailable, // too many publishes in flight

	10054: Permanent, // larger than the stream allows
	10097: Permanent, // headers larger than 64 KiB
	10166: Permanent, // the stream allows no time to live of a message
	10188: Permanent, // the stream allows no scheduled messages
}

// classify returns the class of an error of the broker or the client.
func classify(err error) Class {
	var refused *BrokerError
	switch {
	case err == nil:
		return Stored
	case errors.As(err, &refused):
		if class, ok := codes[refused.Code]; ok {
			return class
		}
		if refused.Status == 409 || refused.Status == 429 || refused.Status >= 500 {
			return Unavailable
		}
		return Refused
	case errors.Is(err, postroom.ErrInvalidEvent),
		errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadHeaderMsg), errors.Is(err, nats.ErrBadSubject):
		return Permanent
	case errors.Is(err, ErrNoStream), errors.Is(err, ErrNotAllowed):
		return Unroutable
	case errors.Is(err, ErrNoLeader):
		return Unavailable
	}
	return Unknown
}

// class returns the class of the outcome's error as metrics and held tell it:
// one of a closed set.
func (o Outcome) class() string {
	var refused *BrokerError
	switch {
	case o.Err == nil:
		return ""
	case errors.As(o.Err, &refused):
		return fmt.Sprintf("js_%d", refused.Code)
	case errors.Is(o.Err, ErrNotAllowed):
		return "permission"
	case errors.Is(o.Err, ErrNoStream):
		return "no_stream"
	case errors.Is(o.Err, ErrNoLeader):
		return "no_responders"
	case errors.Is(o.Err, postroom.ErrInvalidEvent):
		return "invalid_event"
	case errors.Is(o.Err, nats.ErrMaxPayload):
		return "max_payload"
	case errors.Is(o.Err, nats.ErrBadHeaderMsg):
		return "bad_header"
	case errors.Is(o.Err, nats.ErrBadSubject):
		return "bad_subject"
	case errors.Is(o.Err, errLostCopy):
		return "lost_copy"
	case errors.Is(o.Err, nats.ErrDisconnected):
		return "disconnected"
	case errors.Is(o.Err, ErrUnacknowledged):
		return "publish_timeout"
	case o.Class == Behind:
		return "behind"
	case o.Class == Permanent:
		return "permanent"
	case o.Class == Refused:
		return "refused"
	}
	return "_OTHER"
}

func (c Class) String() string {
	names := [...]string{"stored", "unknown", "unavailable", "unroutable", "refused", "permanent", "behind"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Class(%d)", int(c))
	}
	return names[c]
}
