package model

import (
	"fmt"
	"strings"
)

// Rule is one of the rules by which the design keeps its promises; several make a
// set.
type Rule uint16

// The rules. A [World] can be without any of them.
const (
	// ReadCommitted: a pass sees what is committed, and nothing else.
	ReadCommitted Rule = 1 << iota
	// LateOpen: a pass finds rows up to high of transactions that were in progress at
	// the pass before.
	LateOpen
	// LateNew: a pass finds rows up to high of transactions that took their id after
	// the pass before.
	LateNew
	// LateFirst: late rows go out before newer rows.
	LateFirst
	// OnePerKey: the next event of a key is sent only after one's own acknowledgement
	// of the one before.
	OnePerKey
	// SameMessageID: what is published again has the message id that it had.
	SameMessageID
	// RecordAcked: only what was acknowledged is recorded as published.
	RecordAcked
	// RecordPending: what was read and not acknowledged is recorded as pending.
	RecordPending
	// EpochCheck: a recording carries its epoch, and is refused where another began.
	EpochCheck
	// DropMemory: what a leader remembers ends with its database connection.
	DropMemory
	// InsertFirst: the ledger row is inserted before the handler runs.
	InsertFirst
	// OneTransaction: ledger row and effects are committed together.
	OneTransaction
	// AckAfterCommit: a delivery is acknowledged after its commit.
	AckAfterCommit
	// CommitDecides: a delivery is done only if its commit is said to have succeeded.
	CommitDecides
	// ClaimCheck: a held event is settled with the epoch of its claim, which is refused
	// where another began.
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
	// NoLoss: every path ends, and at its end every event whose transaction committed
	// is in the stream, recorded as published, and took effect or was cancelled.
	NoLoss Invariant = 1 << iota
	// NoGhost: no event whose transaction rolled back is in the stream.
	NoGhost
	// EffectOnce: no event takes effect twice, and none that was cancelled.
	EffectOnce
	// KeyOrder: the first occurrences of a key's events stand in the stream in the
	// order of their commits.
	KeyOrder
	// MarkImpliesStored: what the state row says is published is in the stream.
	MarkImpliesStored
	// Fence: a leader whose epoch is over records nothing, and neither does a worker whose
	// claim is over.
	Fence
	// OneCopy: while the broker remembers an event, it stores it no second time.
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

// Faults is how often each fault may happen on one path, whenever it likes.
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

// World is what is explored: a set of rules, and the faults that may happen.
type World struct {
	Without Rule
	Faults  Faults

	// Plain has states that stand for each other visited one by one, which takes far
	// longer and shows the same.
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
