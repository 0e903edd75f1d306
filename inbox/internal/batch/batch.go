// Package batch decides several deliveries of a handler in one transaction. It calls the
// handler and the other parts of the inbox through [Loop].
package batch

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// batch is a group of deliveries that one transaction decides.
type batch struct {
	members []*delivery.Delivery                    // sorted by key; events of one key in the stream's order
	failed  map[*delivery.Delivery]delivery.Holding // the members that failed, and how they are held
	known   []*delivery.Delivery                    // the members that were decided before this transaction
	single  bool                                    // there is a savepoint before each member
}

// Loop is the handler's loop. It decides, runs and finishes single deliveries.
type Loop interface {
	// IsStraight reports whether a delivery can be handled directly. IsOpen reports whether the
	// handler may run, that is, whether it is not paused.
	IsStraight(d *delivery.Delivery) bool
	IsOpen() bool

	// Deliver decides a single delivery and finishes it. Wait makes a delivery wait for a
	// worker again.
	Deliver(life delivery.Lifetime, d *delivery.Delivery)
	Wait(d *delivery.Delivery)

	// Begin begins a transaction that decides deliveries. The result fresh has the dedupe keys of
	// deliveries that were not decided before. If Begin could not begin a transaction, tx is nil.
	Begin(ctx context.Context, all []*delivery.Delivery) (tx Tx, fresh map[string]bool, err error)

	// Failed returns how a failed event is held. Finish ends a delivery.
	Failed(t delivery.Task, f delivery.Failure) delivery.Holding
	Finish(ctx context.Context, d *delivery.Delivery, r delivery.Result)

	// Outage logs that the database is out of reach, and waits.
	Outage(life delivery.Lifetime, err error, failures int)
}

// Tx is a transaction that decides a batch.
type Tx interface {
	// Name is the id of the transaction. Differs reports whether an event changed the session for
	// the events after it. IsClosed reports whether the connection is closed. Lost marks an
	// error that came because the connection broke.
	Name() string
	Differs() bool
	IsClosed() bool
	Lost(err error) error

	// Save sets a savepoint before an event. Undo rolls back to it.
	Save(ctx context.Context) error
	Undo(ctx context.Context) error

	// Call runs the handler. Hold holds deliveries that failed. End commits, or rolls back if
	// err is not nil.
	Call(ctx context.Context, t delivery.Task) error
	Hold(ctx context.Context, failed map[*delivery.Delivery]delivery.Holding) error
	End(ctx context.Context, err error) error
}

// Batches decides several deliveries of a handler in one transaction.
type Batches struct {
	Loop

	Alone *delivery.Alone // each transaction takes it with RLock
}

// DeliverAll decides deliveries together and finishes each of them. If a delivery cannot be handled
// directly, DeliverAll decides it separately.
func (c Batches) DeliverAll(life delivery.Lifetime, all []*delivery.Delivery) {
	var straight []*delivery.Delivery
	for _, d := range all {
		if c.IsStraight(d) {
			straight = append(straight, d)
		} else {
			c.Deliver(life, d)
		}
	}
	slices.SortFunc(straight, func(a, b *delivery.Delivery) int {
		return cmp.Or(cmp.Compare(a.Event.Key, b.Event.Key), cmp.Compare(a.Place.Seq, b.Place.Seq))
	})
	c.decideBatch(life, straight)
}

// decideBatch decides deliveries in one transaction. If a member fails, decideBatch runs the batch
// again with a savepoint before each. If a member changes the session for the members after it,
// each member gets its own transaction. If the transaction fails as a whole, decideBatch tries each
// half, down to a single delivery.
func (c Batches) decideBatch(life delivery.Lifetime, members []*delivery.Delivery) {
	if len(members) == 0 {
		return
	}
	if len(members) == 1 {
		c.deliverOne(life, members[0])
		return
	}
	b := &batch{members: members, failed: make(map[*delivery.Delivery]delivery.Holding)}
	err := c.persistBatch(life, b)
	switch {
	case err == nil:
		c.answerBatch(life, b)
	case life.Ends(err):
		for _, d := range members {
			c.Finish(life.Work, d, delivery.HandedBack)
		}
	case errors.Is(err, errMixed), errors.Is(err, errPaused), errors.Is(err, ErrAlone):
		for _, d := range members {
			c.deliverOne(life, d)
		}
	default:
		half := len(members) / 2
		c.decideBatch(life, members[:half])
		c.decideBatch(life, members[half:])
	}
}

// deliverOne decides a single delivery. If the handler paused meanwhile, deliverOne queues the
// delivery again.
func (c Batches) deliverOne(life delivery.Lifetime, d *delivery.Delivery) {
	if !c.IsOpen() {
		c.Wait(d) // the delivery waits for a worker again
		return
	}
	c.Deliver(life, d)
}

// ErrAlone says that events must be decided one by one, because one of them becomes dead and
// Config.OnDead must be called for it.
var ErrAlone = errors.New("an event becomes dead")

// errPaused says that the handler paused during a batch. The events of the batch wait for a worker
// again.
var errPaused = errors.New("the handler is paused")

// errMixed says that an event of a batch changed the session for the events after it.
var errMixed = errors.New("an event changed the session that it shares with others")

