package doctor

import (
	"context"
	"fmt"
	"time"
)

// logChecks examine the log and the relays.
var logChecks = []check{
	{"sequence", tables, "the log's sequence is ahead of what is published, and goes up by one", checkSequence},
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
			"the log's sequence has CACHE %d, INCREMENT %d, CYCLE %t: events of one key would be published in another order than they were committed, and relays refuse to lead",
			s.Cache, s.Increment, s.Cycle)
	}
	if s.Last < s.High {
		e.fault("outbox", fmt.Sprintf("SELECT setval('%s', %d), if no event was written since", name, s.High),
			"the log's sequence is at %d, and events up to %d are recorded as published: new events would be taken for published ones, and relays refuse to lead", s.Last, s.High)
	}
	return nil
}

// relayLateAfter is the age of an event from which the leading relay is late.
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
	const start = "start 'postroom relay', or relay.Relay.Run in a program; its log says why one that runs does not lead"
	waits := ""
	if s.Behind {
		waits = fmt.Sprintf(", and the oldest event that is not published has waited for %s", duration(seconds(s.Age)))
	}
	switch {
	case s.Leads && s.Behind && seconds(s.Age) > relayLateAfter:
		e.warn("", "look at the log of "+s.Owner+", and at the streams: one may be full or without a leader",
			"the relay is late: the oldest event that is not published has waited for %s", duration(seconds(s.Age)))
	case s.Leads:
		e.ok("", "%s leads, and events up to %d were read", s.Owner, s.High)
	case s.Epoch == 0:
		e.report(s.Behind, "", start, "no relay has ever led here%s", waits)
	default:
		e.report(s.Behind, "", start, "no relay leads: the lease of the last one ended %s ago%s", duration(seconds(s.Expired)), waits)
	}
	switch {
	case s.Restored:
		e.warn("restored", "if this database takes the place of the other, start a relay; if it is a copy, give it another identity before any program of it connects to the broker: UPDATE "+
			e.d.name+".instance SET id = gen_random_uuid()",
			"the relay's state is of another cluster: this database was restored from a dump, and no relay has led since. Its inboxes would share the consumers of the one it was made from")
	case s.SnapsAhead:
		e.fault("snapshot", "stop the relays, and publish again from the log what the broker lacks ('postroom stream check')",
			"the relay has seen transactions that this server has not had yet: commits were lost, by a failover or a restore")
	}
	return nil
}
