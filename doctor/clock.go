package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Clocks that differ by more than this.
const (
	clockOff   = time.Second // make ages and lags of no use
	clockWrong = time.Minute // make events too old, or due, at another time than they are
)

// clock is by how much another machine's clock is ahead of this one's, and by how
// much that may be wrong: half of the time that the answer took.
type clock struct{ ahead, doubt time.Duration }

// measured returns the clock of whoever said what time it is, between two times.
func measured(before, told, after time.Time) clock {
	doubt := after.Sub(before) / 2
	return clock{ahead: told.Sub(before.Add(doubt)), doubt: doubt}
}

// off returns by how much a clock differs from another at the least.
func (c clock) off(other clock) time.Duration {
	return max((c.ahead-other.ahead).Abs()-c.doubt-other.doubt, 0)
}

// databaseClock measures the database's clock: the answer that came the soonest tells.
func (e *examination) databaseClock(ctx context.Context) (clock, error) {
	return e.clock.get(func() (clock, error) {
		var best clock
		err := e.read(ctx, func(tx pgx.Tx) error {
			for i := range 3 {
				before := time.Now()
				var told time.Time
				if err := tx.QueryRow(ctx, e.d.sql.clock).Scan(&told); err != nil {
					return fmt.Errorf("read the database's clock: %w", err)
				}
				if c := measured(before, told, time.Now()); i == 0 || c.doubt < best.doubt {
					best = c
				}
			}
			return nil
		})
		return best, err
	})
}

func checkDatabaseClock(ctx context.Context, e *examination) error {
	c, err := e.databaseClock(ctx)
	if err != nil {
		return err
	}
	e.compareClocks("the database", c, "this machine", clock{})
	return nil
}

// checkBrokerClock takes the broker's clock from what it says of a stream.
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
			e.compareClocks("the broker", s.clock, "the database", database)
			return nil
		}
	}
	e.skip("", "make a stream with 'postroom stream ensure', and write an event", "not looked at: the broker tells its time with a stream, and none is in use")
	return nil
}

func (e *examination) compareClocks(of string, c clock, with string, other clock) {
	const remedy = "let all machines take their time from one source (NTP, chrony)"
	switch off := c.off(other); {
	case off > clockWrong:
		e.fault("", remedy, "the clock of %s and that of %s differ by %s", of, with, span((c.ahead - other.ahead).Abs()))
	case off > clockOff:
		e.warn("", remedy, "the clock of %s and that of %s differ by %s", of, with, span((c.ahead - other.ahead).Abs()))
	default:
		e.ok("", "the clocks of %s and %s differ by less than %s", of, with, span(max(off+c.doubt+other.doubt, clockOff)))
	}
}
