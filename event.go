package postroom

import (
	"time"

	"github.com/google/uuid"
)

// Event is one fact that a service announces: a set of CloudEvents 1.0 attributes and a body of
// bytes. The zero value of every field but Type is valid. [NewEvent] sets the fields that most
// events need.
//
// An Event is a value, but its copies share Data and Headers. So a function that gets an Event must
// change neither Data nor Headers.
type Event struct {
	// ID identifies the event within its source (CloudEvents id). If a service writes an ID again
	// with the same content, nothing happens. With different content, the write returns
	// [ErrEventConflict]. An ID has at most [MaxID] bytes, without '#', white space and control
	// characters.
	//
	// NewEvent sets a UUIDv7 (RFC 9562). If ID is empty, the outbox sets one.
	ID string

	// Source names the service that wrote the event (CloudEvents source). If Source is empty, the
	// outbox sets it. Otherwise it must be the outbox's own source.
	Source string

	// Type says what happened, for instance "order.placed" (CloudEvents type). It has
	// tokens of letters, digits, '_' and '-', with dots between them, and at most
	// [MaxType] bytes. It must not begin with "postroom.lease.".
	Type string

	// Subject is the NATS subject to which the event is published. The rules of Type apply to it.
	// If Subject is empty, the outbox sets it to Type, so that the stream and the code use the same
	// word.
	Subject string

	// Key names the thing that the event is about, for instance an order by its number (CloudEvents
	// partitionkey). Events with the same key are published in order. The relay sends them one at a
	// time, or several in one atomic batch. Events without a key have no order. A key has at most
	// [MaxKey] bytes, without control characters.
	Key string

	// Time is when the event happened (CloudEvents time). If the outbox gets a zero Time, consumers
	// get LoggedAt as the Time of the event. Postroom uses Time for no decision.
	Time time.Time

	// NotBefore is the earliest time at which the event may be published, to the
	// microsecond, by the database's clock. Zero means at once. A scheduled event has no
	// order among the other events of its key.
	NotBefore time.Time

	// ContentType is the media type of Data (CloudEvents datacontenttype).
	// Empty means application/json. If it is a type of JSON, the outbox refuses Data that is not
	// JSON.
	ContentType string

	// Data is the body, at most [MaxData] bytes. It may be empty.
	Data []byte

	// Headers are the writer's own headers. They are sent unchanged. A name consists of
	// letters, digits, '-' and '_'. It must not be a name that has a meaning for the
	// broker, CloudEvents or Postroom (see [Event.Validate]).
	Headers map[string]string

	// CorrelationID is the same for all events of one business process. It is empty if no producer
	// set it. [Event.Follow] copies it to the new event. If it is empty, Follow gives the new event
	// the ID of this event as its CorrelationID.
	CorrelationID string

	// CausationID is the ID of the event that caused this event.
	CausationID string

	// TraceParent and TraceState are the W3C trace context in which the event
	// was written. The outbox takes them from the caller's context. TraceState counts only with
	// TraceParent, as W3C Trace Context (section 3.3) says.
	TraceParent, TraceState string

	// LoggedAt is when the event was written, by the clock of the producer's database. For a
	// scheduled event, LoggedAt is NotBefore if NotBefore is later. Events that were read from the
	// log or the broker have a LoggedAt. The outbox ignores LoggedAt.
	LoggedAt time.Time

	// The field fault is the error of NewEvent, or nil. Validate reports this error.
	fault error
}

// NewEvent returns an event of the given type with a UUIDv7 as its ID and data as JSON.
// If data does not marshal, [Event.Validate] reports that, and so does the outbox before
// it writes anything.
func NewEvent(eventType string, data any) Event {
	ev := Event{Type: eventType, ContentType: jsonType}
	id, err := uuid.NewV7()
	if err != nil {
		ev.fault = &codecError{problem: "needs an id: " + err.Error(), err: err}
		return ev
	}
	ev.ID = id.String()
	ev.Data, ev.fault = encode(data)
	return ev
}

// Follow returns a new event that ev caused. It calls [NewEvent], and copies ev's key and
// correlation id. If ev has no correlation id, the new event's correlation id is the id of ev.
func (ev Event) Follow(eventType string, data any) Event {
	next := NewEvent(eventType, data)
	next.Key = ev.Key
	next.CausationID = ev.ID
	next.CorrelationID = ev.CorrelationID
	if next.CorrelationID == "" {
		next.CorrelationID = ev.ID
	}
	return next
}

// JSON decodes the data of ev into v. If that fails, the error is [Permanent]: the same
// bytes will not decode at the next attempt either.
//
// JSON also fails if the data says nothing about v, so that no zero value comes from data of another
// shape. If v points to a struct, the data must have at least one of its fields, with any value. The
// data may be {} if all fields have omitempty or omitzero, or belong to an embedded pointer. Null is
// refused, except for pointers, maps, slices and interfaces. Nothing of this concerns a struct without
// fields, a type with a method UnmarshalJSON, or the structs inside of v.
func (ev Event) JSON(v any) error { return decode(ev, v, false) }

// jsonType is the media type of an event with an empty ContentType.
const jsonType = "application/json"
