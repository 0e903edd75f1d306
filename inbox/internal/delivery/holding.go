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
	Failure  *Failure       // nil if it did not fail
	Attempts int            // made so far
	After    *time.Duration // when the next one is due; nil for a dead event
	Solitary bool
	Raw      bool // keep the headers as they came
	Behind   bool // it only waits behind an earlier event of its key
	Decided  bool // its inbox row exists: a handler committed it
	Untold   bool // if it is dead, Config.OnDead is not told
}

// IsDiscarded reports whether its handler discarded the event: it goes from held to the
// archive at once.
func (h Holding) IsDiscarded() bool { return h.Failure != nil && h.Failure.Class == ClassDiscarded }

// Outcome returns what became of an event that is held like this.
func (h Holding) Outcome() Outcome {
	switch {
	case h.IsDiscarded():
		return Discarded
	case h.Failure != nil && h.Failure.Class == ClassConflict:
		return Conflict
	case h.After == nil:
		return Dead
	}
	return Held
}

// WithoutDeath returns how a dead event is held because Config.OnDead failed: its last attempt
// is made again later. If the handler committed that attempt itself, it must not be made
// again, so the event is dead nevertheless. WithoutDeath returns false if no attempt was made:
// such an event stays where it is.
func (h Holding) WithoutDeath() (Holding, bool) {
	switch h.Failure.Class {
	case classTransaction:
		h.Untold = true
		return h, true
	case ClassConflict, ClassUndecodable, ClassTooOld, classDedupeKey, ClassLate, ClassCrash:
		return h, false
	}
	wait := untoldWait
	h.After, h.Attempts = &wait, max(h.Attempts-1, 0)
	return h, true
}

// untoldWait is how long an event waits before its last attempt is made again.
const untoldWait = time.Minute

// IsBesideTheOrder reports whether later events of its key do not wait for an event that
// is held like this, because it never was in their order, or is decided.
func (h Holding) IsBesideTheOrder() bool {
	if h.Raw || h.Decided || h.IsDiscarded() {
		return true
	}
	return h.Failure != nil && slices.Contains([]string{ClassConflict, ClassLate, ClassUndecodable}, h.Failure.Class)
}

// TooOld returns how to hold an event that is so old that the inbox may have removed its
// row. kept is how long rows are kept.
func TooOld(logged time.Time, kept time.Duration) Holding {
	return Holding{Failure: &Failure{Class: ClassTooOld, Permanent: true, Text: fmt.Sprintf(
		"logged at %s: the inbox, which keeps rows for %s, cannot tell whether it was decided", logged.UTC().Format(time.RFC3339), kept)}}
}

// AtOnce is the wait of an event that is due at once.
var AtOnce = new(time.Duration)

// BehindKey holds an event that waits for its key.
var BehindKey = Holding{After: AtOnce, Behind: true}

// AsConflict holds an event if another event has its identity.
var AsConflict = Holding{Failure: &Failure{
	Class: ClassConflict, Permanent: true, Text: "another event with this source and id was decided before",
}}

// AsLate holds an event that comes after later ones of its key.
var AsLate = Holding{Failure: &Failure{
	Class: ClassLate, Permanent: true, Text: "the broker lost it and delivered it later: later events of its key may have taken effect",
}}

// Conflicting returns the delivery to hold if another event with its identity was
// decided.
func Conflicting(d *Delivery) *Delivery {
	other := *d
	other.Key = d.Key + "#" + hex.EncodeToString(d.Digest)
	return &other
}

// Unreadable returns a delivery of which only the bytes are kept.
func Unreadable(d *Delivery) *Delivery {
	bare := *d
	bare.Event = postroom.Event{ID: guard.Clean(d.Event.ID, MaxKey), Subject: guard.Clean(d.Event.Subject, maxSubject), Data: d.Msg.Data()}
	return &bare
}

// Fate says what happened to an event that was to be held. hold.sql explains each fate.
type Fate string

// What happens to an event that was to be held.
const (
	FateHeld    Fate = "held"
	FateDecided Fate = "decided"
	FateFree    Fate = "free"
	FateLate    Fate = "late"
	FateStale   Fate = "stale"
)
