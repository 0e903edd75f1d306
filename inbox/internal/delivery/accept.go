package delivery

import "errors"

// ErrConflictNotHeld says that a call stored its events, but could not hold the conflicts among
// them. The same call, made again, holds them.
var ErrConflictNotHeld = errors.New("the events are stored, but not the conflicts among them: accept them again")

// AcceptResult says what happened to an event that came without a broker.
type AcceptResult string

// The results for an event that comes without a broker. Package inbox explains them.
const (
	Accepted       AcceptResult = "stored"
	AcceptedBefore AcceptResult = "duplicate"
	AcceptChanged  AcceptResult = "changed"
	AcceptConflict AcceptResult = "conflict"
)

// Acceptance is an event that came without a broker, for one handler.
type Acceptance struct {
	Handler       string
	D             *Delivery
	IgnoreChanged bool         // if true, an event with a known identity and other content is dropped; otherwise it is a conflict
	Result        AcceptResult // set when the event is stored
}
