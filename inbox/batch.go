package inbox

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/pause"
)

// batch is a group of deliveries that one transaction decides.
type batch struct {
	members []*delivery.Delivery                    // sorted by key; events of one key in the stream's order
	failed  map[*delivery.Delivery]delivery.Holding // the members that failed, and how they are held
	known   []*delivery.Delivery                    // they were decided before
	single  bool                                    // there is a savepoint before each member
}

// batches decides several deliveries of a handler in one transaction.
type batches struct{ *loop }

// deliver decides the deliveries together and finishes each of them.
func (c batches) deliver(life delivery.Lifetime, all []*delivery.Delivery) {
	var straight []*delivery.Delivery
	for _, d := range all {
		if c.isStraight(d) {
			straight = append(straight, d)
		} else {
			c.loop.deliver(life, d)
		}
	}
	slices.SortFunc(straight, func(a, b *delivery.Delivery) int {
		return cmp.Or(cmp.Compare(a.Event.Key, b.Event.Key), cmp.Compare(a.Place.Seq, b.Place.Seq))
	})
	c.decideBatch(life, straight)
}

// decideBatch decides deliveries in one transaction. If a member fails, it runs the batch
// again with a savepoint before each member. If a member changes the session for those
// after it, each member gets its own transaction. If the transaction fails as a whole,
// decideBatch tries each half, down to a single delivery.
func (c batches) decideBatch(life delivery.Lifetime, members []*delivery.Delivery) {
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
	case life.IsOver() || life.IsStopping() && delivery.IsOutage(err):
		for _, d := range members {
			c.finish(life.Work, d, delivery.HandedBack)
		}
	case errors.Is(err, errMixed), errors.Is(err, errPaused):
		for _, d := range members {
			c.deliverOne(life, d)
		}
	default:
		half := len(members) / 2
		c.decideBatch(life, members[:half])
		c.decideBatch(life, members[half:])
	}
}

// deliverOne decides a delivery by itself, unless the handler paused meanwhile.
func (c batches) deliverOne(life delivery.Lifetime, d *delivery.Delivery) {
	if !c.gate.IsOpen() {
		c.lanes.Put(d) // it waits for its turn
		return
	}
	c.loop.deliver(life, d)
}

// errPaused says that the handler paused during a batch. Its events wait for their turn.
var errPaused = errors.New("the handler is paused")

// errMixed says that an event of a batch changed the session for the events after it.
var errMixed = errors.New("an event changed the session that it shares with others")

// persistBatch runs the transaction of a batch until it commits, or until it cannot
// commit. It waits out outages.
func (c batches) persistBatch(life delivery.Lifetime, b *batch) error {
	for {
		err := c.persistOnce(life, b)
		var member *delivery.MemberError
		switch {
		case life.IsOver() || !errors.As(err, &member):
			return err
		case !b.single && !delivery.IsAbandoned(err) && !delivery.IsEnded(err):
			b.single = true // now each failure shows which member it is
		default:
			b.single, b.failed[member.D] = true, c.failed(member.D.Task, delivery.FailureOf(member.Err)) // its failure ended the whole transaction
		}
	}
}

// persistOnce runs the transaction of a batch once. It waits out outages.
func (c batches) persistOnce(life delivery.Lifetime, b *batch) error {
	for failures := 1; ; failures++ {
		err := c.applyBatch(life.Work, b)
		if !delivery.IsOutage(err) || life.IsStopping() {
			return err
		}
		c.inbox.lines.Warn(life.Work, c.log, "database out of reach, waiting", c.inbox.advise(err), "failures", failures)
		pause.For(life.Take, outage.Delay(failures))
	}
}

// applyBatch is one transaction. It inserts the inbox rows, runs the handler for each
// event, holds the events that failed, and commits.
func (c batches) applyBatch(ctx context.Context, b *batch) error {
	c.inbox.alone.RLock()
	defer c.inbox.alone.RUnlock()
	b.known = nil
	tx, fresh, err := c.ledger.DecideBatch(ctx, b.members)
	if tx == nil {
		return err
	}
	for _, d := range b.members {
		if fresh[d.Key] {
			d.Began = tx.ID
		}
	}
	for _, d := range b.members {
		if err != nil {
			break
		}
		_, failed := b.failed[d]
		switch {
		case !fresh[d.Key]:
			b.known = append(b.known, d)
		case !failed && !c.gate.IsOpen():
			err = errPaused
		case !failed && tx.Differs():
			err = errMixed
		case !failed:
			err = c.callMember(ctx, tx, b, d)
		}
	}
	if err == nil {
		err = c.holdFailed(ctx, tx, b, fresh)
	}
	failed := err != nil
	if err = c.ledger.End(ctx, tx, err); !failed && !delivery.IsEnded(err) {
		for _, d := range b.members {
			if fresh[d.Key] {
				d.Began = "" // the inbox committed the transaction, or may have
			}
		}
	}
	return err
}

// callMember runs the handler for one event of a batch. With a savepoint, its failure
// does not undo the effects of other members.
func (c batches) callMember(ctx context.Context, tx *ledger.Tx, b *batch, d *delivery.Delivery) error {
	pending := tx.EnterMember(b.single)
	err := c.call(ctx, tx, d.Task)
	if delivery.IsAbandoned(err) { // the abandoned handler still uses the transaction
		return &delivery.MemberError{D: d, Err: err}
	}
	silent := tx.LeaveMember(pending, b.single && err == nil)
	switch {
	case err == nil:
		return nil
	case delivery.IsContention(ledger.Lost(tx, err)) || delivery.IsOutage(err):
		return err
	case !b.single || tx.Tx.Conn().IsClosed() || delivery.IsEnded(err):
		return &delivery.MemberError{D: d, Err: err}
	}
	b.failed[d] = c.failed(d.Task, delivery.FailureOf(err))
	if silent {
		return nil
	}
	return tx.UndoMember(ctx)
}

// holdFailed holds the events that failed, in the transaction that decides the batch.
func (c batches) holdFailed(ctx context.Context, tx *ledger.Tx, b *batch, fresh map[string]bool) error {
	if len(b.failed) == 0 {
		return nil
	}
	var events []ledger.Owed
	for d, h := range b.failed {
		if fresh[d.Key] {
			events = append(events, c.owe(d, h))
		}
	}
	return c.ledger.HoldIn(ctx, tx, events)
}

// answerBatch acknowledges the deliveries that a batch decided. It examines those that
// were decided before one by one: each may be a different event with the same identity.
func (c batches) answerBatch(life delivery.Lifetime, b *batch) {
	known := make(map[*delivery.Delivery]bool, len(b.known))
	for _, d := range b.known {
		known[d] = true
		c.loop.deliver(life, d)
	}
	for _, d := range b.members {
		h, failed := b.failed[d]
		switch {
		case known[d]:
			continue
		case failed:
			c.finish(life.Work, d, delivery.AsHeld(d, h))
		default:
			c.gate.Succeeded(d.Key)
			c.finish(life.Work, d, delivery.Result{Outcome: delivery.Done})
		}
	}
}
