package checker

import "time"

// State is what is found when all is healed and has had its time to drain.
type State struct {
	Handlers []Handler
	Domain   []Event // what the producers' transactions committed
	Log      []LogEntry
	Streams  map[string][]Message // as each server has it, by its name
	Effects  map[string][]Event   // by handler, in the order of their commits
	Held     []Held
	Archive  []Held // what operators discarded or cancelled, and what producers called off
	Marks    []Mark // of the relays' common state, in the order of their commits

	OpenReplays int   // replays that have not ended
	Replayed    int64 // events, as the audit has it

	Drained   Wait // until nothing was left to do
	Lead      Wait // until a relay led after the last fault
	Idle      int  // sessions idle in a transaction
	Sessions  map[string]int
	Consumers map[string]int // of the stream, by name

	Bounds  Bounds
	Fallen  []string // processes that ended though nobody ended them
	Secrets []string // where something was found that must not leave the payload
}

// Handler is one that gets every event.
type Handler struct {
	Name     string
	Ordered  bool
	Consumer string // the name of its durable one
	Inbox    string // whose held events are its own, where it is not its own name
}

// LogEntry is a row of the producers' log.
type LogEntry struct {
	ID        string
	Published bool
}

// Message is one of the stream.
type Message struct {
	Event

	Seq         uint64
	Republished bool // published again by a repair, and says so
}

// Held is an event that a handler still owes, or one that was discarded.
type Held struct {
	Event

	Dead     bool
	Attempts int
	Failures int // that are noted with it
	Bytes    int // of its data
}

// Mark is one state of what relays record together.
type Mark struct{ Epoch, High int64 }

// Wait says how long something took to happen, or why it did not. The zero value happened
// at once. How long it took decides nothing: a busy machine takes long.
type Wait struct {
	Took time.Duration

	// Stuck is what is left to do though every process that had to do it was at work and
	// nothing moved. Something is wrong then.
	Stuck []string

	// Pending is what is left to do where the time ran out while work went on, or while
	// the machine gave the processes no time to work. Nothing is known then.
	Pending []string
}

// Ended reports whether it came about.
func (w Wait) Ended() bool { return len(w.Stuck) == 0 && len(w.Pending) == 0 }

// Bounds are what must not be exceeded when nothing moves any more.
type Bounds struct {
	Sessions   map[string]int // by application
	Goroutines int64          // of each process
	Resident   int64          // bytes, of each process at any time
}
