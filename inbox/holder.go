package inbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/holder"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
)

// holds stores deliveries of a handler in the table held.
type holds struct {
	*loop

	owing sync.WaitGroup // counts the parcels of deliveries that are not finished yet

	// apart has the parcels that this handler stores or finishes itself, because Config.OnDead may have
	// to be called. OnDead may take long, and the holder works for all handlers. The field waiting
	// counts these parcels.
	apart   chan parcel
	waiting atomic.Int32
}

// parcel is a parcel with the fates of its deliveries; they are nil if it is not stored.
type parcel struct {
	holder.Parcel

	fates []delivery.Fate
}

// holdWithOthers queues a delivery, and the deliveries that follow it, for the holder. The holder
// stores all of them in the table held and finishes them.
func (c *holds) holdWithOthers(d *delivery.Delivery, h delivery.Holding, along ...*delivery.Delivery) delivery.Result {
	//planted:held-before-ack-turned-round do d.Source.Ack(context.Background(), d); @
	c.owing.Add(1)
	c.inbox.holder.Put(holder.Parcel{Owner: c, D: d, H: h, Along: along})
	return delivery.Result{}
}

// leaveToOthers holds or skips an event of a type that this process did not ask for. If another
// process of this handler asked for the type, leaveToOthers holds the event, and that process runs
// it. If no process asked for the type, leaveToOthers skips the event: it came only because its
// subject is the name of another type.
func (c *holds) leaveToOthers(life delivery.Lifetime, d *delivery.Delivery) delivery.Result {
	asked := true
	err := c.persist(life, func() (err error) {
		asked, err = c.isAskedFor(life.Work, d.Event)
		return err
	})
	switch {
	case err != nil:
		return delivery.HandedBack
	case asked && c.external != nil:
		return c.holdWithOthers(d, delivery.Holding{After: delivery.AtOnce})
	case asked:
		return c.hold(life, d, delivery.Holding{After: delivery.AtOnce})
	default:
		return delivery.Result{Outcome: delivery.Skipped}
	}
}

// isAskedFor reports whether the database records that a process of this handler asked
// for events of this type.
func (c *holds) isAskedFor(ctx context.Context, ev postroom.Event) (bool, error) {
	if len(c.sub.Types) == 0 {
		return true, nil
	}
	types, err := c.records.AskedFor(ctx)
	return err == nil && (types == nil || slices.Contains(types, ev.Type)), delivery.Written(err)
}

// hold stores an event in the table held instead of handling the event now.
func (c *holds) hold(life delivery.Lifetime, d *delivery.Delivery, h delivery.Holding) delivery.Result {
	became := delivery.FateDecided
	write := func() (err error) {
		became, err = deaths{c.loop}.store(life.Work, c.owe(d, h))
		return err
	}
	//guard:held-before-ack do d.Source.Ack(life.Work, d); @
	err := c.persist(life, write)
	var death *delivery.DeathError
	if errors.As(err, &death) && !life.IsStopping() {
		if h, may := untold(life.Work, c.log, d.Task, h, err); may {
			return c.hold(life, d, h)
		}
		return delivery.CannotHold(d, h, err)
	}
	if delivery.IsAboutTheRow(err) && !h.Raw {
		// The event could be decoded, but a column of the table refuses a value of it: keep the
		// message as it came.
		d, h = delivery.Unreadable(d), delivery.Holding{Failure: h.Failure, Raw: true}
		if h.Failure == nil {
			h.Failure = &delivery.Failure{Class: delivery.ClassUndecodable, Text: guard.Clean(err.Error(), guard.MaxText)}
		}
		err = c.persist(life, write)
	}
	switch {
	case err != nil && (life.IsStopping() || life.IsOver()):
		return delivery.HandedBack
	case err != nil:
		c.log.ErrorContext(life.Work, "event not held, it stays in the stream", "event_id", d.Event.ID, "dedupe_key", d.Key, "error", err)
		return delivery.CannotHold(d, h, err)
	default:
		return c.fated(life, d, h, became)
	}
}

