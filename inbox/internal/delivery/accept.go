package delivery

// AcceptResult says what became of an event that came without a broker.
type AcceptResult string

// What becomes of an event that comes without a broker. Package inbox explains each.
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
	IgnoreChanged bool         // other content with its identity is dropped, and no conflict
	Result        AcceptResult // set when it is stored
}
