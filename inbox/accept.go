package inbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/accept"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// AcceptResult says what [Inbox.Accept] did with an event.
type AcceptResult string

// The results of [Inbox.Accept].
const (
	// Stored says that the event is committed, and that its handler will run.
	Stored = AcceptResult(delivery.Accepted)
	// Duplicate says that the handler has decided this event already: it took effect or is held.
	Duplicate = AcceptResult(delivery.AcceptedBefore)
	// Changed says that the handler has decided an event with the same identity and other content,
	// and that Accept dropped this event: see [Acceptance.IgnoreChanged].
	Changed = AcceptResult(delivery.AcceptChanged)
	// Conflict says that the handler has decided another event with the same identity. Accept
	// stores this event too: it is held as dead, of class conflict.
	Conflict = AcceptResult(delivery.AcceptConflict)
)

// Acceptance is an event to accept for a handler.
type Acceptance struct {
	Handler string
	Event   postroom.Event

	// IgnoreChanged says what Accept does if it knows an event with the same source and id, and
	// other content. If true, Accept drops the new event and returns [Changed]. If false, Accept
	// stores it as dead and returns [Conflict].
	IgnoreChanged bool

	// IgnoreType says that the type does not belong to the content that Accept compares, for instance
	// because no signature covers it. An event with a known source and id, the same data and another
	// type is then a [Duplicate].
	IgnoreType bool
}

// Accept stores an event that comes without a broker, such as a webhook or a line of an import.
// When Accept returns [Stored], the event is committed in the table held, and a process that runs
// the handler will handle it. Accept itself runs no handler. The event may be of any age.
//
// Register the handler first, with [Inbox.Handle] or [Inbox.HandleExternal], or with
// [Inbox.Declare] in a process that does not run the handler. This process need not call
// [Inbox.Run]. For an ordered handler, Accept returns [ErrOrdered], because its events get their
// order from a stream. An event without an ID gets a new ID, so only [Subscription.DedupeKey] can
// make it a duplicate. An event without a TraceParent gets the trace of ctx.
//
// Accept is safe for concurrent use. One statement may store the events of several calls. If ctx
// ends before this statement begins, the event is not stored. If the statement fails, it may have
// stored the event, or not: accept the event again, with the same id.
//
// The body may have up to postroom.MaxAccepted bytes (8 MiB). An event that goes through a broker
// has a smaller limit: for instance, an event that a handler writes with outbox.Write.
//
// Accept recognises an event by its source and id, and then compares the content. An event with the
// same identity and other content is a [Conflict]: it is dead and waits for an operator. Some
// providers send an event again with one field changed. An example is Stripe's pending_webhooks,
// the number of endpoints that have not answered yet. For such providers, use [Inbox.AcceptAll]
// with [Acceptance.IgnoreChanged], or set [Subscription.DedupeKey]. Both settings drop the later
// event. With DedupeKey, a later event with the same key is a [Duplicate], even with other content:
//
//	in.HandleExternal(inbox.Subscription{
//		Name:      "stripe",
//		DedupeKey: func(ev postroom.Event) string { return "stripe " + ev.ID }, // evt_…
//	}, handle)
//
// If different events have the same key, Accept drops all of them except the first. So make the key
// from the provider's id of the event, not from the id of the object that the event is about.
func (in *Inbox) Accept(ctx context.Context, handler string, ev postroom.Event) (AcceptResult, error) {
	results, err := in.AcceptAll(ctx, Acceptance{Handler: handler, Event: ev})
	if err != nil {
		return "", err
	}
	return results[0], nil
}

// AcceptAll is [Inbox.Accept] for several events, which may have different handlers. It returns a
// result for each event. One transaction stores all new events or none. A second transaction holds
// the conflicts. If this one fails, the new events are stored, but AcceptAll fails: call it again.
func (in *Inbox) AcceptAll(ctx context.Context, all ...Acceptance) ([]AcceptResult, error) {
	return in.accept(ctx, nil, all)
}

// AcceptTx is [Inbox.AcceptAll] in the caller's transaction: the events are stored when tx commits.
// So a change and the work that follows from it commit together, without a broker. A worker of this
// process begins with the events soon after the commit. If tx commits more than a tenth of a second
// after the call of AcceptTx, a worker begins within Config.IdlePoll of the commit.
//
// If AcceptTx returns an error, roll back. If two transactions accept the same events in different
// orders, they can deadlock. So accept all events of a transaction in one call, which sorts them.
func (in *Inbox) AcceptTx(ctx context.Context, tx pgx.Tx, all ...Acceptance) ([]AcceptResult, error) {
	return in.accept(ctx, tx, all)
}

func (in *Inbox) accept(ctx context.Context, tx pgx.Tx, all []Acceptance) ([]AcceptResult, error) {
	if in.err != nil {
		return nil, fmt.Errorf("inbox: %w", postroom.Unrecoverable(in.err))
	}
	events := make([]accept.Event, len(all))
	for i, a := range all {
		events[i] = accept.Event(a)
	}
	decided, err := in.acceptor.Accept(ctx, tx, events)
	if tx == nil {
		in.renew(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	results := make([]AcceptResult, len(decided))
	for i, d := range decided {
		results[i] = AcceptResult(d)
	}
	return results, nil
}

// acceptsFor registers a subscription for Accept. The parameter h is its handler, or nil. If the
// subscription has no types, the handler's method Types says which types the handler accepts.
// acceptsFor panics if the name has a handler already.
func (in *Inbox) acceptsFor(s Subscription, h postroom.Handler) {
	if _, known := in.acceptor.Handlers[s.Name]; known {
		panic(fmt.Sprintf("inbox: a second handler with the name %q", s.Name))
	}
	types := func() []string { return s.Types }
	//guard:a-handlers-types-are-those-it-accepts 2 false
	if typed, ok := h.(postroom.TypedHandler); ok && len(s.Types) == 0 {
		types = typed.Types // only when an event comes: a Mux may get more handlers until then
	}
	in.acceptor.Handlers[s.Name] = accept.Handler{Types: types, Ordered: s.Order != Unordered, DedupeKey: s.DedupeKey, Timeout: s.Timeout}
}
