package model

import (
	"fmt"
	"strings"
)

// Rule is a rule of the design; several make a set.
type Rule uint16

// The rules. A [World] can be without any of them.
const (
	// ReadCommitted: a pass sees committed rows, and no others.
	ReadCommitted Rule = 1 << iota
	// LateOpen: a pass finds rows up to high of transactions that were in progress at
	// the pass before.
	LateOpen
	// LateNew: a pass finds rows up to high of transactions that took their id after
	// the pass before.
	LateNew
	// LateFirst: late rows go out before newer rows.
	LateFirst
	// OnePerKey: a relay sends the next event of a key only after it has itself got the
	// acknowledgement of the event before.
	OnePerKey
	// SameMessageID: a repetition has the message id of the first publish.
	SameMessageID
	// RecordAcked: only acknowledged events are recorded as published.
	RecordAcked
	// RecordPending: events that were read and are not acknowledged are recorded as pending.
	RecordPending
	// EpochCheck: a recording carries its epoch, and is refused if another epoch has begun.
	EpochCheck
	// DropMemory: the memory of a leader ends with its database connection.
	DropMemory
	// InsertFirst: the inbox row is inserted before the handler runs.
	InsertFirst
	// OneTransaction: inbox row and effects are committed together.
	OneTransaction
	// AckAfterCommit: a delivery is acknowledged after its commit.
	AckAfterCommit
	// CommitDecides: a delivery is done only if its commit is said to have succeeded.
	CommitDecides
	// ClaimCheck: a held event is settled with the epoch of its claim, and that is refused if
	// another claim has begun.
	ClaimCheck

	// AllRules is the design.
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

// Invariant is a promise; several make a set.
type Invariant uint16

// The invariants.
const (
	// NoLoss: every path ends. At its end every event whose transaction committed is in the
	// stream, recorded as published, and took effect or was cancelled.
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
	// Fence: if a leader's epoch is over, it records nothing. If a worker's claim is over, it
	// settles nothing.
	Fence
	// OneCopy: while the broker remembers an event, it does not store it a second time.
	OneCopy

	// AllInvariants are all of them.
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

// Faults is how often each fault may happen on one path, at any step.
type Faults struct {
	Crashes   uint8 // a relay's process ends
	TakeOvers uint8 // a lease ends while its leader sleeps
	Losses    uint8 // a publish or its acknowledgement is lost
	Forgets   uint8 // the duplicate window of an event ends
	Failovers uint8 // the database goes on from a copy that lacks the last commits; at most one
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

	// Plain visits equivalent states one by one. That takes far longer and has the same
	// result.
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