// fated returns the result of a delivery. became is its fate, as the database reported it.
func (c *holds) fated(life delivery.Lifetime, d *delivery.Delivery, h delivery.Holding, became delivery.Fate) delivery.Result {
	//guard:an-event-that-is-held-already-knows-who-held-it false
	if became != delivery.FateHeld {
		if r, own := c.own(life, d); own {
			return r
		}
	}
	switch became {
	case delivery.FateHeld:
		return delivery.AsHeld(d, h)
	case delivery.FateFree:
		return c.again(d)
	case delivery.FateLate:
		return c.hold(life, d, delivery.AsLate)
	case delivery.FateStale:
		return delivery.HandedBack
	case delivery.FateDecided:
	}
	c.keys.Doubt(c.keyOf(d))
	//guard:a-failure-that-the-handler-committed-is-held remove
	if r, held := c.holdCommitted(life, d); held {
		return r
	}
	same := true
	err := c.persist(life, func() (err error) {
		same, err = c.inbox.db.Same(life.Work, c.sub.Name, d.Task)
		return delivery.Written(err)
	})
	switch {
	case err != nil:
		return delivery.HandedBack
	case same:
		return delivery.Result{Outcome: delivery.Duplicate}
	}
	return c.hold(life, delivery.Conflicting(d), delivery.AsConflict)
}

// own returns the result of a delivery that is decided because of a transaction of this process whose
// commit was not answered. For any other delivery it returns false.
func (c *holds) own(life delivery.Lifetime, d *delivery.Delivery) (delivery.Result, bool) {
	if len(d.Doubts) == 0 {
		return delivery.Result{}, false
	}
	ids := make([]string, len(d.Doubts))
	for i, doubt := range d.Doubts {
		ids[i] = doubt.ID
	}
	writer := ""
	err := c.persist(life, func() (err error) {
		writer, err = c.inbox.db.Writer(life.Work, c.sub.Name, d.Key, ids)
		return delivery.Written(err)
	})
	i := slices.Index(ids, writer)
	switch {
	case err != nil: // the process stops
		return delivery.HandedBack, true
	case i < 0:
		return delivery.Result{}, false
	case d.Doubts[i].Held != nil:
		return delivery.AsHeld(d, *d.Doubts[i].Held), true
	}
	c.gate.Succeeded(d.Key)
	return delivery.Result{Outcome: delivery.Done}, true
}

// holdCommitted checks whether the delivery is decided only because a handler committed the
// transaction itself and then failed. Such a delivery must not count as done, because the inbox
// does not know what the handler did. So holdCommitted holds the delivery and returns the result.
// For any other delivery it returns false.
func (c *holds) holdCommitted(life delivery.Lifetime, d *delivery.Delivery) (delivery.Result, bool) {
	if d.Began == "" {
		return delivery.Result{}, false
	}
	committed := false
	err := c.persist(life, func() (err error) {
		committed, err = c.inbox.db.WasCommitted(life.Work, d.Began)
		return delivery.Written(err)
	})
	if err != nil {
		c.log.ErrorContext(life.Work, "cannot check whether the handler committed its transaction", "event_id", d.Event.ID, "dedupe_key", d.Key, "error", err)
		return delivery.HandedBack, true
	}
	d.Began = ""
	if !committed {
		return delivery.Result{}, false
	}
	f := delivery.FailureOf(&delivery.EndedError{Committed: true})
	return c.hold(life, d, delivery.Holding{Failure: &f, Attempts: 1, Decided: true}), true
}

// moved logs and counts an event that is now held, or still held. It makes the runner look again
// when the event is due.
func (c *holds) moved(ctx context.Context, t delivery.Task, from string, to delivery.Outcome, h delivery.Holding) {
	c.signals.Moved(ctx, t, from, to, h)
	if h.After != nil {
		c.inbox.runner.Wake(*h.After)
	}
}

// holdBehind holds a delivery behind the held event of its key, together with the deliveries that
// wait for this delivery. If no event of the key is held any more, all of them run instead.
// holdBehind leaves out deliveries of another term: the database might refuse the deliveries of one
// term and store those of the other, and the order of the key would be lost.
func (c *holds) holdBehind(d *delivery.Delivery) delivery.Result {
	bytes := len(d.Event.Data)
	along := c.flights.Along(d, holder.Most-1, func(o *delivery.Delivery) bool {
		if bytes += len(o.Event.Data); bytes > holder.MostBytes {
			return false
		}
		//guard:one-term-at-a-time 1,2 true
		return o.Source == d.Source && !o.IsOver() && c.isStraight(o)
	})
	return c.holdWithOthers(d, delivery.BehindKey, along...)
}

// finishTogether finishes a parcel: a delivery that was to be held, and the deliveries that
// followed it. They have one key and one term, so all of them may run, or none may. If the term
// ends while the parcel is stored, its last deliveries can be stale, and are handed back.
func (c *holds) finishTogether(life delivery.Lifetime, p holder.Parcel, became []delivery.Fate) {
	if became[0] == delivery.FateFree {
		c.flights.Back(p.D, p.Along)
		c.again(p.D)
		return
	}
	for i, d := range p.Along {
		c.finish(life.Work, d, c.fated(life, d, p.H, became[1+i]))
	}
	c.finish(life.Work, p.D, c.fated(life, p.D, p.H, became[0])) // last, because this starts the next delivery of its key
}