// persistBatch repeats the transaction of a batch until the transaction commits or cannot commit.
// In an outage it waits until the outage ends.
func (c Batches) persistBatch(life delivery.Lifetime, b *batch) error {
	for {
		err := c.persistOnce(life, b)
		var member *delivery.MemberError
		switch {
		case life.IsOver() || !errors.As(err, &member):
			return err
		case !b.single && !delivery.IsAbandoned(err) && !delivery.IsEnded(err):
			b.single = true // from now on, the failure of a member does not undo the others
		default:
			b.single, b.failed[member.D] = true, c.Failed(member.D.Task, delivery.FailureOf(member.Err)) // this failure ended the whole transaction, so the member does not run again
		}
	}
}

// persistOnce runs the transaction of a batch. In an outage it waits, and runs the transaction
// again.
func (c Batches) persistOnce(life delivery.Lifetime, b *batch) error {
	for failures := 1; ; failures++ {
		err := c.applyBatch(life, b)
		//guard:no-batch-waits-for-resources 3 false
		if !delivery.IsOutage(err) || life.IsStopping() || delivery.IsShort(err) && failures >= delivery.ShortRounds {
			return err
		}
		c.Outage(life, err, failures)
	}
}

// applyBatch runs the transaction once. It inserts the inbox rows, runs the handler for each event,
// holds the events that failed, and commits.
func (c Batches) applyBatch(life delivery.Lifetime, b *batch) error {
	ctx := life.Work
	c.Alone.RLock()
	defer c.Alone.RUnlock()
	b.known = nil
	tx, fresh, err := c.Begin(ctx, b.members)
	if tx == nil {
		return err
	}
	for _, d := range b.members {
		if fresh[d.Key] {
			d.Began = tx.Name()
		}
	}
	for _, d := range b.members {
		if err != nil {
			break
		}
		_, failed := b.failed[d]
		switch {
		//guard:insert-before-handler-of-a-batch false
		//planted:inbox-insert-of-a-batch-ignored false
		case !fresh[d.Key]:
			b.known = append(b.known, d)
		case !failed && !c.IsOpen():
			err = errPaused
		//guard:a-batch-whose-session-changed-runs-one-by-one = @ && false
		case !failed && tx.Differs():
			err = errMixed
		case !failed:
			err = c.callMember(life, tx, b, d)
		}
	}
	if err == nil {
		err = c.holdFailed(ctx, tx, b, fresh)
	}
	failed := err != nil
	if err = tx.End(ctx, err); !failed && !delivery.IsEnded(err) {
		for _, d := range b.members {
			if !fresh[d.Key] {
				continue
			}
			d.Began = "" // the inbox committed the transaction, or may have
			//guard:a-batch-knows-its-own-commit false
			if delivery.InDoubt(err) {
				doubt := delivery.Doubt{ID: tx.Name()}
				if h, failed := b.failed[d]; failed {
					doubt.Held = &h
				}
				d.Doubts = append(d.Doubts, doubt)
			}
		}
	}
	return err
}

// callMember runs the handler for one event of a batch. With a savepoint, its failure
// does not undo the effects of other members.
func (c Batches) callMember(life delivery.Lifetime, tx Tx, b *batch, d *delivery.Delivery) error {
	ctx := life.Work
	//guard:each-event-of-a-batch-has-a-savepoint = @ && d == b.members[0]
	if b.single {
		if err := tx.Save(ctx); err != nil {
			return err
		}
	}
	err := tx.Call(ctx, d.Task)
	switch {
	case err == nil:
		return nil
	case delivery.IsAbandoned(err): // the abandoned handler still uses the transaction
		return &delivery.MemberError{D: d, Err: err}
	case delivery.IsContention(tx.Lost(err)) || delivery.IsOutage(err) || life.Ends(err):
		return err
	case !b.single || tx.IsClosed() || delivery.IsEnded(err):
		return &delivery.MemberError{D: d, Err: err}
	}
	b.failed[d] = c.Failed(d.Task, delivery.FailureOf(err))
	return tx.Undo(ctx)
}

// holdFailed holds the events that failed, in the transaction that decides the batch.
func (c Batches) holdFailed(ctx context.Context, tx Tx, b *batch, fresh map[string]bool) error {
	held := make(map[*delivery.Delivery]delivery.Holding, len(b.failed))
	for d, h := range b.failed {
		if fresh[d.Key] {
			held[d] = h
		}
	}
	switch {
	case len(held) == 0:
		return nil
	//guard:a-batch-holds-nothing-under-a-handlers-settings false
	case tx.Differs(): // what the last member set may prevent that, for instance a read-only transaction
		return errMixed
	}
	return tx.Hold(ctx, held)
}

// answerBatch acknowledges the deliveries that a batch decided. If a delivery was decided before
// the batch, answerBatch decides it separately, because it may be a different event with the same
// identity.
func (c Batches) answerBatch(life delivery.Lifetime, b *batch) {
	known := make(map[*delivery.Delivery]bool, len(b.known))
	for _, d := range b.known {
		known[d] = true
		c.Deliver(life, d)
	}
	for _, d := range b.members {
		h, failed := b.failed[d]
		switch {
		case known[d]:
			continue
		case failed:
			c.Finish(life.Work, d, delivery.AsHeld(d, h))
		default:
			c.Finish(life.Work, d, delivery.Result{Outcome: delivery.Done})
		}
	}
}
