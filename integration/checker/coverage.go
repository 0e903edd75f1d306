package checker

import "slices"

// Coverage says how often faults met work. If a fault did not meet work in a run, the run proves
// nothing about that fault.
type Coverage struct {
	Events          int // committed
	Faults          map[string]int
	UnknownCommits  int // transactions whose outcome the producer did not learn
	DuplicateAcks   int64
	TakeOvers       int // terms after the first
	InboxDuplicates int64
	Dead            int // pairs of an event and a handler
	Released        int

	// The numbers of events that operators cancelled and rescheduled (none of these events was
	// dead), and the number of times that operators paused a handler or the relays.
	Cancelled, Rescheduled, Pauses int

	CalledOff int // events that were cancelled before they were published

	// The amounts of work in flight, sorted: one number for each fault at which chaos counted it.
	Unrecorded, Unacknowledged []int64
}

// AllFaults is the number of faults of any kind.
func (c Coverage) AllFaults() (n int) {
	for _, of := range c.Faults {
		n += of
	}
	return n
}

// Missing returns what should have happened and did not.
func (c Coverage) Missing() (names []string) {
	for _, need := range []struct {
		name string
		n    int64
	}{
		{"events", int64(c.Events)},
		{"faults", int64(c.AllFaults())},
		{"unknown commits", int64(c.UnknownCommits)},
		{"duplicate acknowledgements", c.DuplicateAcks},
		{"take-overs", int64(c.TakeOvers)},
		{"duplicates at an inbox", c.InboxDuplicates},
		{"dead events", int64(c.Dead)},
		{"released events", int64(c.Released)},
		{"cancelled events", int64(c.Cancelled)},
		{"events that were called off", int64(c.CalledOff)},
		{"rescheduled events", int64(c.Rescheduled)},
		{"pauses", int64(c.Pauses)},
	} {
		if need.n == 0 {
			names = append(names, need.name)
		}
	}
	return names
}

// Cover counts how often faults met work, as far as that is known.
func Cover(history []Record, found State) Coverage {
	c := Coverage{Events: len(found.Domain), Faults: make(map[string]int)}
	dead := make(map[place]bool)
	for _, r := range history {
		switch {
		case r.What == Fault && r.Phase == Invoked:
			if n, ok := r.Counts[Unrecorded]; ok {
				c.Unrecorded = append(c.Unrecorded, n)
			}
			if n, ok := r.Counts[Unacknowledged]; ok {
				c.Unacknowledged = append(c.Unacknowledged, n)
			}
		case r.What == Fault && r.Phase == OK:
			c.Faults[r.Shape]++
		case r.What == Transaction && r.Phase == Unknown:
			c.UnknownCommits++
		case r.What == Release && r.Phase == Invoked:
			c.Released += len(r.Events)
		case r.What == Cancel && r.Phase == OK && isOutgoing(r):
			c.CalledOff += len(r.Events)
		case r.What == Cancel && r.Phase == OK:
			c.Cancelled += len(r.Events)
		case r.What == Reschedule && r.Phase == OK:
			c.Rescheduled += len(r.Events)
		case r.What == Pause && r.Phase == OK:
			c.Pauses++
		}
		if r.What == Release || r.What == Discard {
			for _, e := range r.Events {
				dead[place{e.Handler, e.ID}] = true
			}
		}
	}
	slices.Sort(c.Unrecorded)
	slices.Sort(c.Unacknowledged)
	for _, h := range found.Held {
		if h.Dead {
			dead[place{h.Handler, h.ID}] = true
		}
	}
	c.Dead = len(dead)
	for _, r := range lastSignals(history) {
		c.DuplicateAcks += r.Counts[DuplicateAcks]
		c.InboxDuplicates += r.Counts[InboxDuplicates]
	}
	epochs := make(map[int64]bool)
	for _, m := range found.Marks {
		epochs[m.Epoch] = true
	}
	c.TakeOvers = max(len(epochs)-1, 0)
	return c
}

func isOutgoing(r Record) bool {
	return slices.ContainsFunc(r.Events, func(e Event) bool { return e.Handler == Outgoing })
}
