package doctor

import (
	"context"
	"fmt"

	"github.com/postroom/postroom/internal/inspect"
)

// logChecks examine the log and the relays.
var logChecks = []check{
	{"sequence", tables, "the log's sequence is ahead of the published events, and goes up by one", checkSequence},
	{"sequences", tables, "each other sequence is ahead of the rows that it numbers", checkSequences},
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
		e.fault("outbox", e.raise(),
			"the log's sequence is at %d, and events up to %d are recorded as published: relays would skip new events as published, so they refuse to lead", s.Last, s.High)
	}
	return nil
}

// raise returns the advice for sequences that are behind.
func (e *examination) raise() string {
	return fmt.Sprintf("if no program runs, as the owner of the tables: SELECT * FROM %s.raise_sequences()", e.d.name)
}

// checkSequences looks for other sequences that are behind, as they are after a move by logical
// replication.
func checkSequences(ctx context.Context, e *examination) error {
	type behind struct {
		Name       string
		Last, High int64
	}
	all, err := query[behind](ctx, e, e.d.sql.Sequences)
	for _, b := range all {
		e.fault(b.Name, e.raise(), "the sequence is at %d, and the table has a row with %d: new rows would collide with old ones. Logical replication copies no sequences", b.Last, b.High)
	}
	return err
}

// checkRelay reports what package inspect finds about the relays.
func checkRelay(ctx context.Context, e *examination) error {
	s, err := e.inspector().RelayStatus(ctx)
	if err != nil {
		return err
	}
	for _, f := range s.Findings {
		switch f.Code {
		case inspect.FoundNoRelay:
			e.report(!s.Relay.OldestUnpublishedAt.IsZero(), "", f.Remedy, "%s", f.Text)
		case inspect.FoundRestored:
			e.warn("restored", f.Remedy, "%s", f.Text)
		case inspect.FoundMoved:
			e.report(s.Relay.Leads, "moved", f.Remedy, "%s", f.Text)
		default:
			e.warn("", f.Remedy, "%s", f.Text)
		}
	}
	for _, note := range s.Notes {
		e.note("", "%s", note)
	}
	switch {
	case len(s.Findings)+len(s.Notes) > 0:
	case s.Relay.Leads:
		e.ok("", "%s leads, and no event has waited for more than %s to be published", s.Relay.Owner, inspect.UnpublishedFor)
	default:
		e.note("", "no relay has led here, and no event waits for one")
	}
	return nil
}
