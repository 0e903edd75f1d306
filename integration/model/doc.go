// Package model is the design in small, explored completely: three transactions
// with an event each, two keys, two relays, a broker and two workers of a handler,
// with a crash possible at every step.
//
// Nothing here runs the code. The model says again, in a few hundred lines, what
// docs/reference/guarantees.md promises and by which rules the parts keep it, and a test walks
// through every state that these rules allow. Each [Rule] can be taken away: then an
// [Invariant] must break, and the shortest way there is told in words. A rule that
// nothing depends on would not be one.
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
// What is not: events that are held on their way out, ordered handlers, atomic batches,
// scheduled events, republishes, repair after a broker lost messages, retention, backlogs of
// more than a page. Time is not modelled at all: a lease ends, a message is delivered
// again and a duplicate window closes at any moment.
package model
