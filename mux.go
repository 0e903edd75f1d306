package postroom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Mux is a [Handler] that passes each event to the handler of its type. [NewMux] makes one of typed
// handlers. The zero value is ready to use. Register all handlers before you give the Mux to an inbox.
// From then on a Mux is safe for concurrent use.
type Mux struct {
	handlers map[string]Handler
}

// TypedHandler is a [Handler] that knows the types of its events, such as a handler of
// [Type.Handler], a [Mux] or a saga.
type TypedHandler interface {
	Handler
	Types() []string
}

// NewMux returns a Mux of handlers that know their types. It panics if two handlers have the same
// type, or if a handler is nil or has no types: these are faults of the program. Later types of a
// handler are not added. [Mux.On] adds handlers that do not know their types.
func NewMux(handlers ...TypedHandler) *Mux {
	m := &Mux{}
	for i, h := range handlers {
		if h == nil || len(h.Types()) == 0 {
			panic(fmt.Sprintf("postroom: NewMux: handler %d of %d is nil or has no types", i+1, len(handlers)))
		}
		for _, t := range h.Types() {
			m.On(t, h)
		}
	}
	return m
}

// Handle passes ev to the handler of its type. For an unknown type it returns [ErrUnknownType].
// This error is not permanent, because a newer version of this process may know the type. It does
// not count as a failure of the inbox's handler, so it never makes the handler pause.
func (m *Mux) Handle(ctx context.Context, tx pgx.Tx, ev Event) error {
	h, ok := m.handlers[ev.Type]
	if !ok {
		return fmt.Errorf("%w %q", ErrUnknownType, ev.Type)
	}
	return h.Handle(ctx, tx, ev)
}

// On registers h for an event type. It panics if the type is not valid, if it has a
// handler already, or if h is nil: these are faults of the program.
func (m *Mux) On(eventType string, h Handler) {
	if eventType == "" || subjectProblem(eventType) != "" {
		panic(fmt.Sprintf("postroom: Mux: %q is no event type", eventType))
	}
	if h == nil {
		panic(fmt.Sprintf("postroom: Mux: no handler for %q", eventType))
	}
	if _, ok := m.handlers[eventType]; ok {
		panic(fmt.Sprintf("postroom: Mux: a second handler for %q", eventType))
	}
	if m.handlers == nil {
		m.handlers = make(map[string]Handler)
	}
	m.handlers[eventType] = h
}

// Types returns the registered event types, sorted. A subscription without Types takes them from
// here.
func (m *Mux) Types() []string {
	return slices.Sorted(maps.Keys(m.handlers))
}

// Check calls the method Check of each handler that has this method, and returns all faults. If one
// pointer is the handler of several types, Mux.Check calls the method once. The inbox calls
// Mux.Check.
func (m *Mux) Check(ctx context.Context) error {
	var faults []error
	var asked []Handler
	for _, eventType := range m.Types() {
		h := m.handlers[eventType]
		c, ok := h.(interface {
			Check(ctx context.Context) error
		})
		if !ok || slices.ContainsFunc(asked, func(other Handler) bool { return isSame(h, other) }) {
			continue
		}
		asked = append(asked, h)
		if err := c.Check(ctx); err != nil {
			faults = append(faults, fmt.Errorf("handler of %s: %w", eventType, err))
		}
	}
	return errors.Join(faults...)
}

// CheckSubscription returns an error if the subscription has types for which the Mux has no handler.
// It also calls the method CheckSubscription of each handler that has this method, with the types of
// that handler. The inbox calls Mux.CheckSubscription.
func (m *Mux) CheckSubscription(types []string, order string) error {
	var faults []error
	//guard:a-mux-has-the-types-of-its-subscription remove
	for _, t := range types {
		if _, ok := m.handlers[t]; !ok {
			faults = append(faults, fmt.Errorf("the subscription has type %s, for which there is no handler", t))
		}
	}
	var asked []Handler
	for _, eventType := range m.Types() {
		h := m.handlers[eventType]
		c, ok := h.(subscriptionChecker)
		if !ok || slices.ContainsFunc(asked, func(other Handler) bool { return isSame(h, other) }) {
			continue
		}
		asked = append(asked, h)
		var own []string
		if types != nil {
			own = []string{}
		}
		for _, t := range types {
			if isSame(m.handlers[t], h) {
				own = append(own, t)
			}
		}
		if err := c.CheckSubscription(own, order); err != nil {
			faults = append(faults, fmt.Errorf("handler of %s: %w", eventType, err))
		}
	}
	return errors.Join(faults...)
}

// isSame reports whether two handlers are the same pointer or equal values. It returns false for
// values that Go cannot compare.
func isSame(a, b Handler) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && a != nil && reflect.ValueOf(a).Comparable() && a == b
}
