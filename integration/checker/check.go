package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Name is the name of an invariant.
type Name string

// Invariants.
const (
	NoLoss             Name = "NoLoss"             // each committed event took effect at each handler, or is dead, discarded or cancelled there; events that were cancelled before they were published are exempt
	NoGhost            Name = "NoGhost"            // only committed events took effect, or are in the log (the table outbox) or in the stream
	EffectOnce         Name = "EffectOnce"         // no event took effect twice at a handler
	KeyOrder           Name = "KeyOrder"           // the events of a key are in the stream in the order of their commits, and take effect at ordered handlers in this order
	DeadLetterComplete Name = "DeadLetterComplete" // every dead event has its payload and its failures, and did not take effect; replays have ended and are in the audit
	MarkImpliesStored  Name = "MarkImpliesStored"  // every event that the relay's record calls published is in the stream of every server
	Fence              Name = "Fence"              // after an epoch recorded something, no earlier epoch records anything
	Drains             Name = "Drains"             // after the faults, the processes do all work that is left
	NoStuckLease       Name = "NoStuckLease"       // after the faults, a relay leads
	NoLeak             Name = "NoLeak"             // no session, transaction, consumer or goroutine is left over
	Bounded            Name = "Bounded"            // memory stays within its bound
	Survives           Name = "Survives"           // no process ends by itself
	NoSecret           Name = "NoSecret"           // no log, metric or error contains a payload or a password
)

// Names returns all invariants, in the order of a report.
func Names() []Name {
	return []Name{
		NoLoss, NoGhost, EffectOnce, KeyOrder, DeadLetterComplete, MarkImpliesStored,
		Fence, Drains, NoStuckLease, NoLeak, Bounded, Survives, NoSecret,
	}
}

// Verdict is the result of [Check].
type Verdict struct {
	Violations map[Name][]string
	Coverage   Coverage

	// Pending is the work that was left when the time ran out. Check does not judge the events that
	// wait for this work: an event that a handler has not reached yet is not lost.
	Pending []string
}

// OK reports whether every invariant holds, no work is pending, and Coverage.Missing is empty.
func (v Verdict) OK() bool {
	return v.Sound() && len(v.Pending) == 0 && len(v.Coverage.Missing()) == 0
}

// Sound reports whether every invariant holds.
func (v Verdict) Sound() bool { return len(v.Violations) == 0 }

// Check judges a run by its history and by the state after it.
func Check(history []Record, found State) Verdict {
	c := newCheck(history, found)
	c.log()
	c.streams()
	for _, h := range found.Handlers {
		c.effects(h)
		if found.Drained.Ended() {
			c.loss(h)
		}
	}
	c.keyOrder()
	c.dead()
	c.marks()
	c.liveness()
	c.leaks()
	for _, who := range found.Fallen {
		c.violated(Survives, "%s", who)
	}
	for _, where := range found.Secrets {
		c.violated(NoSecret, "%s", where)
	}
	return Verdict{
		Violations: c.violations, Coverage: Cover(history, found),
		Pending: slices.Concat(found.Lead.Pending, found.Drained.Pending),
	}
}

// check is the state of one call of [Check].
type check struct {
	history    []Record
	found      State
	domain     map[string]Event // the committed events, by id
	calledOff  map[string]bool  // events that were cancelled before they were published
	violations map[Name][]string
	atRest     bool // no work is pending: all work is done, stuck or lost
}

func newCheck(history []Record, found State) *check {
	c := &check{
		history: history, found: found, domain: make(map[string]Event), calledOff: make(map[string]bool), violations: make(map[Name][]string),
		atRest: len(found.Lead.Pending)+len(found.Drained.Pending) == 0,
	}
	for _, e := range found.Domain {
		c.domain[e.ID] = e
	}
	for _, gone := range found.Archive {
		c.calledOff[gone.ID] = c.calledOff[gone.ID] || gone.Handler == Outgoing
	}
	return c
}

