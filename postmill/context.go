package postmill

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// ErrNoTx is returned by [Publisher.Publish] for a message whose context has no transaction,
// and by [Middleware] for a message that comes from no [Subscriber]. Set the context with
// [WithTx], or call [Publisher.In]. In a Router add [Middleware].
var ErrNoTx = errors.New("postmill: the message's context has no transaction: set it with postmill.WithTx, publish with Publisher.In, or add postmill.Middleware to the Router")

// delivery is what a message's context has of its delivery.
type delivery struct {
	tx     pgx.Tx
	event  postroom.Event // its ID is empty outside of a handler
	failed *failure       // nil if no Subscriber waits for it
}

// failure is the error with which a handler of a Router ended. The Router logs it and nacks
// the message, which says nothing of it.
type failure struct{ err error }

type deliveryKey struct{}

func deliveryOf(ctx context.Context) delivery {
	d, _ := ctx.Value(deliveryKey{}).(delivery)
	return d
}

func (d delivery) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, deliveryKey{}, d)
}

// WithTx returns a context with a transaction. A [Publisher] writes messages that have this
// context in the transaction. It does not commit it.
//
//	msg.SetContext(postmill.WithTx(ctx, tx))
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	d := deliveryOf(ctx)
	d.tx = tx
	return d.in(ctx)
}

// Tx returns the transaction of a message's context: the one of [WithTx] or, in a handler,
// the one in which the inbox handles the message. What is written in it commits if the
// handler returns nil or acks the message. Commit and Rollback of a handler's transaction
// return inbox.ErrTxOwned. Tx panics if there is no transaction: a write outside of it could
// be lost or made twice.
func Tx(ctx context.Context) pgx.Tx {
	tx := deliveryOf(ctx).tx
	if tx == nil {
		panic(ErrNoTx.Error())
	}
	return tx
}

// Event returns the event that a handler was called for, by its message's context. It has
// what Watermill has no place for: the id, the source and the key. It reports false outside
// of a handler.
func Event(ctx context.Context) (postroom.Event, bool) {
	ev := deliveryOf(ctx).event
	return ev, ev.ID != ""
}

// mergedContext has the end of its Context and the values of both: first those of Context.
type mergedContext struct {
	context.Context

	beside context.Context
}

func (j mergedContext) Value(key any) any {
	if v := j.Context.Value(key); v != nil {
		return v
	}
	return j.beside.Value(key)
}

// pass gives the delivery of a message, and its trace, to those that its handler returned.
func pass(from *message.Message, to []*message.Message) {
	for _, m := range to {
		if deliveryOf(m.Context()).tx == nil {
			m.SetContext(mergedContext{from.Context(), m.Context()})
		}
	}
}
