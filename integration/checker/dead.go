package checker

// place is an event at a handler.
type place struct{ handler, event string }

// dead examines dead, discarded and cancelled events, and what operators did with them.
func (c *check) dead() {
	effective := make(map[place]bool)
	for handler, events := range c.found.Effects {
		for _, e := range events {
			effective[place{handler, e.ID}] = true
		}
	}
	decided := make(map[place]bool)
	for _, h := range c.found.Held {
		at := place{h.Handler, h.ID}
		if !h.Dead {
			continue // Drains reports it
		}
		switch {
		case decided[at]:
			c.violated(DeadLetterComplete, "event %s is dead at %s more than once", h.ID, h.Handler)
		case effective[at]:
			c.violated(DeadLetterComplete, "event %s is dead at %s, and took effect there", h.ID, h.Handler)
		case h.Attempts == 0 && h.Class != "late", h.Failures == 0, h.Class == "", h.Bytes == 0:
			c.violated(DeadLetterComplete, "event %s is dead at %s without its story: class %q, %d attempts, %d failures, %d bytes",
				h.ID, h.Handler, h.Class, h.Attempts, h.Failures, h.Bytes)
		}
		decided[at] = true
	}
	for _, h := range c.found.Archive {
		at := place{h.Handler, h.ID}
		if effective[at] {
			c.violated(DeadLetterComplete, "event %s was discarded or cancelled at %s, and took effect there", h.ID, h.Handler)
		}
		if h.Bytes == 0 {
			c.violated(DeadLetterComplete, "event %s was discarded at %s, and its payload is gone", h.ID, h.Handler)
		}
	}
	for at := range effective {
		if c.calledOff[at.event] {
			c.violated(DeadLetterComplete, "event %s was called off, and took effect at %s", at.event, at.handler)
		}
	}
	c.cancelled()
	c.released(effective)
}

// cancelled checks that the archive has each event that an operator or a producer cancelled. If
// such an event had no effect either, the method loss reports the event, too.
func (c *check) cancelled() {
	archived := make(map[place]bool)
	for _, h := range c.found.Archive {
		archived[place{h.Handler, h.ID}] = true
	}
	for _, r := range c.history {
		if r.What != Cancel || r.Phase != OK {
			continue
		}
		for _, e := range r.Events {
			if !archived[place{e.Handler, e.ID}] {
				c.violated(DeadLetterComplete, "event %s: an operator was told that it is cancelled at %s, and it is not in the archive", e.ID, e.Handler)
			}
		}
	}
}

// released checks the events that operators released: their effects, their replays, and their
// number in the audit.
func (c *check) released(effective map[place]bool) {
	released := make(map[place]bool)
	var events int64
	for _, r := range c.history {
		if r.What != Release {
			continue
		}
		if r.Phase == OK {
			events += int64(len(r.Events))
		}
		for _, e := range r.Events {
			released[place{e.Handler, e.ID}] = true
		}
	}
	// If a handler cannot handle an event, the event takes effect there only after an operator
	// released it.
	for _, e := range c.found.Domain {
		at := place{e.Poison, e.ID}
		if e.Poison != "" && effective[at] && !released[at] {
			c.violated(DeadLetterComplete, "event %s took effect at %s, which cannot handle it, and no operator released it", e.ID, e.Poison)
		}
	}
	if c.found.OpenReplays > 0 && c.atRest {
		c.violated(DeadLetterComplete, "%d replays have not ended", c.found.OpenReplays)
	}
	if c.found.Replayed < events {
		c.violated(DeadLetterComplete, "the audit has %d replayed events, and operators were told of %d", c.found.Replayed, events)
	}
}
