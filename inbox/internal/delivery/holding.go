package delivery

import (
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
)

// Holding says how an event is held.
type Holding struct {
	Failure  *Failure       // nil where nothing failed
	Attempts int            // made so far
	After    *time.Duration // when the next one is due; nil for a dead event
	Solitary bool
	Raw      bool // keep the headers as they came
	Behind   bool // only behind an earlier event of its key
	Decided  bool // its ledger row is there: a handler committed it
}

// IsBesideTheOrder reports whether later events of its key do not wait for an event that is
// held so: it never was in their order, or is decided.
func (h Holding) IsBesideTheOrder() bool {
	if h.Raw || h.Decided {
		return true
	}
	return h.Failure != nil && slices.Contains([]string{ClassConflict, ClassLate, ClassUndecodable}, h.Failure.Class)
}

// TooOld is how an event is held that was logged before the ledger can tell whether it was
// decided: rows are kept for so long.
func TooOld(logged time.Time, kept time.Duration) Holding {
	return Holding{Failure: &Failure{Class: ClassTooOld, Permanent: true, Text: fmt.Sprintf(
		"logged at %s: the ledger, which keeps rows for %s, cannot tell whether it was decided", logged.UTC().Format(time.RFC3339), kept)}}
}

// AtOnce is the wait of an event that is due at once.
var AtOnce = new(time.Duration)

// BehindKey is how an event is held that waits for its key.
var BehindKey = Holding{After: AtOnce, Behind: true}

// AsConflict is how an event is held whose identity another event has.
var AsConflict = Holding{Failure: &Failure{
	Class: ClassConflict, Permanent: true, Text: "another event with this source and id was decided before",
}}

// AsLate is how an event is held that comes after later ones of its key.
var AsLate = Holding{Failure: &Failure{
	Class: ClassLate, Permanent: true, Text: "later events of its key may have taken effect: the broker lost it, and it came again",
}}

// Conflicting returns the delivery as it is held when another event was decided
// under its identity.
func Conflicting(d *Delivery) *Delivery {
	other := *d
	other.Key = d.Key + "#" + hex.EncodeToString(d.Digest)
	return &other
}

// Unreadable is a delivery of which only its bytes are kept.
func Unreadable(d *Delivery) *Delivery {
	bare := *d
	bare.Event = postroom.Event{ID: guard.Clean(d.Event.ID, MaxKey), Subject: guard.Clean(d.Event.Subject, maxSubject), Data: d.Msg.Data()}
	return &bare
}

// Fate is what became of an event that was to be held; hold.sql has what each means.
type Fate string

// What becomes of an event that was to be held.
const (
	FateHeld    Fate = "held"
	FateDecided Fate = "decided"
	FateFree    Fate = "free"
	FateLate    Fate = "late"
	FateStale   Fate = "stale"
)
