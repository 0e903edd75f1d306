package inbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
)

// holds stores deliveries of a handler in table held.
type holds struct {
	*loop

	owing sync.WaitGroup // counts the deliveries that the holder still has to hold
}

// holdWithOthers queues a delivery, and those that follow it, for the holder, which holds
// and finishes them.
func (c *holds) holdWithOthers(d *delivery.Delivery, h delivery.Holding, along ...*delivery.Delivery) delivery.Result {
	c.owing.Add(1)
	c.inbox.holder.queue <- parcel{c.loop, d, h, along} // does not block: there is room for every delivery in memory
	return delivery.Result{}
}

// leaveToOthers is for an event of a type that this process did not ask for. If another
// process of this handler asked for it, leaveToOthers holds the event, and that process
// runs it. If no process did, the event is skipped: its type differs from its subject.
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

// hold stores an event that is not handled now.
func (c *holds) hold(life delivery.Lifetime, d *delivery.Delivery, h delivery.Holding) delivery.Result {
	became := delivery.FateDecided
	write := func() error {
		fates, err := c.inbox.db.Store(life.Work, c.owe(d, h))
		if err != nil {
			return delivery.Written(err)
		}
		became = fates[0]
		return nil
	}
	err := c.persist(life, write)
	if delivery.IsAboutTheRow(err) && !h.Raw {
		// The event decoded, but a column refuses it: keep the message as it came.
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
		return delivery.Result{Outcome: delivery.Released, Err: err}
	default:
		return c.fated(life, d, h, became)
	}
}

