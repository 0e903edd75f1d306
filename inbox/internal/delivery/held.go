package delivery

import "time"

// HeldEvent is a held event that was claimed, or is to be run along with one that was.
type HeldEvent struct {
	Task

	Handler   string
	ID, Epoch int64
	Solitary  bool
	Revision  int32
	Last      int // the attempt after which it is dead, where an operator said so

	Blocking string // the key that waits for it, or nothing
	Pos      int64  // in that key
	Followed bool   // others waited behind it when it was claimed

	Headers, Raw []byte // as they are stored
}

// Size is how many bytes it has in memory, by and large.
func (h *HeldEvent) Size() int64 { return int64(len(h.Event.Data) + len(h.Headers) + len(h.Raw)) }

// Wishes say what may be claimed, as claim.sql has it: each has as many entries as there
// are handlers.
type Wishes struct {
	Handlers        []string
	Most            []int32
	Leases          []time.Duration
	Types, Subjects []*string
	Spared          []int32
	Bytes           []int64
	Idle            []bool
}

// Due is what due.sql returns.
type Due struct {
	Wait  *float64 // seconds; nil where nothing is held that is due later
	Alone bool
}

// DryRun is a dry run that an operator asked for.
type DryRun struct {
	ID      int64
	Handler string
	Held    int64 // which event
}
