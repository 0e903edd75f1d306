package delivery

import (
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/identity"
)

// Holding says how an event is held.
type Holding struct {
	Failure  *Failure       // nil if the event did not fail
	Attempts int            // the number of attempts so far
	After    *time.Duration // how long until the next attempt; nil for a dead event
	Solitary bool
	Raw      bool // keep the headers as they came
	Behind   bool // the event only waits behind an earlier event of its key
	Decided  bool // its inbox row exists, because a handler committed it
	Untold   bool // if the event is dead, Config.OnDead is not called
}

// IsDiscarded reports whether the handler discarded the event. If so, the event goes from the table
// held to the archive at once.
func (h Holding) IsDiscarded() bool { return h.Failure != nil && h.Failure.Class == ClassDiscarded }

// Outcome returns the outcome of an event that is held in this way.
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

// WithoutDeath returns how to hold an event that did not become dead, because Config.OnDead failed.
// Usually the event waits, and its last attempt is made again. If the handler itself ended the
// transaction, the attempt may be committed and must not be made again, so the event is dead
// anyway. If the event has no attempt left, it waits, and is dead when OnDead succeeds. If the failure
// did not come from the handler, WithoutDeath returns false: the event stays in its stream, or its
// claim is given back.
func (h Holding) WithoutDeath() (Holding, bool) {
	switch h.Failure.Class {
	case classTransaction:
		h.Untold = true
		return h, true
	case ClassConflict, ClassUndecodable, ClassTooOld, classDedupeKey, ClassLate:
		return h, false
	}
	wait := UntoldWait
	h.After = &wait
	//guard:an-event-without-attempts-waits-for-on-dead true
	if h.Failure.Class != ClassCrash && !h.Failure.Again {
		h.Attempts = max(h.Attempts-1, 0)
	}
	return h, true
}

// UntoldWait is how long an event waits before its last attempt is made again, or before OnDead is
// called again.
const UntoldWait = time.Minute

// IsBesideTheOrder reports whether later events of the key go on while an event is held in this
// way. They do if the event is a conflict, is late or unreadable, or if its handler committed it or
// discarded it.
func (h Holding) IsBesideTheOrder() bool {
	if h.Raw || h.Decided || h.IsDiscarded() {
		return true
	}
	return h.Failure != nil && slices.Contains([]string{ClassConflict, ClassLate, ClassUndecodable}, h.Failure.Class)
}

// TooOld returns how to hold an event if the event is so old that the inbox may have removed its
// inbox row. The parameter kept is how long rows are kept.
func TooOld(logged time.Time, kept time.Duration) Holding {
	return Holding{Failure: &Failure{Class: ClassTooOld, Permanent: true, Text: fmt.Sprintf(
		"logged at %s: the inbox, which keeps rows for %s, cannot tell whether it was decided", logged.UTC().Format(time.RFC3339), kept)}}
}

// AtOnce is the wait of an event that is due at once.
var AtOnce = new(time.Duration)

// BehindKey says how to hold an event that waits behind an earlier event of its key.
var BehindKey = Holding{After: AtOnce, Behind: true}

// AsConflict says how to hold an event if another event with the same identity was decided.
var AsConflict = Holding{Failure: &Failure{
	Class: ClassConflict, Permanent: true, Text: "another event with this source and id was decided before",
}}

// AsLate says how to hold an event that came after later events of its key.
var AsLate = Holding{Failure: &Failure{
	Class: ClassLate, Permanent: true, Text: "the broker lost it and delivered it later: later events of its key may have taken effect",
}}

// Conflicting returns a copy of d that can be held if another event with the same identity was
// decided. Its dedupe key is different, because the other event has the row with the key of d.
func Conflicting(d *Delivery) *Delivery {
	other := *d
	other.Key = d.Key + "#" + hex.EncodeToString(d.Digest)
	return &other
}

// Unreadable returns a copy of d that has only the id, the subject and the body of the message.
func Unreadable(d *Delivery) *Delivery {
	bare := *d
	bare.Event = postroom.Event{ID: guard.Clean(d.Event.ID, identity.MaxKey), Subject: guard.Clean(d.Event.Subject, maxSubject), Data: d.Msg.Data()}
	return &bare
}

// Fate says what happened to an event when the inbox tried to hold it. hold.sql explains each fate.
type Fate string

// What can happen to an event when the inbox tries to hold it.
const (
	FateHeld    Fate = "held"
	FateDecided Fate = "decided"
	FateFree    Fate = "free"
	FateLate    Fate = "late"
	FateStale   Fate = "stale"
)
