package natsjs

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/relay/broker"
)

// BrokerError is an error that JetStream returned.
type BrokerError struct {
	Code        int    // the API error code, for instance 10077
	Status      int    // an HTTP-like status, for instance 503
	Description string // the server's words
}

func (e *BrokerError) Error() string { return fmt.Sprintf("broker: %s (%d)", e.Description, e.Code) }

// failure returns the outcome for an error.
func failure(err error) broker.Outcome {
	return broker.Outcome{Class: classify(err), Err: err, Reason: reasonOf(err)}
}

// codes has the classes of JetStream's API errors. The texts of the errors change from version to
// version, so the texts are not used.
var codes = map[int]broker.Class{
	10071: broker.Unknown, // the broker refused the fence, which only RunAtomic sends
	10158: broker.Unknown, // the same message id is being stored
	10164: broker.Unknown, // a message with the same fence is being stored
	10201: broker.Unknown, // a message of the batch is stored already

	10002: broker.Unavailable, // the account is full
	10008: broker.Unavailable, // no quorum
	10023: broker.Unavailable, // insufficient resources
	10035: broker.Unavailable, // account not found
	10039: broker.Unavailable, // JetStream is not enabled for the account
	10076: broker.Unavailable, // JetStream is not enabled on the server
	10077: broker.Unavailable, // the stream is full, or could not write
	10120: broker.Unavailable, // the account has no storage limits
	10210: broker.Unavailable, // too many batches in flight
	10211: broker.Unavailable, // too many publishes in flight

	//guard:a-sealed-stream-makes-no-event-dead = broker.Refused
	10109: broker.Unroutable, // the stream is sealed, so an operator must replace it

	10054: broker.Permanent, // the message is larger than the stream allows
	10097: broker.Permanent, // the headers are larger than 64 KiB
	10166: broker.Permanent, // the stream does not allow messages with a time to live
	10188: broker.Permanent, // the stream allows no scheduled messages
}

// classify returns the class of an error of the broker or the client.
func classify(err error) broker.Class {
	var refused *BrokerError
	switch {
	case err == nil:
		return broker.Stored
	case errors.As(err, &refused):
		if class, ok := codes[refused.Code]; ok {
			return class
		}
		if refused.Status == 409 || refused.Status == 429 || refused.Status >= 500 {
			return broker.Unavailable
		}
		return broker.Refused
	case errors.Is(err, postroom.ErrInvalidEvent),
		errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadHeaderMsg), errors.Is(err, nats.ErrBadSubject):
		return broker.Permanent
	case errors.Is(err, broker.ErrNoStream), errors.Is(err, broker.ErrNotAllowed):
		return broker.Unroutable
	case errors.Is(err, broker.ErrNoLeader):
		return broker.Unavailable
	}
	return broker.Unknown
}

// reasonOf returns one word for an error, for metrics and the table held. It returns "" if
// the class of the outcome says enough.
func reasonOf(err error) string {
	var refused *BrokerError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		return fmt.Sprintf("js_%d", refused.Code)
	case errors.Is(err, broker.ErrNotAllowed):
		return "permission"
	case errors.Is(err, broker.ErrNoStream):
		return "no_stream"
	case errors.Is(err, broker.ErrNoLeader):
		return "no_responders"
	case errors.Is(err, postroom.ErrInvalidEvent):
		return "invalid_event"
	case errors.Is(err, postroom.ErrEventConflict):
		return "conflict"
	case errors.Is(err, nats.ErrMaxPayload):
		return "max_payload"
	case errors.Is(err, nats.ErrBadHeaderMsg):
		return "bad_header"
	case errors.Is(err, nats.ErrBadSubject):
		return "bad_subject"
	case errors.Is(err, errLostCopy):
		return "lost_copy"
	case errors.Is(err, nats.ErrDisconnected):
		return "disconnected"
	case errors.Is(err, broker.ErrUnacknowledged):
		return "publish_timeout"
	}
	return ""
}

// copyOf says which copy of the event is sent. Each copy of an event has its own message id.
func copyOf(m *broker.Message) wire.Copy {
	return wire.Copy{Replays: m.Replays, RepublishID: m.RepublishID, Lost: m.LostSeq}
}
