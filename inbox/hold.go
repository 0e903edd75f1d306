package inbox

import (
	"fmt"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// aside returns how a delivery is held that must not take the straight path, and
// whether it is one.
func (c *loop) aside(d *delivery.Delivery) (delivery.Holding, bool) {
	switch {
	case d.Fault != nil:
		return delivery.Holding{Failure: d.Fault, Raw: d.Fault.Class == delivery.ClassUndecodable}, true
	case d.Place.Rewound && c.isOrdered():
		return delivery.AsLate, true
	case c.isTooOld(d):
		return delivery.Holding{Failure: &delivery.Failure{Class: delivery.ClassTooOld, Permanent: true, Text: fmt.Sprintf(
			"logged at %s: the ledger, which keeps rows for %s, cannot tell whether it was decided",
			d.Event.LoggedAt.UTC().Format(time.RFC3339), c.inbox.cfg.Ledger)}}, true
	case d.Place.Delivered > suspectAfter || d.Source.Suspects():
		// It may be what ends the processes that take it, or it only stood beside that.
		return delivery.Holding{After: delivery.AtOnce, Solitary: true}, true
	}
	return delivery.Holding{}, false
}

// suspectAfter is how often an event is delivered before it is run alone. The
// broker counts deliveries, not attempts, and those of a process killer's
// neighbours too.
const suspectAfter = 3

// isTooOld reports whether a ledger row of the event may have expired. What was
// in the stream when the handler was new never had one.
func (c *loop) isTooOld(d *delivery.Delivery) bool {
	return !d.Place.Ageless && d.Age(c.inbox.clock.now()) > c.inbox.cfg.AgeGate
}

// owe returns an event as it is to be held.
func (h *handler) owe(d *delivery.Delivery, as delivery.Holding) ledger.Owed {
	return ledger.Owed{Handler: h.sub.Name, Blocking: h.blocks(d, as), D: d, H: as}
}
