package postmill

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// ErrNoTx is returned by [Publisher.Publish] for a message whose context has no transaction, and by
// [Middleware] for a message that does not come from a [Subscriber]. Set the message's context with
// [WithTx], or publish with [Publisher.In]. If a Router publishes the message, add [Middleware] to
// the Router.
var ErrNoTx = errors.New("postmill: the message's context has no transaction: set it with postmill.WithTx, publish with Publisher.In, or add postmill.Middleware to the Router")

// delivery is the part of a message's context that describes its delivery.
type delivery struct {
	tx     pgx.Tx
	event  postroom.Event // the event's ID is empty outside of a handler
	failed *failure       // where Middleware and Publish store an error for the Subscriber; each delivery has its own, and it is nil outside of a handler
}

// failure is the error with which a handler of a Router ended, or with which the Router published the
// messages of the handler. The Router logs the error and nacks the message, but a nack does not carry
// the error.
type failure struct{ err error }

// note keeps an error after which a Router nacks the message.
func (d delivery) note(err error) {
	if d.failed != nil {
		d.failed.err = err
	}
}

// isOther reports whether d is a delivery of a message by a handler, and not the delivery now.
func (d delivery) isOther(now delivery) bool { return d.failed != nil && d.failed != now.failed }

type deliveryKey struct{}

func deliveryOf(ctx context.Context) delivery {
	d, _ := ctx.Value(deliveryKey{}).(delivery)
	return d
}

func (d delivery) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, deliveryKey{}, d)
}

// WithTx returns a context with a transaction. If a message has this context, a [Publisher] writes
// the message in the transaction. The Publisher does not commit the transaction.
//
//	msg.SetContext(postmill.WithTx(ctx, tx))
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	d := deliveryOf(ctx)
	d.tx = tx
	return d.in(ctx)
}

// Tx returns the transaction of a message's context: the transaction of [WithTx] or, in a handler,
// the transaction in which the inbox handles the message. Changes in this transaction commit if the
// handler returns nil or acks the message. Commit and Rollback of a handler's transaction return
// inbox.ErrTxOwned. Tx panics if there is no transaction, because a change outside of a transaction
// could be lost or made twice.
func Tx(ctx context.Context) pgx.Tx {
	tx := deliveryOf(ctx).tx
	if tx == nil {
		panic(ErrNoTx.Error())
	}
	return tx
}

// Event returns the event that a handler handles. ctx is the context of the handler's message. The
// event has properties for which Watermill has no place: the id, the source and the key. Event
// reports false outside of a handler.
func Event(ctx context.Context) (postroom.Event, bool) {
	ev := deliveryOf(ctx).event
	return ev, ev.ID != ""
}

// mergedContext ends when its Context ends. It has the values of the contexts first and second. If
// both have a value for a key, it returns the value of first.
type mergedContext struct {
	context.Context

	first, second context.Context
}

func (j mergedContext) Value(key any) any {
	if v := j.first.Value(key); v != nil {
		return v
	}
	return j.second.Value(key)
}

// pass copies the delivery and the trace of a message to the messages that its handler returned. If
// such a message has a transaction already, pass does not change its values. The parameter ctx is
// the context that the message had before the handler ran: middleware may have given it another one,
// which ended with the handler. A handler may return its message, or one with the context of its message.
// If it returns one that it returned for an earlier event, nothing of that event may stay: its transaction
// has ended, and a chain of contexts would keep the bodies of all events.
func pass(ctx context.Context, from *message.Message, to []*message.Message) {
	given := from.Context()
	for _, m := range to {
		was := m.Context()
		switch {
		//guard:watermill-a-message-is-passed-on-again false
		case was.Err() != nil && deliveryOf(was).isOther(deliveryOf(given)):
			m.SetContext(mergedContext{ctx, given, given})
		case deliveryOf(was).tx == nil:
			//guard:watermill-the-context-of-a-middleware-has-ended 1.1 = given
			m.SetContext(mergedContext{ctx, given, was})
		//guard:watermill-a-message-that-is-passed-on-outlives-its-middleware false
		case was.Err() != nil:
			m.SetContext(mergedContext{ctx, was, given})
		}
	}
}
