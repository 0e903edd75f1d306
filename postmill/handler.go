package postmill

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/sameschema"
)

// ErrNacked is the error of an attempt whose message was nacked, if there is no other error.
var ErrNacked = errors.New("postmill: the message was nacked")

// Handler runs a Watermill handler as a handler of an inbox, without a Router. Three things commit
// together or not at all: the changes that the handler makes in [Tx] of the message's context, the
// messages that it returns, and the inbox's record that the event is handled.
//
// Messages that the handler returns are published to the given topic. If topic is empty, the
// handler must return no messages, and pub may be nil. After an error or a nack, the inbox rolls
// back, and tries the event again on the schedule of the subscription. [postroom.Permanent] and
// [postroom.RetryAfter] work as in any handler.
//
// The inbox refuses the handler if pub has an outbox of another schema than the inbox.
func Handler(pub *Publisher, topic string, h message.HandlerFunc) postroom.Handler {
	return &handler{pub, topic, h}
}

type handler struct {
	pub    *Publisher
	topic  string
	handle message.HandlerFunc
}

// Check returns an error if the publisher's outbox has another schema than the inbox that calls it.
func (h *handler) Check(ctx context.Context) error {
	if h.pub == nil {
		return nil
	}
	//guard:watermill-a-handler-has-the-schema-of-its-inbox = sameschema.Check(context.Background(), "", "")
	return sameschema.Check(ctx, "the outbox of postmill.Handler", h.pub.out.Schema())
}

// Handle runs the Watermill handler.
func (h *handler) Handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	msg := toMessage(ev)
	ctx, cancel := context.WithCancel(delivery{tx: tx, event: ev, failed: new(failure)}.in(ctx))
	defer cancel()
	msg.SetContext(ctx)
	produced, err := h.handle(msg)
	switch {
	case err != nil:
		return err
	case isNacked(msg):
		//guard:watermill-a-handlers-nack = nil
		return ErrNacked
	case len(produced) == 0:
		return nil
	case h.topic == "" || h.pub == nil:
		return postroom.Permanent(message.ErrOutputInNoPublisherHandler)
	}
	pass(ctx, msg, produced)
	return h.pub.Publish(h.topic, produced...)
}

func isNacked(msg *message.Message) bool {
	select {
	case <-msg.Nacked():
		return true
	default:
		return false
	}
}

// Middleware connects a Router with a [Subscriber] and a [Publisher]. Add Middleware to each Router
// that has both, before all other middleware:
//
//	router.AddMiddleware(postmill.Middleware)
//
// Middleware passes the transaction on to the messages that a handler returns, because the contexts
// of these messages have no transaction. Without Middleware, Publish returns [ErrNoTx]. Middleware
// also gives the Subscriber the error, or the panic, with which the handler ended. So dead letters
// show the error, and [postroom.Permanent] and [postroom.RetryAfter] work.
//
// Middleware returns [ErrNoTx] for a message that does not come from a [Subscriber].
func Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		ctx := msg.Context()
		d := deliveryOf(ctx)
		if d.tx == nil {
			return nil, ErrNoTx
		}
		err = guard.Call(func() (err error) {
			produced, err = h(msg)
			return err
		})
		if err != nil {
			d.note(err)
			return nil, err
		}
		pass(ctx, msg, produced)
		return produced, nil
	}
}
