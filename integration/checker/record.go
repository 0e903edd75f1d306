// Package checker judges a run: from what its processes noted while it went on, and
// from what is found in the databases and at the brokers after it.
//
// [Check] is a pure function. It knows nothing of how a run is made, and believes
// the processes only in what they alone can know: what they were told.
package checker

import "time"

// What is what a record is about.
type What string

// What records are about.
const (
	Transaction What = "transaction" // of a producer
	Call        What = "call"        // that a vendor carried out, for the first time with its key
	Release     What = "release"     // of dead events, by an operator
	Discard     What = "discard"     // likewise
	Cancel      What = "cancel"      // of an event that a handler holds, or that is scheduled, by an operator or its producer
	Reschedule  What = "reschedule"  // likewise
	Pause       What = "pause"       // of a handler or of the relays, by an operator
	Fault       What = "fault"       // that was injected
	Signals     What = "signals"     // what a process counts: the last record of a life is its sum
)

// Phase is how far that has come.
type Phase string

// Phases. Unknown is never read as one of the others.
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
	Life    int              `json:"life"` // its process id
	What    What             `json:"what"`
	Phase   Phase            `json:"phase"`
	ID      string           `json:"id,omitempty"`    // of a transaction, a call or a fault
	Shape   string           `json:"shape,omitempty"` // of a transaction or a fault
	Events  []Event          `json:"events,omitempty"`
	Counts  map[string]int64 `json:"counts,omitempty"` // of signals, and of what was in flight when a fault struck
	Error   string           `json:"error,omitempty"`
}

// Event is an event, as the domain has it: the n-th change of what its key names.
// Handler and Class are of one that is held.
type Event struct {
	ID      string `json:"id"`
	Key     int    `json:"key"`
	N       int    `json:"n"`
	Poison  string `json:"poison,omitempty"` // the handler that cannot stand it
	Handler string `json:"handler,omitempty"`
	Class   string `json:"class,omitempty"`
	Later   bool   `json:"later,omitempty"` // it is scheduled: no order is promised
}

// Outgoing is the handler of events that are scheduled, as the database has it.
const Outgoing = "outbox"

// Counts of a [Fault] that strikes.
const (
	Unrecorded     = "unrecorded"     // events that are committed and not recorded as published
	Unacknowledged = "unacknowledged" // deliveries that handlers have in hand
)

// Counts of [Signals].
const (
	DuplicateAcks   = "duplicate_acks"   // publishes that the broker had stored before
	InboxDuplicates = "inbox_duplicates" // deliveries of what was decided before
	Goroutines      = "goroutines"
	Resident        = "resident_bytes" // the most so far
)
