package inbox

import (
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dispatch"
	"github.com/postroom/postroom/inbox/internal/gate"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// Pause says when a handler pauses because something that it needs is unavailable. Each process
// decides for itself. While a handler is paused, its process runs only one event at a time, as a
// probe, and reads no others. (An external handler still reads the others and holds them.) The
// first success resumes the handler. The failures that cause a pause, and the failures during the
// pause, together cost an event at most one attempt. Failures that are about the event itself
// ([postroom.Permanent], [postroom.Discard], [postroom.ErrUnknownType]) neither cause a pause nor
// end it. If a probe fails in that way, the next probe follows at once.
// The first probe follows a second after the beginning of the pause. The wait doubles before each
// further probe, up to a minute.
type Pause struct {
	Off bool // if true, the handler never pauses

	// Events is how many different events must be tried within Window before the handler can pause.
	// It pauses if four in five of them fail.
	//
	// Defaults to 20.
	Events int

	// Window is the time within which events are counted, from 1 s to 10 minutes.
	//
	// Defaults to a minute.
	Window time.Duration

	probe, maxProbe time.Duration // only tests set them
}

func (p Pause) gate() gate.Config {
	return gate.Config{Off: p.Off, Events: p.Events, Window: p.Window, Probe: p.probe, MaxProbe: p.maxProbe}
}

// enter waits until a delivery may run. If it has to wait, it drops the transaction that
// was begun for the delivery. It returns false if the process stops.
func (c *loop) enter(life delivery.Lifetime, d *delivery.Delivery, next *ledger.Ahead) (gate.Pass, bool) {
	if c.gate.IsOpen() || !c.isStraight(d) || c.external != nil { // the handler is not paused, or does not run for this delivery now
		return gate.Pass{}, true
	}
	next.Drop(life.Work)
	return c.gate.Enter(life.Take, d.Key)
}

// deliverBatch decides a delivery and the deliveries that wait behind it. A probe is decided alone.
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

// watcher returns the part of the loop that logs and counts the handler's pauses.
func (c *loop) watcher() gate.Watcher {
	return gate.Watcher{
		Gate: c.gate, Handler: c.sub.Name, Log: c.log, Warn: c.inbox.warn, GiveBack: ledger.Claims{DB: c.inbox.db}.GiveBack,
		Wake: func() { c.inflight.Wake(); c.inbox.runner.Wake(0) }, Report: c.inbox.node.Beat,
	}
}
