package model

import (
	"fmt"
	"strings"
)

// Rule is a rule of the design, or a set of rules.
type Rule uint16

// The rules. A [World] can leave out any of them.
const (
	// ReadCommitted: a pass sees committed rows, and no others.
	ReadCommitted Rule = 1 << iota
	// LateOpen: a pass also finds a row with a seq up to the field high if the row's transaction
	// was in progress at the pass before.
	LateOpen
	// LateNew: a pass also finds a row with a seq up to the field high if the row's transaction
	// took its xid after the pass before.
	LateNew
	// LateFirst: a relay sends late rows before newer rows.
	LateFirst
	// OnePerKey: a relay sends the next event of a key only after the same relay has got the
	// acknowledgement of the event before.
	OnePerKey
	// SameMessageID: if an event is published again, it has the message id of the first publish.
	SameMessageID
	// RecordAcked: a relay records only acknowledged events as published.
	RecordAcked
	// RecordPending: a relay records an event as pending if the relay has read the event and the
	// broker has not acknowledged it.
	RecordPending
	// EpochCheck: a recording has the epoch of its relay. The database refuses it if another epoch
	// has begun.
	EpochCheck
	// DropMemory: if a leader loses its database connection, it forgets everything in its memory.
	DropMemory
	// InsertFirst: a worker inserts the inbox row before it runs the handler.
	InsertFirst
	// OneTransaction: a worker commits inbox row and effects together.
	OneTransaction
	// AckAfterCommit: a worker acknowledges a delivery only after the commit.
	AckAfterCommit
	// CommitDecides: a worker takes a delivery as done only if the database answers that the commit
	// succeeded.
	CommitDecides
	// ClaimCheck: a worker settles a held event with the epoch of its claim. The database refuses
	// that if another claim has begun, or if the event is not held any more.
	ClaimCheck

	// AllRules is the whole design.
	AllRules = 1<<iota - 1
)

var ruleNames = []string{
	"ReadCommitted", "LateOpen", "LateNew", "LateFirst", "OnePerKey", "SameMessageID", "RecordAcked",
	"RecordPending", "EpochCheck", "DropMemory", "InsertFirst", "OneTransaction", "AckAfterCommit",
	"CommitDecides", "ClaimCheck",
}

// String names the rules of a set.
func (r Rule) String() string {
	var names []string
	for i, name := range ruleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

// Invariant is a promise, or a set of promises.
type Invariant uint16

// The invariants.
const (
	// NoLoss: every path ends. At its end, every event whose transaction committed is in the
	// stream, and took effect or was cancelled.
	NoLoss Invariant = 1 << iota
	// NoGhost: no event whose transaction rolled back is in the stream.
	NoGhost
	// EffectOnce: no event takes effect twice, and no cancelled event takes effect.
	EffectOnce
	// KeyOrder: in the stream, the first occurrences of a key's events are in the order of
	// their commits.
	KeyOrder
	// MarkImpliesStored: every event that the state row calls published is in the stream.
	MarkImpliesStored
	// Fence: a leader whose epoch is over records nothing. A worker whose claim is over settles
	// nothing.
	Fence
	// OneCopy: while the broker remembers the message id of an event, it does not store the event
	// again.
	OneCopy

	// AllInvariants are all invariants.
	AllInvariants = 1<<iota - 1
)

var invariantNames = []string{"NoLoss", "NoGhost", "EffectOnce", "KeyOrder", "MarkImpliesStored", "Fence", "OneCopy"}

// String names the invariants of a set.
func (i Invariant) String() string {
	var names []string
	for n, name := range invariantNames {
		if i&(1<<n) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

// Faults says how often each fault may happen on one path. A fault may happen at any step.
type Faults struct {
	Crashes   uint8 // a relay's process ends
	TakeOvers uint8 // a lease ends while its leader sleeps
	Losses    uint8 // a publish or its acknowledgement is lost
	Forgets   uint8 // the duplicate window of an event ends
	Failovers uint8 // a copy that lacks the last commits replaces the database; 0 or 1
	Deaths    uint8 // a worker's process ends
	Refusals  uint8 // a worker's commit fails
	Failures  uint8 // a handler fails, and its event is held
	Lapses    uint8 // the claim of a held event ends while its worker sleeps
	Cancels   uint8 // an operator cancels a held event
}

// World is a set of rules, and the faults that may happen.
type World struct {
	Without Rule
	Faults  Faults

	// If Plain is set, [World.Explore] visits equivalent states one by one. That takes far longer,
	// and has the same result.
	Plain bool
}

// String names the world.
func (w World) String() string {
	name := "all rules"
	if w.Without != 0 {
		name = "without " + w.Without.String()
	}
	if w.Plain {
		name += ", plain"
	}
	return fmt.Sprintf("%s, %+v", name, w.Faults)
}

// has reports whether the world has all of the given rules.
func (w World) has(r Rule) bool { return w.Without&r == 0 }
