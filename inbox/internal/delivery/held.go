package delivery

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// HeldEvent is a held event that was claimed, or that runs in the transaction of a
// claimed event. It is a row of the table held, as claim.sql returns it.
type HeldEvent struct {
	Task

	Handler   string
	ID, Epoch int64
	Solitary  bool
	Revision  int32
	Last      int           // the number of the attempt after which it is dead, if an operator set that number
	Snoozed   time.Duration // for how long all attempts at it have been snoozes

	RanOut bool   // it had a claim before this one, and that claim ran out
	Class  string // the class of its last failure; empty if it never failed
	Text   string // the text of its last failure

	Blocking string // the key that waits for this event, or ""
	Pos      int64  // its position in the order of that key
	Followed bool   // other events waited behind this event when it was claimed

	Headers, Raw []byte // the columns headers and raw_headers
}

// Size returns about how many bytes of memory the event needs.
func (h *HeldEvent) Size() int64 { return int64(len(h.Event.Data) + len(h.Headers) + len(h.Raw)) }

// Wishes says which events may be claimed, in the form that claim.sql needs. Each field
// has one entry for each handler.
type Wishes struct {
	Handlers        []string
	Most            []int32
	Leases          []time.Duration
	Types, Subjects []*string
	Spared          []int32
	Bytes           []int64
	Idle            []bool
	Paused          []bool // if true, nothing may be claimed for the handler
}

// Unpaused returns the wishes of the handlers that are not paused, without Bytes and Idle.
func (w *Wishes) Unpaused() *Wishes {
	var some Wishes
	for i, paused := range w.Paused {
		if paused {
			continue
		}
		some.Handlers, some.Most, some.Leases = append(some.Handlers, w.Handlers[i]), append(some.Most, w.Most[i]), append(some.Leases, w.Leases[i])
		some.Types, some.Subjects, some.Spared = append(some.Types, w.Types[i]), append(some.Subjects, w.Subjects[i]), append(some.Spared, w.Spared[i])
	}
	return &some
}

// Postponement says how the due events of some keys are postponed, in the form that postpone.sql
// needs. Each field has one entry for each key.
type Postponement struct {
	Keys  []string
	First []time.Duration // the time from now until the first event is due
	Pace  []time.Duration // the time from each event to the next
	Since []time.Duration // only events that have been due for at least this time are postponed
}

// Due is what due.sql returns.
type Due struct {
	Wait  *float64 // seconds; nil if no held event is due later
	Alone bool
}

// DryRun is a dry run that an operator asked for.
type DryRun struct {
	ID      int64
	Handler string
	Held    int64 // the id of the event in the table held
}

// Change says what the handler would have changed in a table, or which events it would
// have written.
type Change struct {
	Kind     string `json:"kind"` // "table" or "event"
	Name     string `json:"name"`
	Inserted int64  `json:"inserted,omitempty"`
	Updated  int64  `json:"updated,omitempty"`
	Deleted  int64  `json:"deleted,omitempty"`
}

// Instant scans a time. NULL and infinity become the zero time. An operator may have
// written one of these into a row, and that must not prevent the claims of other rows.
type Instant time.Time

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (i *Instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i = Instant{}
	if v.Valid && v.InfinityModifier == pgtype.Finite {
		*i = Instant(v.Time)
	}
	return nil
}
