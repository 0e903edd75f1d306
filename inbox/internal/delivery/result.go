package delivery

// Outcome is how a delivery ended, or a run from held.
type Outcome string

// How a delivery ends.
const (
	Done      Outcome = "done"      // handled and committed
	Duplicate Outcome = "duplicate" // decided before, acknowledged
	Held      Outcome = "held"      // put into held, or back into it
	Dead      Outcome = "dead"      // in held until an operator decides
	Conflict  Outcome = "conflict"  // dead, as another event has its identity
	Skipped   Outcome = "skipped"   // of a type that nobody asked for
	Released  Outcome = "released"  // handed back at shutdown
)
