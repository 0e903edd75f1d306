package checker

import "time"

// State is the state of all servers after the faults, when the processes have had time to finish
// their work.
type State struct {
	Handlers []Handler
	Domain   []Event // events that were committed by the producers' transactions
	Log      []LogEntry
	Streams  map[string][]Message // each server's copy, by the server's name
	Effects  map[string][]Event   // the events that took effect, by handler, in the order of their commits
	Held     []Held
	Archive  []Held // events that operators discarded or cancelled, or that producers cancelled
	Marks    []Mark // states that the relays recorded, in the order of their commits

	OpenReplays int   // replays that have not ended
	Replayed    int64 // replayed events, as the audit has them

	Drained   Wait // the wait until no work was left
	Lead      Wait // the wait until a relay led after the last fault
	Idle      int  // sessions idle in a transaction
	Sessions  map[string]int
	Consumers map[string]int // of the stream, by name

	Bounds  Bounds
	Fallen  []string // processes that ended although no fault ended them
	Secrets []string // places with the canary, a text that only payloads and passwords may have
}

// Handler is a handler that gets every event.
type Handler struct {
	Name     string
	Ordered  bool
	Consumer string // the name of its durable consumer
	Inbox    string // the name under which the inbox holds its events, if that is not Name
}

// LogEntry is a row of the producers' log.
type LogEntry struct {
	ID        string
	Published bool
}

// Message is a message of the stream.
type Message struct {
	Event

	Seq         uint64
	Republished bool // a repair published it again and marked it
}

// Held is an event that is held for a handler, or was discarded or cancelled.
type Held struct {
	Event

	Dead     bool
	Attempts int
	Failures int // number of recorded failures
	Bytes    int // the size of its data
}

// Mark is a state that a relay recorded.
type Mark struct{ Epoch, High int64 }

// Wait says how long something took to happen, or why it did not happen. The zero value means that
// it happened at once. [Check] does not judge the time, because a busy machine takes long.
type Wait struct {
	Took time.Duration

	// Stuck is the work that was left when no process made progress, although every process that
	// had to do the work was running. Then something is wrong.
	Stuck []string

	// Pending is the work that was left when the time ran out. At that moment, processes were still
	// working, or the machine gave them no time. Then nothing is known.
	Pending []string
}

// Ended reports whether no work was left when the wait ended. Lost events do not count as work.
func (w Wait) Ended() bool { return len(w.Stuck) == 0 && len(w.Pending) == 0 }

// Bounds limit the resources that processes use when all work is done.
type Bounds struct {
	Sessions   map[string]int // the sessions of each application
	Goroutines int64          // the goroutines of each process
	Resident   int64          // bytes, of each process at any time
}
