package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dispatch"
	"github.com/postroom/postroom/inbox/internal/invoke"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/share"
	"github.com/postroom/postroom/inbox/internal/signals"
	"github.com/postroom/postroom/inbox/internal/stream"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/sleep"
)

// loop runs one handler: its reader delivers events, its workers process them, and it
// finishes each delivery. It implements postroom.Runner.
type loop struct {
	*handler

	inbox    *Inbox
	records  ledger.Records
	reader   stream.Reader // nil if the events come from Accept
	inflight *stream.InFlight
	flights  *dispatch.Duplicates
	lanes    *dispatch.Lanes
	keys     dispatch.Keys // used by an ordered handler
	invoker  *invoke.Invoker
	retries  *retries
	holds    *holds
	acks     chan *delivery.Delivery // deliveries that are committed and not finished yet
}

func newLoop(in *Inbox, h *handler) *loop {
	c := &loop{
		inbox: in, handler: h,
		records: ledger.Records{
			Db: in.db, Process: in.node.Name(), Handler: h.sub.Name, Ordered: h.isOrdered(),
			Stream: h.sub.Stream, Types: h.sub.Types, Filter: h.sub.filter(), OwnKeys: h.sub.DedupeKey != nil,
		},
	}
	c.retries, c.holds = &retries{loop: c}, &holds{loop: c}
	return c
}

// orderedHand is the smallest limit for the number of events that an ordered handler has in memory.
const orderedHand = 2048

// orderedLinger is how long the reader of an ordered handler waits for room for many messages.
const orderedLinger = 20 * time.Millisecond

// open creates the queues of a run. The lanes have room for every delivery in memory, so sending to
// a lane does not block.
func (c *loop) open() {
	queues, most := 1, 8*c.workers
	if c.sub.Batch > 1 {
		queues, most = c.workers, 2*c.workers*c.sub.Batch
	}
	if c.isOrdered() { // because a slow key must not stop the reader from reading other keys
		most = max(most, orderedHand)
	}
	if c.inflight == nil {
		allowed := c.gate.Allowed
		if c.external != nil { // because it stores events even while it is paused
			allowed = nil
		}
		bytes, _ := share.Bytes(c.inbox.needs(), c.inbox.cfg.PullBytes)
		linger := time.Duration(0)
		if c.isOrdered() {
			linger = orderedLinger
		}
		c.inflight = stream.NewInFlight(most, bytes, linger, allowed)
		c.reader = newReader(c)
	}
	c.flights, c.lanes = dispatch.NewDuplicates(), dispatch.NewLanes(queues, most)
	c.invoker, c.acks = invoke.New(c.sub.Timeout, c.workers, c.sub.Classify), make(chan *delivery.Delivery, most)
	c.holds.apart = make(chan parcel, c.inflight.Most())
	c.retries.open()
}

// newReader returns the reader of the handler's stream, or nil if the handler has no stream.
func newReader(c *loop) stream.Reader {
	cfg := stream.Config{
		Conn: c.inbox.nc, Handler: c.sub.Name, Stream: c.sub.Stream, Filter: c.sub.filter(), DeliverNew: c.sub.From == DeliverNew,
		Instance: c.inbox.node.Instance, InFlight: c.inflight, Pending: c.pending, Log: c.log,
		Reads:   func() { c.inbox.state.reads(c.sub.Name, nil) },
		AckWait: c.inbox.cfg.AckWait, LookEvery: c.inbox.lookEvery, FloorEvery: c.inbox.floorEvery,
		OwnKeys: c.sub.DedupeKey != nil,
	}
	switch {
	case c.sub.Stream == "":
		return nil
	case c.isOrdered():
		return stream.NewOrderedReader(cfg, &c.records, c)
	}
	return stream.NewDurableReader(cfg, &c.records, c)
}

// Run handles events until ctx ends. If the durable consumer is lost, Run creates it
// again. The inbox recognises events that the new consumer delivers a second time.
func (c *loop) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	life, cancel := delivery.NewLifetime(ctx, c.inbox.cfg.DrainTimeout)
	defer cancel()
	beating, still := context.WithCancel(life.Work)
	defer still()

	var workers, acks, apart, beats sync.WaitGroup
	if c.reader != nil {
		beats.Go(func() { c.reader.Beat(beating) })
	}
	acks.Go(func() { c.acknowledge(life.Work) })
	apart.Go(func() { c.holds.endAll(life) })
	workers.Go(func() { c.watcher().Run(life.Take) })
	if c.external != nil {
		workers.Go(func() { c.storeAll(life) })
	}
	for i := range c.workers {
		workers.Go(func() { c.work(life, c.lane(i)) })
	}
	err := c.read(life)
	stop()
	c.handBackRest(life.Work) // before the running handlers end, because these deliveries need not wait for them
	workers.Wait()
	c.holds.owing.Wait()
	close(c.holds.apart)
	apart.Wait()
	close(c.acks)
	acks.Wait()
	c.handBackRest(life.Work)
	still()
	beats.Wait()
	if c.reader != nil {
		c.reader.Leave(life.Work)
	}
	return err
}

