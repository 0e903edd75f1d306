package model

import "fmt"

// Step is one thing that happens.
type Step struct {
	Act   Act
	Epoch uint8 // the epoch of the relay
	Event uint8

	Seqs, XIDs uint8 // indexes of the drawn orders; only the first step has them
}

// Act is a kind of step.
type Act uint8

const (
	draws Act = iota
	commits
	rollsBack
	fallsBehind
	failsOver
	takesLease
	takesOver
	reads
	sends
	isAcked
	losesAck
	records
	isRefused
	crashes
	stores
	storesAgain
	dropsRepeat
	losesPublish
	forgets
	turns
	takes
	findsRow
	inserts
	// Looks reads the inbox rows and inserts none. No world with all rules has this step.
	Looks
	handles
	commitsEffect
	acks
	dies
	commitFails
	holds
	claims
	lapses
	handlesAgain
	settles
	comesLate
	cancels
)

// Acts is how many kinds of steps there are.
const Acts = len(acts)

// acts are the steps in words. The first argument of a text is the relay's epoch, the second is the
// event.
var acts = [...]string{
	commits:       "producer     the transaction of %[2]s commits",
	rollsBack:     "producer     the transaction of %[2]s rolls back",
	fallsBehind:   "database     the copy follows it no longer",
	failsOver:     "database     it is lost, and the copy goes on in its place",
	takesLease:    "relay %[1]d      takes the lease",
	takesOver:     "relay %[1]d      takes the lease over: its leader sleeps",
	reads:         "relay %[1]d      reads the log",
	sends:         "relay %[1]d      sends %[2]s",
	isAcked:       "relay %[1]d      gets the acknowledgement of %[2]s",
	losesAck:      "relay %[1]d      the acknowledgement of %[2]s is lost",
	records:       "relay %[1]d      records what is published",
	isRefused:     "relay %[1]d      cannot record: another leads. It stands by",
	crashes:       "relay %[1]d      crashes",
	stores:        "broker       stores %[2]s",
	storesAgain:   "broker       stores %[2]s once more",
	dropsRepeat:   "broker       has %[2]s, drops the repetition",
	losesPublish:  "broker       never gets %[2]s from relay %[1]d",
	forgets:       "broker       forgets the message id of %[2]s",
	turns:         "relays       are done",
	takes:         "worker       is delivered %[2]s",
	findsRow:      "worker       finds an inbox row of %[2]s",
	inserts:       "worker       inserts the inbox row of %[2]s",
	Looks:         "worker       finds no inbox row of %[2]s",
	handles:       "worker       runs the handler for %[2]s",
	commitsEffect: "worker       commits for %[2]s",
	acks:          "worker       acknowledges %[2]s",
	dies:          "worker       crashes, at %[2]s",
	commitFails:   "worker       cannot commit for %[2]s",
	holds:         "worker       holds %[2]s, for which the handler failed",
	claims:        "worker       claims %[2]s, which is held",
	lapses:        "database     the claim of %[2]s ends: its worker sleeps",
	handlesAgain:  "worker       runs the handler for %[2]s, which is held",
	settles:       "worker       settles %[2]s",
	comesLate:     "worker       cannot settle %[2]s: its claim is over",
	cancels:       "operator     cancels %[2]s, which is held",
}

var eventNames = [events]string{"a1", "a2", "b1"}

// String describes the step.
func (s Step) String() string {
	if s.Act == draws {
		return fmt.Sprintf("producer     three transactions take seqs in the order %s, and xids in the order %s", namesOf(s.Seqs), namesOf(s.XIDs))
	}
	return fmt.Sprintf(acts[s.Act]+"%[3]s", s.Epoch, eventNames[s.Event], "")
}

func namesOf(order uint8) string {
	o := orders[order]
	return eventNames[o[0]] + ", " + eventNames[o[1]] + ", " + eventNames[o[2]]
}
