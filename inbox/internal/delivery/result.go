package delivery

// Outcome is how a delivery, or a run of a held event, ended.
type Outcome string

// The outcomes.
const (
	Done      Outcome = "done"      // handled and committed
	Duplicate Outcome = "duplicate" // it was decided before, and is acknowledged
	Held      Outcome = "held"      // put into the table held, or back into it
	Dead      Outcome = "dead"      // in the table held until an operator decides
	Conflict  Outcome = "conflict"  // dead, because another event has the same identity
	Discarded Outcome = "discarded" // in the archive: its handler discarded it
	Skipped   Outcome = "skipped"   // no process asked for its type
	Released  Outcome = "released"  // given back, for instance because the process stops
)

// Result says how a delivery ends. The zero value says that another part of the inbox,
// such as the holder, has the delivery and will finish it.
type Result struct {
	Outcome Outcome
	Held    *Holding  // how the event was held, or nil
	As      *Delivery // the delivery that was held: the original, or its Conflicting or Unreadable copy
	Err     error     // why the event could not even be held; it is delivered again later
	Unheld  *Unheld   // what could not be held, or nil
}

// Unheld is a delivery that could not be held, and how it was to be held.
type Unheld struct {
	As *Delivery // as in Result
	H  Holding
}

// CannotHold returns the result of a delivery that could not be held.
func CannotHold(d *Delivery, h Holding, err error) Result {
	return Result{Outcome: Released, Err: err, Unheld: &Unheld{d, h}}
}

// Doubt is a transaction whose commit was not answered. If it committed, it held its event as the
// field Held says, or the event took effect.
type Doubt struct {
	ID   string
	Held *Holding // nil: the event took effect
}

// HandedBack is the result of a delivery that was not decided and goes back to the
// broker.
var HandedBack = Result{Outcome: Released}

// AsHeld returns the result of a delivery that was held.
func AsHeld(d *Delivery, h Holding) Result {
	return Result{Outcome: h.Outcome(), Held: &h, As: d}
}
