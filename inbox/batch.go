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

// batch is a run of deliveries that are decided in one transaction.
type batch struct {
	members []*delivery.Delivery                    // sorted by key, and in the stream's order within one
	failed  map[*delivery.Delivery]delivery.Failure // of those that are held instead
	known   []*delivery.Delivery                    // decided before, as the ledger says
	single  bool                                    // each member behind a savepoint
}

// batches decide deliveries of a handler together.
type batches struct{ *loop }

// deliver decides deliveries together and answers for each.
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

// decideBatch decides deliveries in one transaction. Where members of it fail, it
// is run again with a savepoint before each of them; if one changes the session for
// those behind it, each is run in a transaction of its own; if the transaction as a
// whole cannot be, halves of it are tried, down to one.
func (c batches) decideBatch(life delivery.Lifetime, members []*delivery.Delivery) {
	if len(members) == 0 {
		return
	}
	if len(members) == 1 {
		c.loop.deliver(life, members[0])
		return
	}
	b := &batch{members: members, failed: make(map[*delivery.Delivery]delivery.Failure)}
	err := c.persistBatch(life, b)
	switch {
	case err == nil:
		c.answerBatch(life, b)
	case life.IsOver() || life.IsStopping() && delivery.IsOutage(err):
		for _, d := range members {
			c.finish(life.Work, d, delivery.HandedBack)
		}
	case errors.Is(err, errMixed):
		for _, d := range members {
			c.loop.deliver(life, d)
		}
	default:
		half := len(members) / 2
		c.decideBatch(life, members[:half])
		c.decideBatch(life, members[half:])
	}
}

// errMixed says that an event of a batch changed the session for those behind it.
var errMixed = errors.New("an event changed the session that it shares with others")

// persistBatch runs the transaction of a batch until it commits, waiting out
// outages, or until it turns out that it will not.
func (c batches) persistBatch(life delivery.Lifetime, b *batch) error {
	for {
		err := c.persistOnce(life, b)
		var member *delivery.MemberError
		switch {
		case life.IsOver() || !errors.As(err, &member):
			return err
		case !b.single && !delivery.IsAbandoned(err) && !delivery.IsEnded(err):
			b.single = true // which of them fail shows now
		default:
			b.single, b.failed[member.D] = true, delivery.FailureOf(member.Err) // it took the transaction with it
		}
	}
}

// persistOnce runs the transaction of a batch, waiting out outages.
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

// applyBatch is one transaction: the ledger rows, the handler for each event, what
// failed into held, the commit.
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
				d.Began = "" // the inbox has committed it, or may have
			}
		}
	}
	return err
}

// callMember runs the handler for one event of a batch. Behind a savepoint its
// failure undoes no other's effects.
func (c batches) callMember(ctx context.Context, tx *ledger.Tx, b *batch, d *delivery.Delivery) error {
	pending := tx.EnterMember(b.single)
	err := c.call(ctx, tx, d.Task)
	if delivery.IsAbandoned(err) { // the transaction is still in its handler's hands
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
	b.failed[d] = delivery.FailureOf(err)
	if silent {
		return nil
	}
	return tx.UndoMember(ctx)
}

// holdFailed holds the events that failed, in the transaction that decides them.
func (c batches) holdFailed(ctx context.Context, tx *ledger.Tx, b *batch, fresh map[string]bool) error {
	if len(b.failed) == 0 {
		return nil
	}
	var events []ledger.Owed
	for d, f := range b.failed {
		if fresh[d.Key] {
			events = append(events, c.owe(d, c.failed(1, c.sub.Attempts, f)))
		}
	}
	return c.ledger.HoldIn(ctx, tx, events)
}

// answerBatch acknowledges what a batch decided. Those that were decided before
// are looked at one by one: they may be other events under their identity.
func (c batches) answerBatch(life delivery.Lifetime, b *batch) {
	known := make(map[*delivery.Delivery]bool, len(b.known))
	for _, d := range b.known {
		known[d] = true
		c.loop.deliver(life, d)
	}
	for _, d := range b.members {
		f, failed := b.failed[d]
		switch {
		case known[d]:
			continue
		case failed:
			c.finish(life.Work, d, delivery.AsHeld(d, c.failed(1, c.sub.Attempts, f)))
		default:
			c.finish(life.Work, d, delivery.Result{Outcome: delivery.Done})
		}
	}
}
