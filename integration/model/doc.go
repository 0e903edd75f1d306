// Package model is a small model of the design. A test explores it completely. The model has three
// transactions with an event each, two keys, two relays, a broker and two workers of a handler. A
// crash is possible at every step.
//
// The model does not run the code. Instead it repeats the promises of docs/reference/guarantees.md,
// and the rules with which relays, broker and handlers keep these promises. A test visits every
// state that the rules allow. If any one [Rule] is left out, an [Invariant] must break. The test
// then prints, in words, the shortest way to the state that breaks it. A rule that no invariant
// needs is not a rule of the design.
//
// The model has these parts and faults. Transactions take their xids and seqs, and end, in any
// order that PostgreSQL allows. A relay compares the snapshots of successive reads of the log. It
// records in the state row, with its epoch, what is published. A leader may sleep while another
// relay takes over, and wake up later. A publish may arrive late or never, an acknowledgement may
// be lost, and a duplicate window may end. The database may fail over to a copy that lacks the last
// commits. The broker may deliver a message again, even while a worker has it. A commit may fail.
// If a handler fails, its event is held, and a worker claims it; a worker with an older claim may
// wake up meanwhile. Every process may crash between any two steps.
//
// The model leaves out held outgoing events, ordered handlers, atomic batches, scheduled events,
// republishes, repair after a broker lost messages, retention, and backlogs of more than a page.
// The model has no time at all: at any moment a lease may end, the broker may deliver a
// message again, and a duplicate window may close.
package model
