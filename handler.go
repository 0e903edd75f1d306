package postroom

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Handler applies one event.
//
// Handle runs inside tx. The inbox's record of ev is in tx as well, so both commit or
// neither does. Handle writes its effects with tx. It must not commit or roll back tx,
// and must not use tx after it returns. Handle may be called concurrently. If a run did
// not commit, Handle may be called again with the same event.
//
// A nil error commits. Any other error rolls back and leads to another attempt later.
// [RetryAfter] says when; [Permanent] says that another attempt would fail too.
//
// Handler is an interface because a [Mux], a [HandlerFunc] and the result of a
// [Middleware] are all handlers.
type Handler interface {
	Handle(ctx context.Context, tx pgx.Tx, ev Event) error
}

// HandlerFunc turns a function into a [Handler].
type HandlerFunc func(ctx context.Context, tx pgx.Tx, ev Event) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, tx pgx.Tx, ev Event) error {
	return f(ctx, tx, ev)
}

// JSON turns a function with a typed payload into a [Handler]. It decodes the event's
// data into a T first. If the data does not decode, the error is [Permanent].
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
//
// The result has the methods Check and Types if h has them: an inbox calls these. If
// several subscriptions use the handler, call Chain once and give all of them its result.
func Chain(h Handler, middleware ...Middleware) Handler {
	if len(middleware) == 0 {
		return h
	}
	c := &chain{Handler: h, wrapped: h}
	for i := len(middleware) - 1; i >= 0; i-- {
		c.Handler = middleware[i](c.Handler)
	}
	return c
}

// chain is a handler that is wrapped in middleware.
type chain struct {
	Handler         // with the middleware
	wrapped Handler // without
}

// Check asks the wrapped handler whether it could work, if it has that method.
func (c *chain) Check(ctx context.Context) error {
	if h, ok := c.wrapped.(interface {
		Check(ctx context.Context) error
	}); ok {
		return h.Check(ctx)
	}
	return nil
}

// Types returns the types that the wrapped handler handles, if it has that method.
func (c *chain) Types() []string {
	if h, ok := c.wrapped.(interface{ Types() []string }); ok {
		return h.Types()
	}
	return nil
}