// read reads the stream until ctx ends. It returns only errors that a person must correct.
func (c *loop) read(life delivery.Lifetime) error {
	if c.reader == nil { // the events come from Accept
		<-life.Take.Done()
		return nil
	}
	for failures := 1; !life.IsStopping(); failures++ {
		began := time.Now()
		err := c.reader.Read(life)
		if errors.Is(err, postroom.ErrUnrecoverable) {
			return fmt.Errorf("handler %s: %w", c.sub.Name, err)
		}
		if life.IsStopping() {
			return nil
		}
		if time.Since(began) > time.Minute {
			failures = 1
		}
		err = c.inbox.advise(stream.Plain(err, c.inbox.nc))
		c.inbox.state.reads(c.sub.Name, err)
		c.inbox.lines.Warn(life.Take, c.log, "reading interrupted, will begin again", err, "failures", failures)
		sleep.For(life.Take, outage.Delay(failures))
	}
	return nil
}

// Take queues a delivery. If another delivery with the same Flight is under way, the delivery waits
// until the other one is finished. Take implements stream.Receiver.
func (c *loop) Take(ctx context.Context, d *delivery.Delivery) {
	c.signals.Consumed(ctx)
	d.Identify(c.sub.DedupeKey, c.sub.Timeout)
	keyed := c.isKeyed(d)
	switch {
	case keyed && c.external == nil:
		d.Flight = "\x00" + d.Event.Key // no dedupe key begins with \x00
	case keyed:
		// The holder, which stores deliveries in the table held, takes them as they come. Flight
		// contains the epoch: if an event is read again in a later term, the second delivery does
		// not wait for the first. So it reaches the holder before later events of its key.
		d.Flight = fmt.Sprintf("\x00%d %s", d.Epoch(), d.Key)
	}
	if c.flights.Begin(d) {
		c.lanes.Put(d)
	} else if keyed && c.flights.Queued(d) > dispatch.MaxParkQueue {
		c.holds.unpark(delivery.Bounded(d.Event.Key))
	}
}

// later makes a delivery of an ordered handler wait in memory, because it could not even be held. If
// later events of its key need not wait for it, they go on, and it will not run any more. later
// reports whether there was room.
func (c *loop) later(d *delivery.Delivery, of *delivery.Unheld) bool {
	//guard:what-cannot-be-held-beside-the-order-stops-no-key false
	if of != nil && c.isKeyed(d) && c.blocks(of.As, of.H) == "" {
		next := c.flights.End(d)
		d.Flight, d.Unheld = "", of
		if next != nil {
			defer c.lanes.Put(next)
		}
	}
	messages, bytes := c.inflight.Spare()
	return c.keys.Later(d, stream.SizeOf(d.Msg), dispatch.Room{Messages: messages, Bytes: bytes}, c.holds.unpark)
}

// Begin lets events go on that wait for a dead event, unless the handler holds its keys: it may have
// held them before. For an ordered handler, Begin then reads which keys have held events. That may
// take long, but the lease is renewed meanwhile. The previous reader no longer has the lease, so it can
// hold no further events. Events that it is storing at this moment may be missing here, but this
// reader will find that they are decided.
func (c *loop) Begin(ctx context.Context) error {
	//guard:events-behind-a-dead-event-go-on-when-keys-are-not-held false
	if c.sub.Order != HoldKey {
		if found, err := c.records.SkipDead(ctx); err != nil {
			return err
		} else if found {
			c.inbox.runner.Wake(0)
		}
	}
	if !c.isOrdered() {
		return nil
	}
	keys, err := c.records.HeldKeys(ctx, dispatch.MaxKeys+1)
	if err != nil {
		return err
	}
	for _, key := range keys {
		c.keys.Hold(key, time.Time{})
	}
	return nil
}

