package outbox

import "time"

// Abandon ends a term as a killed process does: nothing is recorded, the lease
// is not given back.
func (t *Term) Abandon() error { return t.close() }

// ContentDigest is the digest that the log keeps of an event.
var ContentDigest = contentDigest

// PruneFromStart makes the next step of Prune start over: an hour has passed.
func (t *Term) PruneFromStart() { t.pruned.since = time.Now().Add(-pruneAgain) }

// MarkNow has the next recording of something published make a mark.
func (t *Term) MarkNow() { t.marked = time.Time{} }
