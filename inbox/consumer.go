package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dispatch"
	"github.com/postroom/postroom/inbox/internal/invoke"
	"github.com/postroom/postroom/inbox/internal/stream"
	"github.com/postroom/postroom/internal/telemetry"
)

// consumer is one handler at work. It implements postroom.Runner.
type consumer struct {
	inbox    *Inbox
	sub      Subscription
	handler  postroom.Handler
	external ExternalHandler // in place of handler
	log      *slog.Logger
	metrics  handlerMetrics
	workers  int

	idleLimit string // for how long, in milliseconds, a handler may leave its transaction idle
	subjects  subjects

	spanName    string
	spanOptions []trace.SpanStartOption

	records  records
	reader   stream.Reader // nil if its events are accepted
	inflight *stream.InFlight
	flights  *dispatch.Duplicates
	lanes    *dispatch.Lanes
	invoker  *invoke.Invoker
	acks     chan *delivery.Delivery // committed, to be acknowledged
	claims   chan *claim             // held events to run again
	claimed  atomic.Int32            // of them, those that are not answered
	blocked  dispatch.Keys           // of an ordered handler
	settling chan struct{}           // has one for each transaction in which an external handler settles
	owing    sync.WaitGroup          // has each failed delivery that the holder is to hold
}

func newConsumer(in *Inbox, sub Subscription, h postroom.Handler, external ExternalHandler) *consumer {
	sub = sub.defaults(external != nil)
	c := &consumer{
		inbox: in, sub: sub, handler: h, external: external, subjects: sub.Subjects,
		log: in.cfg.Logger.With("handler", sub.Name), metrics: in.metrics.of(sub.Name, sub.Stream),
	}
	c.records = records{inbox: in, handler: sub.Name, stream: sub.Stream, types: sub.Types, filter: sub.filter()}
	c.spanName, c.spanOptions = spanOf(sub)
	c.idleLimit = milliseconds(sub.Timeout + c.grace())
	return c
}

// lease is how long a claim lasts: until a handler that does not return is left
// behind, and its process has noted that. That of an external handler is renewed.
func (c *consumer) lease() time.Duration {
	if c.external != nil {
		return c.inbox.cfg.AckWait
	}
	return c.sub.Timeout + 2*c.grace()
}

// grace is how long a handler is waited for after its context ended.
func (c *consumer) grace() time.Duration { return invoke.Grace(c.sub.Timeout) }

// connections is how many connections of the pool a handler needs for itself; none
// where it takes what is left.
func (c *consumer) connections() int {
	if c.external != nil {
		return min(c.sub.Workers, externalSettles)
	}
	return c.sub.Workers
}

// leases is how many connections of the pool a handler needs to keep its leases.
func (c *consumer) leases() int {
	if c.isOrdered() {
		return 1
	}
	return 0
}

// orderedHand is how many events a reader has in hand at the least.
const orderedHand = 2048

// open makes what a run needs. The lanes have room for whatever is in hand.
func (c *consumer) open() {
	queues, most := 1, 8*c.workers
	if c.sub.Batch > 1 {
		queues, most = c.workers, 2*c.workers*c.sub.Batch
	}
	if c.isOrdered() { // a key that is slow is not to keep others from being read
		most = max(most, orderedHand)
	}
	if c.inflight == nil {
		c.inflight = stream.NewInFlight(most, c.inbox.share())
		c.reader = c.newReader()
	}
	c.flights, c.lanes = dispatch.NewDuplicates(), dispatch.NewLanes(queues, most)
	c.invoker, c.acks = invoke.New(c.sub.Timeout, c.workers), make(chan *delivery.Delivery, most)
	c.claims = make(chan *claim, max(1, c.workers/4))
	if c.isOrdered() { // what is held holds up more than itself
		c.claims = make(chan *claim, c.workers)
	}
	if c.external != nil {
		c.claims, c.settling = make(chan *claim, c.workers), make(chan struct{}, c.connections())
	}
	c.claimed.Store(0)
}

// newReader returns what reads the stream; nil if there is none.
func (c *consumer) newReader() stream.Reader {
	cfg := stream.Config{
		Conn: c.inbox.nc, Handler: c.sub.Name, Stream: c.sub.Stream, Filter: c.sub.filter(), OnlyNew: c.sub.From == OnlyNew,
		Instance: func() string { return *c.inbox.node.instance.Load() }, InFlight: c.inflight, Log: c.log,
		AckWait: c.inbox.cfg.AckWait, LookEvery: c.inbox.lookEvery, FloorEvery: c.inbox.floorEvery,
	}
	switch {
	case c.sub.Stream == "":
		return nil
	case c.isOrdered():
		return stream.NewOrdered(cfg, &c.records, c)
	}
	return stream.NewDurable(cfg, &c.records, c)
}

