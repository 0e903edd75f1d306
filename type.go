package postroom

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Type is an event type together with the Go type T of its data. Producers and consumers that use the
// same Type cannot confuse the data of two event types:
//
//	var OrderPlaced = postroom.NewType("order.placed", func(o Order) string { return o.ID })
//
//	shop.Write(ctx, tx, OrderPlaced.New(order))                                                // producer
//	in.Handle(inbox.Subscription{Name: "billing", Stream: "SHOP"}, OrderPlaced.Handler(charge)) // consumer
//
// The data is JSON. A Type is a value, and safe for concurrent use. Its zero value is no valid type.
// For types of other programs, and for a handler of many types, use [NewEvent], [Mux.On] and [JSON].
type Type[T any] struct {
	name   string
	key    func(T) string
	strict bool
}

// NewType returns a type of the given name. The function key returns the key of an event, for instance
// the number of its order. If key is nil or returns "", an event has no key, and so no order. NewType
// panics if the name is no valid [Event.Type]: that is a fault of the program.
func NewType[T any](name string, key func(T) string) Type[T] {
	if name == "" || subjectProblem(name) != "" {
		panic(fmt.Sprintf("postroom: NewType: %q is no event type", name))
	}
	return Type[T]{name: name, key: key}
}

// Name returns the name of the type, which is the [Event.Type] of its events.
func (t Type[T]) Name() string { return t.name }

// Strict returns the same type, but with [Type.Decode] and handlers that refuse data with fields that
// T lacks, at any depth. A producer can then not add a field before all consumers know it. A type with
// a method UnmarshalJSON decides itself.
func (t Type[T]) Strict() Type[T] {
	t.strict = true
	return t
}

// New returns an event with the given data: see [NewEvent].
func (t Type[T]) New(data T) Event {
	ev := NewEvent(t.name, data)
	if t.key != nil {
		ev.Key = t.key(data)
	}
	return ev
}

// Follow returns a new event that cause caused: see [Event.Follow]. Its key is that of the type, or
// the key of cause if the type has no function for the key.
func (t Type[T]) Follow(cause Event, data T) Event {
	ev := cause.Follow(t.name, data)
	//guard:an-event-that-follows-has-its-own-key false
	if t.key != nil {
		ev.Key = t.key(data)
	}
	return ev
}

// Decode returns the data of ev, for a handler that gets the event alone, such as an external one.
// For an event of another type it returns [ErrUnknownType]. Any other error is [Permanent], as that
// of [Event.JSON].
func (t Type[T]) Decode(ev Event) (T, error) {
	var data T
	//guard:a-type-decodes-no-other-type false
	if ev.Type != t.name {
		return data, fmt.Errorf("%w %q: want %q", ErrUnknownType, clip(ev.Type), t.name)
	}
	err := decode(ev, &data, t.strict)
	return data, err
}

// Handler returns a [Handler] for events of this type. It decodes the data, and then calls f. If the
// data does not decode, the error is [Permanent]: see [Event.JSON]. The handler knows its type, so its
// subscription needs no Types. Handler panics if f is nil.
func (t Type[T]) Handler(f func(ctx context.Context, tx pgx.Tx, ev Event, data T) error) TypedHandler {
	if f == nil {
		panic(fmt.Sprintf("postroom: Type.Handler: no function for %q", t.name))
	}
	m := &Mux{}
	m.On(t.name, HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev Event) error {
		data, err := t.Decode(ev)
		if err != nil {
			return err
		}
		return f(ctx, tx, ev, data)
	}))
	return m
}