func (c *check) violated(name Name, format string, args ...any) {
	c.violations[name] = append(c.violations[name], fmt.Sprintf(format, args...))
}

// log compares the domain with the producers' answers, and then with the producers' log.
func (c *check) log() {
	open := make(map[string]bool) // by id: an attempt committed the event, or may have committed it
	for _, r := range c.history {
		if r.What != Transaction {
			continue
		}
		for _, e := range r.Events {
			_, there := c.domain[e.ID]
			open[e.ID] = open[e.ID] || r.Phase == Unknown || r.Phase == OK
			switch {
			case r.Phase == OK && !there:
				c.violated(NoLoss, "event %s: %s was told that it is committed, and it is not there", e.ID, r.Process)
			case r.Phase == Failed && there && !open[e.ID]:
				c.violated(NoGhost, "event %s: %s was told that it is rolled back, and it is there", e.ID, r.Process)
			}
		}
	}
	logged := make(map[string]bool, len(c.found.Log))
	for _, row := range c.found.Log {
		if logged[row.ID] {
			c.violated(NoGhost, "event %s is in the log twice", row.ID)
		}
		logged[row.ID] = true
		if _, ok := c.domain[row.ID]; !ok {
			c.violated(NoGhost, "event %s is in the log, and its change is not in the domain", row.ID)
		}
	}
	for _, e := range c.found.Domain {
		if !logged[e.ID] {
			c.violated(NoLoss, "event %s: its change is in the domain, and it is not in the log", e.ID)
		}
	}
}

// streams examines each server's copy of the stream.
func (c *check) streams() {
	for _, server := range slices.Sorted(maps.Keys(c.found.Streams)) {
		stored := make(map[string]bool)
		for _, m := range c.found.Streams[server] {
			stored[m.ID] = true
			if _, ok := c.domain[m.ID]; !ok {
				c.violated(NoGhost, "event %s was not committed and is in the stream of %s", m.ID, server)
			}
		}
		for _, row := range c.found.Log {
			switch {
			case c.calledOff[row.ID] && stored[row.ID]:
				c.violated(DeadLetterComplete, "event %s was called off, and is in the stream of %s", row.ID, server)
			case row.Published && !stored[row.ID] && !c.calledOff[row.ID] && c.atRest: // while work is pending, a repair may be under way
				c.violated(MarkImpliesStored, "event %s is recorded as published and is not in the stream of %s", row.ID, server)
			}
		}
	}
	if len(c.found.Streams) == 0 && c.atRest {
		c.violated(MarkImpliesStored, "no server's stream was read")
	}
}

// effects counts the effects at a handler.
func (c *check) effects(h Handler) {
	times := make(map[string]int)
	for _, e := range c.found.Effects[h.Name] {
		times[e.ID]++
		if times[e.ID] == 2 {
			c.violated(EffectOnce, "event %s took effect more than once at %s", e.ID, h.Name)
		}
		if _, ok := c.domain[e.ID]; !ok && times[e.ID] == 1 {
			c.violated(NoGhost, "event %s was not committed and took effect at %s", e.ID, h.Name)
		}
	}
}

// loss looks for events that neither took effect at a handler, nor are dead, discarded or cancelled
// there.
func (c *check) loss(h Handler) {
	accounted := make(map[string]bool)
	inbox := cmp.Or(h.Inbox, h.Name)
	for _, e := range c.found.Effects[h.Name] {
		accounted[e.ID] = true
	}
	for _, held := range c.found.Held {
		if held.Handler == inbox && held.Dead {
			accounted[held.ID] = true
		}
	}
	for _, gone := range c.found.Archive {
		if gone.Handler == inbox {
			accounted[gone.ID] = true
		}
	}
	for _, e := range c.found.Domain {
		if !accounted[e.ID] && !c.calledOff[e.ID] {
			c.violated(NoLoss, "event %s of key %d: no effect at %s, and neither dead, discarded nor cancelled there", e.ID, e.Key, h.Name)
		}
	}
}
