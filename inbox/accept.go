package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Acceptance is what became of an event that was given to [Inbox.Accept].
type Acceptance string

// What becomes of an accepted event.
const (
	// Stored says that the event is owed from now on.
	Stored Acceptance = "stored"
	// Duplicate says that the handler has decided this event, or owes it.
	Duplicate Acceptance = "duplicate"
	// Conflict says that the handler has decided, or owes, another event under
	// its identity. Both are kept: this one is held as a conflict.
	Conflict Acceptance = "conflict"
)

// Accept stores an event for a handler without a broker, for instance a webhook
// or a line of an import. When it returns Stored the event is committed, and will
// be run from held as one that was delivered is: by this process or another that
// runs the handler. It runs nothing itself, and the event may be of any age.
//
// The handler has to be registered by [Inbox.Handle] or [Inbox.HandleExternal], and
// not be an ordered one, whose events have their order from a stream; Run need not be
// under way.
// An event without an ID gets one, and so is never a duplicate. It is safe for
// concurrent use.
//
// The body may have up to postroom.MaxAccepted bytes, which is 8 MiB: more than an event
// that goes through a broker, as this one never does. What the handler writes with
// outbox.Write does, and has the smaller limit.
//
// An event is known again by its source and id, and has to be the same then: other content
// under the same identity is a [Conflict], which is dead and waits for an operator. Some
// providers deliver an event again with one field changed: Stripe's pending_webhooks counts
// how many endpoints have not answered yet. [Subscription.DedupeKey] is for these. With a
// key of the subscription's own, the first event of each key counts, and what comes later
// with the same key is a [Duplicate], whatever its content is:
//
//	in.HandleExternal(inbox.Subscription{
//		Name:      "stripe",
//		DedupeKey: func(ev postroom.Event) string { return "stripe " + ev.ID }, // evt_…
//	}, handle)
//
// A key that leaves too much out swallows events that are different: take the provider's
// id of the event, and not that of the object that it is about.
func (in *Inbox) Accept(ctx context.Context, handler string, ev postroom.Event) (Acceptance, error) {
	d, c, err := in.acceptable(handler, ev)
	if err != nil {
		return "", err
	}
	h := delivery.Holding{After: delivery.AtOnce}
	for _, next := range []Acceptance{Stored, Conflict} {
		fates, err := in.db.Store(ctx, c.owe(d, h))
		if err != nil {
			return "", &postroom.EventError{Op: "accept", ID: ev.ID, Type: ev.Type, Err: err}
		}
		if fates[0] == delivery.FateHeld {
			in.runner.Wake(0)
			return next, nil
		}
		same, err := in.db.Same(ctx, handler, d.Task)
		if err != nil {
			return "", &postroom.EventError{Op: "accept", ID: ev.ID, Type: ev.Type, Err: err}
		}
		if same {
			break
		}
		d, h = delivery.Conflicting(d), delivery.AsConflict
	}
	if h.Failure != nil {
		return Conflict, nil // and held before
	}
	return Duplicate, nil
}

// acceptable checks an event and derives its identity.
func (in *Inbox) acceptable(handler string, ev postroom.Event) (*delivery.Delivery, *loop, error) {
	c := in.byName(handler)
	if c == nil {
		return nil, nil, fmt.Errorf("%w: %q", ErrUnknownHandler, handler)
	}
	if in.err != nil {
		return nil, nil, fmt.Errorf("inbox: %w", postroom.Unrecoverable(in.err))
	}
	if c.isOrdered() {
		return nil, nil, fmt.Errorf("%w: %q", ErrOrdered, handler)
	}
	if ev.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, nil, fmt.Errorf("inbox: make an id: %w", err)
		}
		ev.ID = id.String()
	}
	ev.Subject, ev.ContentType = cmp.Or(ev.Subject, ev.Type), cmp.Or(ev.ContentType, "application/json")
	ev.LoggedAt = time.Time{} // it is logged now
	if err := ev.ValidateAccepted(); err != nil {
		return nil, nil, &postroom.EventError{Op: "accept", ID: ev.ID, Type: ev.Type, Err: err}
	}
	d := &delivery.Delivery{Task: delivery.Task{Event: ev, Attempt: 1}}
	d.Identify(c.sub.DedupeKey, c.sub.Timeout)
	if d.Fault != nil {
		return nil, nil, &postroom.EventError{Op: "accept", ID: ev.ID, Type: ev.Type, Err: errors.New(d.Fault.Text)}
	}
	if len(c.sub.Types) > 0 && !c.takes().Takes(ev) {
		return nil, nil, &postroom.EventError{Op: "accept", ID: ev.ID, Type: ev.Type, Err: postroom.ErrUnknownType}
	}
	return d, c, nil
}
