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

// AcceptResult says what [Inbox.Accept] did with an event.
type AcceptResult string

// What [Inbox.Accept] did with an event.
const (
	// Stored says that the event is committed, and that its handler will run.
	Stored AcceptResult = "stored"
	// Duplicate says that the handler has decided this event, or that it is held already.
	Duplicate AcceptResult = "duplicate"
	// Conflict says that another event with the same identity was decided or is held.
	// Accept keeps this one too: it is held as dead, of class conflict.
	Conflict AcceptResult = "conflict"
)

// Accept stores an event for a handler without a broker, for instance a webhook or a line
// of an import. When it returns [Stored], the event is committed in table held, and this
// process or another one that runs the handler will handle it. Accept itself runs no
// handler. The event may be of any age.
//
// Register the handler with [Inbox.Handle] or [Inbox.HandleExternal] first; [Inbox.Run] need
// not run. An ordered handler is refused with [ErrOrdered]: its events get their order from
// a stream. An event without an ID gets a new one, so it is never a duplicate. Accept is
// safe for concurrent use.
//
// The body may have up to postroom.MaxAccepted bytes (8 MiB). The limit for events that
// go through a broker is smaller, and it holds for those that the handler writes with
// outbox.Write.
//
// Accept recognises an event by its source and id, and then compares the content. Other
// content with the same identity is a [Conflict], which is dead and waits for an
// operator. Some providers send an event again with one field changed: Stripe's
// pending_webhooks counts how many endpoints have not answered yet. Set
// [Subscription.DedupeKey] for these. Then the first event with a key counts. A later one
// with the same key is a [Duplicate], even if its content differs:
//
//	in.HandleExternal(inbox.Subscription{
//		Name:      "stripe",
//		DedupeKey: func(ev postroom.Event) string { return "stripe " + ev.ID }, // evt_…
//	}, handle)
//
// A key that leaves out too much drops events that differ: use the provider's id of the
// event, not the id of the object that the event is about.
func (in *Inbox) Accept(ctx context.Context, handler string, ev postroom.Event) (AcceptResult, error) {
	d, c, err := in.acceptable(handler, ev)
	if err != nil {
		return "", err
	}
	h := delivery.Holding{After: delivery.AtOnce}
	for _, next := range []AcceptResult{Stored, Conflict} {
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
		return Conflict, nil // this conflict was already held
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
	ev.LoggedAt = time.Time{} // the database sets it
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
