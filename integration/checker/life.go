package checker

import (
	"fmt"
	"maps"
	"slices"
)

// marks checks the states that relays recorded, in the order of their commits.
func (c *check) marks() {
	var last Mark
	for _, m := range c.found.Marks {
		if m.Epoch < last.Epoch {
			c.violated(Fence, "epoch %d recorded after epoch %d", m.Epoch, last.Epoch)
		}
		if m.High < last.High {
			c.violated(Fence, "epoch %d went back from event %d to event %d", m.Epoch, last.High, m.High)
		}
		last = Mark{max(m.Epoch, last.Epoch), max(m.High, last.High)}
	}
	if len(c.found.Marks) == 0 && c.atRest {
		c.violated(Fence, "no relay recorded anything")
	}
}

// liveness checks that a relay leads, and that all work is done.
func (c *check) liveness() {
	for name, w := range map[Name]Wait{Drains: c.found.Drained, NoStuckLease: c.found.Lead} {
		for _, left := range w.Stuck {
			c.violated(name, "nothing moved, and there is left to do: %s", left)
		}
	}
	if !c.atRest {
		return
	}
	for _, row := range c.found.Log {
		if !row.Published {
			c.violated(Drains, "event %s is not published", row.ID)
		}
	}
	for _, h := range c.found.Held {
		if !h.Dead {
			c.violated(Drains, "event %s is still held by %s", h.ID, h.Handler)
		}
	}
}

// leaks looks for sessions, consumers and goroutines that are left over, and for processes that use
// too much memory.
func (c *check) leaks() {
	for _, r := range lastSignals(c.history) {
		if n := r.Counts[Resident]; n > c.found.Bounds.Resident {
			c.violated(Bounded, "%d MB resident at %s, at most %d are allowed", n>>20, life(r), c.found.Bounds.Resident>>20)
		}
	}
	if !c.atRest { // a process that has work uses more of these than an idle process
		return
	}
	if c.found.Idle > 0 {
		c.violated(NoLeak, "%d sessions are idle in a transaction", c.found.Idle)
	}
	for app, n := range c.found.Sessions {
		if most := c.found.Bounds.Sessions[app]; n > most {
			c.violated(NoLeak, "%d sessions of %q, at most %d are its own", n, app, most)
		}
	}
	expected := make(map[string]int)
	for _, h := range c.found.Handlers {
		expected[h.Consumer]++
	}
	for _, name := range slices.Sorted(maps.Keys(c.found.Consumers)) {
		if c.found.Consumers[name] > expected[name] {
			c.violated(NoLeak, "consumer %s belongs to no handler", name)
		}
	}
	for _, r := range lastSignals(c.history) {
		if n := r.Counts[Goroutines]; n > c.found.Bounds.Goroutines {
			c.violated(NoLeak, "%d goroutines of %s, at most %d are expected", n, life(r), c.found.Bounds.Goroutines)
		}
	}
}

// life returns the name and the process id of the process that made a record.
func life(r Record) string { return fmt.Sprintf("%s (process %d)", r.Process, r.Life) }

// lastSignals returns the last record of [Signals] of each life of each process.
func lastSignals(history []Record) []Record {
	type life struct {
		process string
		id      int
	}
	last := make(map[life]Record)
	for _, r := range history {
		if r.What == Signals {
			last[life{r.Process, r.Life}] = r
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b Record) int { return a.At.Compare(b.At) })
}
