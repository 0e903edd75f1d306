package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
)

// The doctor reports a warning or a fault if two clocks differ by more than these times.
const (
	clockWarning = time.Second // with a larger difference, ages and lags are useless
	clockFault   = time.Minute // with a larger difference, events become due or too old at the wrong time
)

// A clock says how far the clock of another machine is ahead of the clock of this machine. The
// field uncertainty is half of the time that the answer took.
type clock struct{ ahead, uncertainty time.Duration }

// measureClock returns the clock of a server. The parameter told is the time in the server's
// answer. This machine sent the question at the time before, and got the answer at the time after.
func measureClock(before, told, after time.Time) clock {
	doubt := after.Sub(before) / 2
	return clock{ahead: told.Sub(before.Add(doubt)), uncertainty: doubt}
}

// differs returns the smallest possible difference between two clocks.
func (c clock) differs(other clock) time.Duration {
	return max((c.ahead-other.ahead).Abs()-c.uncertainty-other.uncertainty, 0)
}

func checkDatabaseClock(ctx context.Context, e *examination) error {
	c, err := e.databaseClock(ctx)
	if err != nil {
		return err
	}
	compareClocks(e, "the database", c, "this machine", clock{})
	return nil
}

// checkRoundTrip compares the lease of the relays with the time that the database takes to answer.
// A relay must renew its lease before the lease ends.
func checkRoundTrip(ctx context.Context, e *examination) error {
	c, err := e.databaseClock(ctx)
	if err != nil {
		return err
	}
	compareLease(e, 2*c.uncertainty)
	return nil
}

func compareLease(e *examination, roundTrip time.Duration) {
	needed, chosen := eventlog.LeaseFor(roundTrip), e.d.cfg.Lease
	took := roundTrip.Round(10 * time.Microsecond)
	switch {
	case chosen > 0 && needed > chosen:
		e.fault("", fmt.Sprintf("give relays a lease of %s or more (relay.Config.Lease, --lease), or run them nearer to the database", needed.Round(time.Second)),
			"a statement takes %s from here to the database and back: the lease of %s is too short for the statements of a relay, and it may never lead", took, chosen)
	case chosen > 0:
		e.ok("", "a statement takes %s to the database and back: the lease of %s leaves time enough", took, chosen)
	case needed > eventlog.LongestLease:
		e.fault("", fmt.Sprintf("run relays nearer to the database, or give them a lease of %s or more (relay.Config.Lease, --lease)", needed.Round(time.Second)),
			"a statement takes %s from here to the database and back: the longest lease that a relay chooses, %s, is too short for its statements, and it may never lead", took, eventlog.LongestLease)
	case needed > eventlog.DefaultLease:
		e.warn("", "run relays nearer to the database",
			"a statement takes %s from here to the database and back: relays lengthen their lease to %s, so after a crash the next relay leads that much later; a relay with a shorter --lease may never lead", took, needed.Round(time.Second))
	default:
		e.ok("", "a statement takes %s to the database and back: the relays' lease of %s leaves time enough", took, eventlog.DefaultLease)
	}
}

// checkBrokerClock compares the clocks of the broker and the database. The broker tells its time in
// its answer about a stream.
func checkBrokerClock(ctx context.Context, e *examination) error {
	database, err := e.databaseClock(ctx)
	if err != nil {
		return err
	}
	streams, err := e.loadStreams(ctx)
	if err != nil {
		return err
	}
	for _, s := range streams {
		if s.info != nil && !s.info.TimeStamp.IsZero() {
			compareClocks(e, "the broker", s.clock, "the database", database)
			return nil
		}
	}
	e.skip("", "make a stream with 'postroom stream ensure', and write an event", "not checked: the broker tells its time only with a stream, and no stream is in use")
	return nil
}

// checkDates looks for times that were written while a clock was wrong. What waits for them would
// wait until that date, and no message says why.
func checkDates(ctx context.Context, e *examination) error {
	type date struct {
		What, Of string
		Ahead    float64
		Remedy   string
	}
	found, err := query[date](ctx, e, e.d.sql.DatesAhead)
	for _, d := range found {
		e.fault(d.Of, "when the clocks are right: "+d.Remedy,
			"%s lies %s ahead: a clock was wrong when it was written, and what depends on it waits until then", d.What, duration(seconds(d.Ahead)))
	}
	return err
}

func compareClocks(e *examination, of string, c clock, with string, other clock) {
	const remedy = "set the clocks of all machines from one source (NTP, chrony)"
	switch off := c.differs(other); {
	case off > clockFault:
		e.fault("", remedy, "the clocks of %s and %s differ by %s", of, with, duration((c.ahead - other.ahead).Abs()))
	case off > clockWarning:
		e.warn("", remedy, "the clocks of %s and %s differ by %s", of, with, duration((c.ahead - other.ahead).Abs()))
	default:
		e.ok("", "the clocks of %s and %s differ by less than %s", of, with, duration(max(off+c.uncertainty+other.uncertainty, clockWarning)))
	}
}