// fated returns the result of a delivery that was to be held.
func (c *holds) fated(life delivery.Lifetime, d *delivery.Delivery, h delivery.Holding, became delivery.Fate) delivery.Result {
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

// holdCommitted checks whether the delivery is decided only because a handler committed
// the transaction itself and then failed. Such a delivery must not count as done, because
// the inbox does not know what the handler did: holdCommitted holds it. It returns the
// result, and whether it held the delivery.
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

// moved reports an event that is now held, or still held: to the log, to the counter of
// dead events, and to the runner, which runs it when it is due.
func (c *holds) moved(ctx context.Context, t delivery.Task, from string, to delivery.Outcome, h delivery.Holding) {
	log, say := c.log.WarnContext, "event not handled, will be tried again"
	args := []any{
		"event_id", t.Event.ID, "type", t.Event.Type, "dedupe_key", t.Key, "correlation_id", t.Event.CorrelationID,
		"attempt", h.Attempts, "from", from, "to", string(to),
	}
	if h.Failure != nil {
		args = append(args, "error_class", h.Failure.Class, "error", h.Failure.Text)
	}
	switch {
	case h.IsDiscarded():
		log, say = c.log.InfoContext, "event discarded by its handler"
	case h.After == nil:
		log, say = c.log.ErrorContext, "event dead"
		c.signals.Died(ctx, h.Failure.Class)
	case h.Failure == nil:
		log, say = c.log.DebugContext, "event held"
		c.inbox.runner.Wake(0)
	default:
		if h.Failure.Snoozed {
			say = "event snoozed"
		}
		args = append(args, "retry_in", *h.After)
		c.inbox.runner.Wake(*h.After)
	}
	log(ctx, say, args...)
}

// holdBehind holds a delivery behind its key, together with the deliveries of the key
// that wait for it. If no event of the key is held any more, they go on. Deliveries read
// in another term are not held with it: the database might refuse those of one term and
// store those of the other, and the order of the key would be lost.
func (c *holds) holdBehind(d *delivery.Delivery) delivery.Result {
	bytes := len(d.Event.Data)
	along := c.flights.Along(d, holdAtOnce-1, func(o *delivery.Delivery) bool {
		if bytes += len(o.Event.Data); bytes > holdBytes {
			return false
		}
		return o.Source == d.Source && !o.IsOver() && c.isStraight(o)
	})
	return c.holdWithOthers(d, delivery.BehindKey, along...)
}

// finishTogether finishes a delivery that was to be held, and those that followed it.
// They have one key and one term, so either all of them may go on, or none. The exception
// are the last ones, if their term ended meanwhile.
func (c *holds) finishTogether(life delivery.Lifetime, p parcel, became []delivery.Fate) {
	if became[0] == delivery.FateFree {
		c.flights.Back(p.d, p.along)
		c.again(p.d)
		return
	}
	for i, d := range p.along {
		c.finish(life.Work, d, c.fated(life, d, p.h, became[1+i]))
	}
	c.finish(life.Work, p.d, c.fated(life, p.d, p.h, became[0])) // last, because finishing it starts the next of its key
}

// again lets a delivery go on that was to wait behind its key: no event of the key is
// held any more.
func (c *holds) again(d *delivery.Delivery) delivery.Result {
	c.keys.Doubt(delivery.Bounded(d.Event.Key))
	c.lanes.Put(d)
	return delivery.Result{}
}

// waitBehind makes a delivery wait for its key: in memory if the wait is short, otherwise
// in held.
func (c *holds) waitBehind(d *delivery.Delivery) delivery.Result {
	if c.keys.Park(d, c.unpark) {
		return delivery.Result{}
	}
	return c.holdBehind(d)
}

// unpark lets the delivery go on that waits in memory for a key, if there is one.
func (c *holds) unpark(key string) {
	if d := c.keys.Unpark(key); d != nil {
		c.lanes.Put(d)
	}
}

// holder stores events in held that failed, or must not be handled directly from the
// stream. It stores all that wait in one statement, because a transaction for each would
// slow down the other events. It implements postroom.Runner.
type holder struct {
	inbox *Inbox
	queue chan parcel   // has room for every delivery in memory
	done  chan struct{} // closed when no parcel can come any more
}

// parcel is a delivery to hold, with those that follow it.
type parcel struct {
	c     *loop
	d     *delivery.Delivery
	h     delivery.Holding
	along []*delivery.Delivery
}

// bytes is the size of its data.
func (p parcel) bytes() int {
	n := len(p.d.Event.Data)
	for _, d := range p.along {
		n += len(d.Event.Data)
	}
	return n
}

// holdAtOnce is how many events one statement stores. The last parcel may exceed it.
const holdAtOnce = 100

// holdBytes is how many bytes one statement stores. The last parcel may exceed it. Until
// the statement ends, several copies of these bytes are in memory.
const holdBytes = 4 << 20

func newHolder(in *Inbox) *holder {
	room := 0
	for _, c := range in.loops {
		room += c.inflight.Most()
	}
	return &holder{inbox: in, queue: make(chan parcel, room), done: make(chan struct{})}
}

// Run stores the parcels that it gets, until the consumers have ended.
func (h *holder) Run(ctx context.Context) error {
	life, cancel := h.inbox.lifetime(ctx)
	defer cancel()
	for {
		select {
		case <-h.done:
			return nil
		case p := <-h.queue:
			h.hold(life, h.collect(p))
		}
	}
}

// How long the holder waits for more parcels. One statement for each event would cost
// more than the rest of its handling, and a failed event is in no hurry.
const (
	linger      = 20 * time.Millisecond
	shortLinger = 5 * time.Millisecond // if a parcel is to run at once
)

// collect returns a parcel, and those that come soon after it.
func (h *holder) collect(first parcel) []parcel {
	parcels, n, bytes := []parcel{first}, 1+len(first.along), first.bytes()
	wait := linger
	if first.h.After == delivery.AtOnce && !first.h.Behind { // this one is to run at once
		wait = shortLinger
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for n < holdAtOnce && bytes < holdBytes {
		select {
		case p := <-h.queue:
			parcels, n, bytes = append(parcels, p), n+1+len(p.along), bytes+p.bytes()
		case <-over.C:
			return parcels
		case <-h.done:
			return parcels
		}
	}
	return parcels
}

// hold stores the events, then finishes each according to its fate.
func (h *holder) hold(life delivery.Lifetime, parcels []parcel) {
	parcels = slices.DeleteFunc(parcels, func(p parcel) bool { return p.isStale(life.Work) })
	if len(parcels) == 0 {
		return
	}
	var events []ledger.Owed
	for _, p := range parcels {
		events = append(events, p.c.owe(p.d, p.h))
		for _, d := range p.along {
			events = append(events, p.c.owe(d, p.h))
		}
	}
	var fates []delivery.Fate
	err := parcels[0].c.persist(life, func() (err error) {
		fates, err = h.inbox.db.Store(life.Work, events...)
		return delivery.Written(err)
	})
	for _, p := range parcels {
		n := 1 + len(p.along)
		switch {
		case err == nil:
			p.c.holds.finishTogether(life, p, fates[:n])
			fates = fates[n:]
		case p.isStale(life.Work):
			continue
		default: // the database refuses one of them, or the process stops: treat each alone
			p.c.flights.Back(p.d, p.along)
			p.c.finish(life.Work, p.d, p.c.holds.hold(life, p.d, p.h))
		}
		p.c.holds.owing.Done()
	}
}

// isStale reports whether an event of an external handler was read in a term that is
// over, and hands it back if so: an earlier event of its key may have been handed back.
func (p parcel) isStale(ctx context.Context) bool {
	if p.c.external == nil || !p.d.IsOver() {
		return false
	}
	p.c.finish(ctx, p.d, delivery.HandedBack)
	p.c.holds.owing.Done()
	return true
}