// Run handles events until ctx ends. Where the durable consumer is lost, it is
// made again, and the ledger absorbs what is delivered twice.
func (c *consumer) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	work, cancel := c.inbox.drain(ctx)
	defer cancel()
	beating, still := context.WithCancel(work)
	defer still()

	var workers, acks, beats sync.WaitGroup
	if c.reader != nil {
		beats.Go(func() { c.reader.Beat(beating) })
	}
	acks.Go(func() { c.acknowledge(work) })
	if c.external != nil {
		workers.Go(func() { c.storeAll(ctx, work) })
	}
	for i := range c.workers {
		workers.Go(func() { c.work(ctx, work, c.lane(i)) })
	}
	err := c.read(ctx, work)
	stop()
	c.handBackRest(work) // what was not begun does not wait for what was
	workers.Wait()
	c.owing.Wait()
	close(c.acks)
	acks.Wait()
	c.handBackRest(work)
	still()
	beats.Wait()
	if c.reader != nil {
		c.reader.Leave(work)
	}
	return err
}

// read takes events from the stream until ctx ends. It returns an error only for
// what a person has to mend.
func (c *consumer) read(ctx, work context.Context) error {
	if c.reader == nil { // its events are accepted
		<-ctx.Done()
		return nil
	}
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := c.reader.Read(ctx, work)
		if errors.Is(err, postroom.ErrRefused) {
			return fmt.Errorf("handler %s: %w", c.sub.Name, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > time.Minute {
			failures = 1
		}
		c.inbox.lines.Warn(ctx, c.log, "reading interrupted, will begin again", c.inbox.advise(plain(err)), "failures", failures)
		sleep(ctx, outage.Delay(failures))
	}
	return nil
}

// plain returns an error in words that say what is the matter. Of a broker that is away
// the client library says that what it keeps for it is full; here it keeps nothing.
func plain(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return errNoBroker
	}
	return err
}

var errNoBroker = errors.New("no connection to the broker")

// Take queues a delivery, unless another of its key or of its identity is on its way. It
// implements stream.Receiver.
func (c *consumer) Take(ctx context.Context, d *delivery.Delivery) {
	c.metrics.consumed.Add(ctx, 1, c.metrics.stream)
	d.Identify(c.sub.DedupeKey, c.sub.Timeout)
	keyed := c.isKeyed(d)
	switch {
	case keyed && c.external == nil:
		d.Flight = "\x00" + d.Event.Key // no dedupe key begins so
	case keyed:
		// The holder takes them as they come. One that waited for itself, as it was read in
		// an earlier term, would come behind others of its key.
		d.Flight = fmt.Sprintf("\x00%d %s", d.Epoch(), d.Key)
	}
	if c.flights.Begin(d) {
		c.lanes.Put(d)
	} else if keyed && c.flights.Queued(d) > dispatch.MaxParkQueue {
		c.unpark(delivery.Bounded(d.Event.Key))
	}
}

// Begin reads of which keys something is held, which may take long: the lease is
// looked after meanwhile. It was taken before: whoever
// read until then holds nothing any more, but what is under way, which this reader
// meets as decided.
func (c *consumer) Begin(ctx context.Context) error {
	keys, err := c.records.HeldKeys(ctx, dispatch.MaxKeys+1)
	if err != nil {
		return err
	}
	for _, key := range keys {
		c.blocked.Hold(key, time.Time{})
	}
	return nil
}

// Lost counts what is to alarm.
func (c *consumer) Lost(ctx context.Context, reason string) {
	c.metrics.lost.Add(ctx, 1, telemetry.With(telemetry.Handler.String(c.sub.Name), telemetry.Reason.String(reason)))
}

// work decides deliveries, and runs held events that are due, until ctx ends.
func (c *consumer) work(ctx, work context.Context, lane <-chan *delivery.Delivery) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case cl := <-c.claims:
			c.retryRun(ctx, work, cl, lane)
		case d := <-lane:
			switch {
			case ctx.Err() != nil:
				c.handBack(work, d)
			case c.sub.Batch > 1:
				c.deliverBatch(ctx, work, dispatch.Collect(d, lane, c.sub.Batch))
			default:
				c.deliverRun(ctx, work, &ahead{lane: lane, d: d})
			}
		}
	}
}

// lane returns what waits for a worker. Those of an external handler only run what
// is held.
func (c *consumer) lane(worker int) <-chan *delivery.Delivery {
	if c.external != nil {
		return nil
	}
	return c.lanes.Of(worker)
}

// deliverRun decides the delivery ahead, and those that wait behind it for as long as
// nothing else has to come before: the commit of each begins the next.
func (c *consumer) deliverRun(ctx, work context.Context, next *ahead) {
	for d := next.pop(); d != nil; d = next.pop() {
		c.deliver(ctx, work, d, next)
		next.drop(work)
	}
}

// acknowledge answers for what workers committed while they had the transaction of
// the next delivery open: that must not wait for the broker.
func (c *consumer) acknowledge(ctx context.Context) {
	for d := range c.acks {
		c.answer(ctx, d, delivery.Done)
	}
}

// handBackRest returns to the broker what waits for a worker, or for its key.
func (c *consumer) handBackRest(ctx context.Context) {
	for _, d := range c.blocked.UnparkAll() {
		c.handBack(ctx, d)
	}
	c.lanes.Drain(func(d *delivery.Delivery) { c.handBack(ctx, d) })
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
