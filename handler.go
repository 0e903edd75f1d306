package postroom

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Handler applies one event.
//
// Handle writes its effects with tx. The inbox writes its record of ev with the same tx. So the
// effects and the record commit together, or neither of them commits. Handle must not commit or
// roll back tx, and must not use tx after it returns. The inbox may call Handle concurrently. If tx
// did not commit, the inbox may call Handle again with the same event.
//
// If Handle returns nil, the inbox commits tx. If Handle returns an error, the inbox rolls tx back,
// and usually makes another attempt later. An error of [RetryAfter] says when. After an error of
// [Permanent] there is no other attempt until an operator decides.
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

// JSON turns a function with a typed payload into a [Handler] for events of any type. It decodes the
// event's data into a T first, with [Event.JSON]. If the data does not decode, the error is
// [Permanent]. For your own events, prefer [Type.Handler], which also knows the event type.
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

// Chain wraps h in the given middleware. The first middleware is the outermost, so that all run in
// the order in which they are written.
//
// An inbox calls the methods Check, CheckSubscription and Types of a handler that has them. The
// result of Chain passes these calls on to h, if h has the methods. If several subscriptions use h,
// give all of them the result of one call of Chain, so that the inbox recognises it as one handler.
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

// A chain is a handler that is wrapped in middleware.
type chain struct {
	Handler         // the handler with the middleware
	wrapped Handler // the handler without the middleware
}

// Check calls the method Check of the wrapped handler, if there is one.
func (c *chain) Check(ctx context.Context) error {
	if h, ok := c.wrapped.(interface {
		Check(ctx context.Context) error
	}); ok {
		return h.Check(ctx)
	}
	return nil
}

// subscriptionChecker is a handler that refuses a subscription with which it cannot work. The
// parameter types has the types of the subscription, or nil if it has none. The parameter order is
// its order: "Unordered", "HoldKey" or "SkipKey".
type subscriptionChecker interface {
	CheckSubscription(types []string, order string) error
}

// CheckSubscription calls the method CheckSubscription of the wrapped handler, if there is one.
func (c *chain) CheckSubscription(types []string, order string) error {
	if h, ok := c.wrapped.(subscriptionChecker); ok {
		return h.CheckSubscription(types, order)
	}
	return nil
}

// Types calls the method Types of the wrapped handler. If there is none, it returns nil.
func (c *chain) Types() []string {
	if h, ok := c.wrapped.(TypedHandler); ok {
		return h.Types()
	}
	return nil
}
