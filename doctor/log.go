package doctor

import (
	"context"
	"fmt"
	"time"
)

// logChecks examine the log and the relays.
var logChecks = []check{
	{"sequence", tables, "the log's sequence is ahead of the published events, and goes up by one", checkSequence},
	{"relay", tables, "", checkRelay},
}

func checkSequence(ctx context.Context, e *examination) error {
	type sequence struct {
		Last, High, Increment, Cache int64
		Cycle                        bool
	}
	s, err := queryOne[sequence](ctx, e, e.d.sql.Sequence)
	if err != nil {
		return err
	}
	name := e.d.name + ".outbox_seq_seq"
	if s.Increment != 1 || s.Cache != 1 || s.Cycle {
		e.fault("outbox", fmt.Sprintf("ALTER SEQUENCE %s CACHE 1 INCREMENT 1 NO CYCLE", name),
			"the log's sequence has CACHE %d, INCREMENT %d, CYCLE %t: events of one key would not be published in the order of their commits, so relays refuse to lead",
			s.Cache, s.Increment, s.Cycle)
	}
	if s.Last < s.High {
		e.fault("outbox", fmt.Sprintf("if no event was written since then: SELECT setval('%s', %d)", name, s.High),
			"the log's sequence is at %d, and events up to %d are recorded as published: relays would skip new events as published, so they refuse to lead", s.Last, s.High)
	}
	return nil
}

// relayLateAfter is how old an unpublished event may be before the leading relay counts as late.
const relayLateAfter = time.Minute

func checkRelay(ctx context.Context, e *examination) error {
	type state struct {
		Owner                string
		Epoch, High          int64
		Leads                bool
		Expired              float64
		Behind               bool
		Age                  float64
		Restored, SnapsAhead bool
	}
	s, err := queryOne[state](ctx, e, e.d.sql.Relay)
	if err != nil {
		return err
	}
	const start = "start 'postroom relay', or relay.Relay.Run in a program; if a relay runs, its log says why it does not lead"
	waits := ""
	if s.Behind {
		waits = fmt.Sprintf(", and the oldest event that is not published has waited for %s", duration(seconds(s.Age)))
	}
	switch {
	case s.Leads && s.Behind && seconds(s.Age) > relayLateAfter:
		e.warn("", "look at the log of "+s.Owner+", and at the streams: one may be full or without a leader",
			"the relay is late: the oldest event that is not published has waited for %s", duration(seconds(s.Age)))
	case s.Leads:
		e.ok("", "%s leads, and has read events up to %d", s.Owner, s.High)
	case s.Epoch == 0:
		e.report(s.Behind, "", start, "no relay has ever led here%s", waits)
	default:
		e.report(s.Behind, "", start, "no relay leads: the lease of the last leader ended %s ago%s", duration(seconds(s.Expired)), waits)
	}
	switch {
	case s.Restored:
		e.warn("restored", "if this database replaces the original, start a relay; if it is a copy, give it another identity before any program connects it to the broker: UPDATE "+
			e.d.name+".instance SET id = gen_random_uuid()",
			"the relay's state comes from another cluster: this database was restored from a dump, and no relay has led since. Its inboxes would share the consumers of the original")
	case s.SnapsAhead:
		e.fault("snapshot", "stop the relays, and publish again from the log the events that the broker lacks ('postroom stream check')",
			"the relay has seen transactions that this server does not have: a failover or a restore lost commits")
	}
	return nil
}
