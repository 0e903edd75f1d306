package doctor

import "time"

// Off returns the smallest possible difference of two clocks. Each told its time between two
// moments.
func Off(before, told, after, otherBefore, otherTold, otherAfter time.Time) time.Duration {
	return measureClock(before, told, after).differs(measureClock(otherBefore, otherTold, otherAfter))
}

// CompareClocks returns the finding about a clock that is ahead of this machine's clock.
func CompareClocks(ahead, doubt time.Duration) Finding {
	e := &examination{d: New(nil, nil, Config{})}
	compareClocks(e, "the database", clock{ahead, doubt}, "this machine", clock{})
	return e.findings[0]
}

// CompareLease returns the finding about a database with the given round-trip time, and with the
// chosen lease.
func CompareLease(roundTrip, chosen time.Duration) Finding {
	e := &examination{d: New(nil, nil, Config{Lease: chosen})}
	compareLease(e, roundTrip)
	return e.findings[0]
}

// Milliseconds reads a timeout.
var Milliseconds = milliseconds
