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
	Discarded Outcome = "discarded" // in the archive: its handler discarded it
	Skipped   Outcome = "skipped"   // no process asked for its type
	Released  Outcome = "released"  // handed back at shutdown
)

// Result says how a delivery is to end. The zero value says that it does not end here:
// another part, such as the holder, has it and finishes it.
type Result struct {
	Outcome Outcome
	Held    *Holding  // how it was held, if it was
	As      *Delivery // the delivery that was held, or its replacement
	Err     error     // why it could not even be held; it is delivered again later
}

// HandedBack is the result of a delivery that was not decided.
var HandedBack = Result{Outcome: Released}

// AsHeld returns the result of a delivery that was held.
func AsHeld(d *Delivery, h Holding) Result {
	return Result{Outcome: h.Outcome(), Held: &h, As: d}
}
