package postroom

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Handler applies one event.
//
// Handle runs inside tx, which also holds the record that ev was seen: both
// commit or neither does. It makes its effects through tx, must not commit or
// roll back tx, and must not use it after returning. It may be called
// concurrently, and it may be called again for an event whose earlier run did
// not commit.
//
// A nil error commits. Any other error rolls back and leads to another attempt
// later; [RetryAfter] says when, [Permanent] says that another attempt is
// hopeless.
//
// It is an interface so that a [Mux], a [HandlerFunc] and what a [Middleware]
// returns can stand in each other's place.
type Handler interface {
	Handle(ctx context.Context, tx pgx.Tx, ev Event) error
}

// HandlerFunc makes a function a [Handler].
type HandlerFunc func(ctx context.Context, tx pgx.Tx, ev Event) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, tx pgx.Tx, ev Event) error {
	return f(ctx, tx, ev)
}

// JSON makes a function of a typed payload a [Handler]: the data of the event
// is decoded into a T first. Data that does not decode is [Permanent].
func JSON[T any](f func(ctx context.Context, tx pgx.Tx, ev Event, payload T) error) Handler {
	return HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev Event) error {
		var payload T
		if err := ev.JSON(&payload); err != nil {
			return err
		}
		return f(ctx, tx, ev, payload)
	})
}

// Middleware wraps a handler, for instance to log or to set a deadline.
type Middleware func(next Handler) Handler

// Chain wraps h in the given middleware. The first one is outermost, so that
// they run in the order in which they are written.
func Chain(h Handler, middleware ...Middleware) Handler {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	return h
}
