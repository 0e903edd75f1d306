package inbox

import (
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dispatch"
	"github.com/postroom/postroom/inbox/internal/gate"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// Pause says when a handler pauses because what it needs is away. Each process decides for
// itself. While a handler is paused, its process reads nothing from the stream, and tries
// one event at a time as a probe. The first success resumes the handler. An event loses at
// most one attempt by the failures that caused a pause and by those during it. Failures that
// are about the event ([postroom.Permanent], [postroom.Discard]) neither cause a pause nor
// end it; after one, the next probe follows at once.
type Pause struct {
	Off bool // turns pauses off

	// Events is how many different events have to be tried within Window.
	//
	// Defaults to 20.
	Events int

	// Share is which share of these has to fail, more than 0 and at most 1.
	//
	// Defaults to 0.8.
	Share float64

	// Window is the time within which events are counted, from 1 s to 10 minutes.
	//
	// Defaults to a minute.
	Window time.Duration

	// Probe is how long after the pause began the first probe is made. Each further one is
	// made after twice the time, and at most after MaxProbe.
	//
	// Defaults to 1 second, and MaxProbe to a minute.
	Probe, MaxProbe time.Duration
}

// enter waits until a delivery may run. A transaction that was begun for it does not wait
// along. It returns false if the process stops.
func (c *loop) enter(life delivery.Lifetime, d *delivery.Delivery, next *ledger.Ahead) (gate.Pass, bool) {
	if c.gate.IsOpen() || !c.isStraight(d) || c.external != nil { // it runs, or is only held
		return gate.Pass{}, true
	}
	next.Drop(life.Work)
	return c.gate.Enter(life.Take, d.Key)
}

// deliverBatch decides a delivery with those that wait behind it; a probe decides one.
func (c *loop) deliverBatch(life delivery.Lifetime, d *delivery.Delivery, lane <-chan *delivery.Delivery) {
	pass, ok := c.enter(life, d, nil)
	defer pass.Leave()
	switch {
	case !ok:
		c.finish(life.Work, d, delivery.HandedBack)
	case pass.Probe:
		c.deliver(life, d)
	default:
		batchesOf(c).DeliverAll(life, dispatch.Collect(d, lane, c.sub.Batch))
	}
}

// watcher returns what tells of the handler's pauses.
func (c *loop) watcher() gate.Watcher {
	return gate.Watcher{
		Gate: c.gate, Handler: c.sub.Name, Log: c.log, Warn: c.inbox.warn, GiveBack: ledger.Claims{DB: c.inbox.db}.GiveBack,
		Wake: func() { c.inflight.Wake(); c.inbox.runner.Wake(0) }, Report: c.inbox.node.Beat,
	}
}