// again queues a delivery once more. The delivery should have waited behind a held event of its
// key, but by now no event of the key is held.
func (c *holds) again(d *delivery.Delivery) delivery.Result {
	c.keys.Doubt(delivery.Bounded(d.Event.Key))
	c.lanes.Put(d)
	return delivery.Result{}
}

// waitBehind makes a delivery wait for its key: briefly in memory, or for long in the table held.
func (c *holds) waitBehind(d *delivery.Delivery) delivery.Result {
	if c.keys.Park(d, c.unpark) {
		return delivery.Result{}
	}
	return c.holdBehind(d)
}

// unpark queues the delivery that waits in memory for a key, if there is one.
func (c *holds) unpark(key string) {
	if d := c.keys.Unpark(key); d != nil {
		c.lanes.Put(d)
	}
}

// newHolder returns the part of the inbox that holds the deliveries of all handlers together.
func newHolder(in *Inbox) *holder.Holder {
	room := 0
	for _, c := range in.loops {
		room += c.inflight.Most()
	}
	return holder.New(storing(in), room, in.cfg.DrainTimeout)
}

// storing returns a function that stores parcels of several handlers with one statement.
func storing(in *Inbox) holder.Store {
	return func(life delivery.Lifetime, parcels []holder.Parcel) (fates []delivery.Fate, err error) {
		var events []ledger.Owed
		for _, p := range parcels {
			c := p.Owner.(*holds)
			for _, d := range append([]*delivery.Delivery{p.D}, p.Along...) {
				events = append(events, c.owe(d, p.H))
			}
		}
		err = parcels[0].Owner.(*holds).persist(life, func() (err error) {
			fates, err = in.db.Store(life.Work, events...)
			return delivery.Written(err)
		})
		return fates, err
	}
}

// IsStale implements [holder.Owner]. If the term of an external handler's delivery is over, IsStale
// hands the delivery back and returns true: an earlier event of the key may have been handed back
// too, and must be held before this one. For other handlers IsStale returns false.
func (c *holds) IsStale(ctx context.Context, d *delivery.Delivery) bool {
	if c.external == nil || !d.IsOver() {
		return false
	}
	c.finish(ctx, d, delivery.HandedBack)
	c.owing.Done()
	return true
}

// TakeBack implements [holder.Owner].
func (c *holds) TakeBack(p holder.Parcel) bool {
	// An ordered external handler stores its events in their order.
	//guard:no-event-overtakes-one-that-becomes-dead 2 false
	//guard:what-the-holder-stores-becomes-dead-beside-it 1 false
	if c.inbox.tells(p.H) || c.external != nil && c.isOrdered() && c.waiting.Load() > 0 {
		c.setApart(parcel{Parcel: p})
		return true
	}
	return false
}

// Finish implements [holder.Owner].
func (c *holds) Finish(life delivery.Lifetime, p holder.Parcel, fates []delivery.Fate) {
	//guard:what-the-holder-finishes-becomes-dead-beside-it false
	if c.inbox.cfg.OnDead != nil && mayDie(fates) {
		c.setApart(parcel{p, fates})
		return
	}
	c.end(life, parcel{p, fates})
}

// mayDie reports whether a delivery of a parcel may become dead when the parcel is finished.
func mayDie(fates []delivery.Fate) bool {
	return fates == nil || slices.ContainsFunc(fates, func(f delivery.Fate) bool { return f != delivery.FateHeld && f != delivery.FateFree })
}

// setApart queues a parcel for the goroutine of endAll. It does not block, because there is room for
// every delivery in memory.
func (c *holds) setApart(p parcel) {
	c.waiting.Add(1)
	c.apart <- p
}

// endAll finishes the parcels that are set apart, until the channel is closed. When the process stops,
// it gives back those that are not stored.
func (c *holds) endAll(life delivery.Lifetime) {
	for p := range c.apart {
		switch {
		case p.fates == nil && c.IsStale(life.Work, p.D):
		case p.fates == nil && life.IsStopping():
			c.flights.Back(p.D, p.Along)
			c.finish(life.Work, p.D, delivery.HandedBack)
			c.owing.Done()
		default:
			c.end(life, p)
		}
		c.waiting.Add(-1)
	}
}

// end finishes a parcel. If it is not stored, end holds its first delivery.
func (c *holds) end(life delivery.Lifetime, p parcel) {
	defer c.owing.Done()
	if p.fates == nil {
		c.flights.Back(p.D, p.Along)
		c.finish(life.Work, p.D, c.hold(life, p.D, p.H))
		return
	}
	c.finishTogether(life, p.Parcel, p.fates)
}
