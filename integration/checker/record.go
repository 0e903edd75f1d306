// Package checker judges a run of chaos. It uses the records that the processes noted during the
// run, and the state of the databases and brokers after it.
//
// [Check] is a pure function. It does not know how a run is made. It trusts the processes only
// about the answers that they got, because no server knows these.
package checker

import "time"

// What names the subject of a record.
type What string

// Subjects of records.
const (
	Transaction What = "transaction" // a transaction of a producer
	Call        What = "call"        // a call that a vendor carried out: the first call with its key
	Release     What = "release"     // the replay of dead events, by an operator
	Discard     What = "discard"     // the discarding of dead events, by an operator
	Cancel      What = "cancel"      // the cancellation of a held event by an operator, or of a scheduled event by an operator or its producer
	Reschedule  What = "reschedule"  // a change of the time of a held or scheduled event, by an operator
	Pause       What = "pause"       // a pause of a handler or of the relays, by an operator
	Fault       What = "fault"       // a fault that was injected
	Signals     What = "signals"     // the counters of a process: the last record of a life has the sums
)

// Phase is how far the subject of a record has come.
type Phase string

// Phases. The checker never treats Unknown as one of the others.
const (
	Invoked Phase = "invoked"
	OK      Phase = "ok"
	Failed  Phase = "failed"
	Unknown Phase = "unknown"
)

// Record is a line of the history.
type Record struct {
	At      time.Time        `json:"at"`
	Process string           `json:"process"`
	Life    int              `json:"life"` // the id of the process
	What    What             `json:"what"`
	Phase   Phase            `json:"phase"`
	ID      string           `json:"id,omitempty"`    // the id of a transaction, a call or a fault
	Shape   string           `json:"shape,omitempty"` // the shape of a transaction or a fault, or what is paused
	Events  []Event          `json:"events,omitempty"`
	Counts  map[string]int64 `json:"counts,omitempty"` // the counters of signals, or the amounts of the work in flight when a fault struck
	Error   string           `json:"error,omitempty"`
}

// Event is an event of a producer. In the producers' own tables, it is change number N of its key.
// Handler is set if the event is or was held. Class is the class of its last failure, if recorded.
type Event struct {
	ID      string `json:"id"`
	Key     int    `json:"key"`
	N       int    `json:"n"`
	Poison  string `json:"poison,omitempty"` // the handler that cannot handle the event
	Handler string `json:"handler,omitempty"`
	Class   string `json:"class,omitempty"`
	Later   bool   `json:"later,omitempty"` // the event is scheduled: no order is promised
}

// Outgoing takes the place of a handler's name for events that the producers' database holds.
const Outgoing = "outbox"

// Counts of a [Fault] that strikes.
const (
	Unrecorded     = "unrecorded"     // events that are committed and not recorded as published
	Unacknowledged = "unacknowledged" // deliveries that handlers have in memory
)

// Counts of [Signals].
const (
	DuplicateAcks   = "duplicate_acks"   // publishes of messages that the broker had stored before
	InboxDuplicates = "inbox_duplicates" // deliveries of events that were decided before
	Goroutines      = "goroutines"
	Resident        = "resident_bytes" // the most memory so far
)
