// Package model is a small model of the design, which a test explores completely. It has
// three transactions with an event each, two keys, two relays, a broker and two workers of a
// handler. A crash is possible at every step.
//
// The model does not run the code. In a few hundred lines it repeats the promises of
// docs/reference/guarantees.md and the rules by which the parts keep them. A test visits every
// state that these rules allow. Without any one [Rule] an [Invariant] must break, and the test
// prints the shortest way there in words. If no invariant needed a rule, it would not be a rule of
// the design.
//
// What is modelled: transactions that take their xid, their seq and their end in any
// order that PostgreSQL allows; passes that compare snapshots; the state row with its
// epoch; a leader that sleeps while another takes over, and wakes up; publishes that
// arrive late or never, acknowledgements that are lost, a duplicate window that ends;
// recordings; a failover to a database that lacks the last commits; deliveries that
// come again, beside each other; commits that fail; an event that is held because its
// handler failed, and claimed, while an older claim wakes up; a crash of every process
// between any two steps.
//
// What is not modelled: outgoing events that are held, ordered handlers, atomic batches,
// scheduled events, republishes, repair after a broker lost messages, retention, backlogs of
// more than a page. Time is not modelled at all: at any moment a lease may end, a message
// may be delivered again, and a duplicate window may close.
package model