// Undecided returns the first of the deliveries that has no inbox row and should have one, or nil. It
// implements stream.Receiver, for handlers without a DedupeKey function.
func (c *loop) Undecided(ctx context.Context, all []*delivery.Delivery) (*delivery.Delivery, error) {
	var keys []string
	var old []bool
	for _, d := range all {
		d.Identify(nil, 0)
		if guard.Clean(d.Key, len(d.Key)) != d.Key { // the database could store no such key
			continue
		}
		keys, old = append(keys, d.Key), append(old, c.isOld(d))
	}
	if len(keys) == 0 {
		return nil, nil //nolint:nilnil // all are decided
	}
	lacking, err := c.records.Lacking(ctx, keys, old)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if !slices.Contains(lacking, d.Key) {
			continue
		}
		if d.Fault != nil {
			return d, nil
		}
		//guard:an-event-that-no-process-asked-for-is-not-missing 2 = true || err != nil
		if asked, err := c.holds.isAskedFor(ctx, d.Event); asked || err != nil {
			return d, err
		}
	}
	return nil, nil //nolint:nilnil // all are decided
}

// Lost counts one loss of events, for an alert.
func (c *loop) Lost(ctx context.Context, reason string) {
	c.signals.Lost(ctx, reason)
}

// work processes deliveries, and runs held events that are due, until the process stops.
func (c *loop) work(life delivery.Lifetime, lane <-chan *delivery.Delivery) {
	for !life.IsStopping() {
		select {
		case <-life.Take.Done():
		case cl := <-c.retries.queue.Next():
			c.retries.run(life, cl, lane)
		case d := <-lane:
			switch {
			case life.IsStopping():
				c.finish(life.Work, d, delivery.HandedBack)
			case c.sub.Batch > 1:
				c.deliverBatch(life, d, lane)
			default:
				c.deliverRun(life, ledger.NewAhead(lane, d))
			}
		}
	}
}

// storeAll holds the events that are delivered to an external handler. The handler's
// workers do not do that, because all of them may be busy with long calls.
func (c *loop) storeAll(life delivery.Lifetime) {
	for !life.IsStopping() {
		select {
		case <-life.Take.Done():
		case d := <-c.lanes.Of(0):
			if life.IsStopping() {
				c.finish(life.Work, d, delivery.HandedBack)
				continue
			}
			c.deliver(life, d)
		}
	}
}

// lane returns the queue of a worker. A worker of an external handler has no queue,
// because it runs only held events.
func (c *loop) lane(worker int) <-chan *delivery.Delivery {
	if c.external != nil {
		return nil
	}
	return c.lanes.Of(worker)
}

// deliverRun decides the delivery in the parameter next and the deliveries behind it, until none
// waits or the worker must do something else first. Each commit also begins the transaction of the
// next delivery. While a transaction is open the worker must not wait for the broker, so the
// goroutine of the method acknowledge finishes the committed deliveries.
func (c *loop) deliverRun(life delivery.Lifetime, next *ledger.Ahead) {
	for d := next.Pop(); d != nil; d = next.Pop() {
		pass, ok := c.enter(life, d, next)
		if !ok {
			c.finish(life.Work, d, delivery.HandedBack)
			continue
		}
		r := c.process(life, d, next)
		pass.Leave()
		if next.Opened != nil && r.Outcome == delivery.Done {
			c.acks <- d // does not block: there is room for every delivery in memory
		} else {
			c.finish(life.Work, d, r)
		}
		next.Drop(life.Work)
	}
}

// acknowledge finishes committed deliveries for workers that have their next transaction open.
func (c *loop) acknowledge(ctx context.Context) {
	for d := range c.acks {
		c.finish(ctx, d, delivery.Result{Outcome: delivery.Done})
	}
}

// handBackRest gives back to the broker the deliveries that wait for a worker or for their key.
func (c *loop) handBackRest(ctx context.Context) {
	for _, d := range c.keys.UnparkAll() {
		c.finish(ctx, d, delivery.HandedBack)
	}
	c.lanes.Drain(func(d *delivery.Delivery) { c.finish(ctx, d, delivery.HandedBack) })
}

// level returns how many deliveries the handler has in memory, and whether it is paused.
func (c *loop) level() signals.Level {
	l := signals.Level{
		Of: c.signals, InFlight: c.inflight.Len() + c.retries.queue.Claimed(), Capacity: c.inflight.Most() + c.retries.queue.Cap(),
	}
	state := c.gate.State()
	l.Paused, l.Operator = state.Paused, state.Operator
	if c.reader == nil {
		return l
	}
	if view := c.reader.View(); view != nil {
		l.Consumer = &signals.Consumer{Pending: view.Pending, AckPending: view.AckPending, Drifted: view.Drifted, Paused: view.Paused}
	}
	return l
}
