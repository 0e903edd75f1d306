package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/broker"
)

const (
	// DefaultLease is Config.Lease where nobody chose it, and the database is not slow.
	DefaultLease = 5 * time.Second

	// LongestLease is up to what a relay lengthens a lease that nobody chose.
	LongestLease = 30 * time.Second

	// A lease that nobody chose lasts for so many round trips to the database at the
	// least. It is renewed when a third of it is over, and given up when three quarters
	// are: in the worst case a step of pruning and a recording, with statements that are
	// sent for the first time, take five.
	leaseTrips = 10

	// A term that recorded nothing was of use if it lasted for so many leases: there was
	// nothing to record.
	usefulLeases = 2
)

// LeaseFor returns how long a lease has to be, at the least, for a database to which a
// statement and its answer take the given time.
func LeaseFor(roundTrip time.Duration) time.Duration { return leaseTrips * roundTrip }

var (
	// tryWaits are those before the next try, where the log or the broker did not answer. A
	// try costs them little.
	tryWaits = postroom.Backoff{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

	// termWaits are those before the next term, where the last ones were of no use. Each
	// costs two connections, and has the same events published again.
	termWaits = postroom.Backoff{
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
		2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	}
)

// leadAttempt is what came of one try to lead.
type leadAttempt struct {
	stoodBy bool // another relay led

	ledAt      time.Time     // when the term began; zero: it did not
	firstLease time.Duration // the lease for the time until it is first renewed
	lease      time.Duration // and from then on
	roundTrip  time.Duration // a statement to the log and back

	renewed  bool // at least once
	recorded bool // it recorded what became of events
}

// wasUseful reports whether the term did what it is for.
func (t *leadAttempt) wasUseful() bool {
	return t.recorded || t.renewed && time.Since(t.ledAt) > usefulLeases*t.lease
}

// attempts is what one Run of a relay knows of its terms so far.
type attempts struct {
	chosen     time.Duration // Config.Lease
	leaseFixed bool          // an operator chose it
	lease      time.Duration // of the next term
	failures   int           // tries without a useful term, one after the other
	useless    int           // those of them in which a term began
}

func newAttempts(lease time.Duration, fixed bool) *attempts {
	return &attempts{chosen: lease, leaseFixed: fixed, lease: lease}
}

// add takes in what came of a try, and returns how long the next one has to wait.
func (p *attempts) add(t *leadAttempt, err error) time.Duration {
	switch {
	case t.wasUseful():
		p.failures, p.useless = 0, 0
	case t.ledAt.IsZero() && t.stoodBy:
		p.failures = 0
	}
	switch {
	case p.leaseFixed:
	case errors.Is(err, errLeaseUnsure):
		p.lease = min(2*t.lease, LongestLease)
	case t.wasUseful():
		p.lease = p.chosen
	}
	again := errors.Is(err, broker.ErrReconnected) || errors.Is(err, errLost)
	if err == nil || again && t.wasUseful() {
		return 0
	}
	p.failures++
	if t.ledAt.IsZero() {
		return tryWaits.Delay(p.failures)
	}
	if t.wasUseful() {
		return termWaits.Delay(p.failures)
	}
	p.useless++
	return termWaits.Delay(p.useless)
}

// errLeaseUnsure ends a term whose lease could not be renewed in time.
var errLeaseUnsure = errors.New("the lease was not renewed in time")

// leaseTooShortError says that a term ended because its lease could not be renewed in time.
type leaseTooShortError struct {
	lease     time.Duration // that ran
	what      string        // renewed it, or stood in the way
	took      time.Duration // until it was given up
	roundTrip time.Duration
	cause     error
}

func (e *leaseTooShortError) Error() string {
	text := fmt.Sprintf("%v: a lease of %s is too short for this database: %s was not done after %s, and a round trip took %s when the term began; %s",
		errLeaseUnsure, rounded(e.lease), e.what, rounded(e.took), rounded(e.roundTrip), adviseLease(max(2*e.lease, LeaseFor(e.roundTrip))))
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Is reports that it is an errLeaseUnsure.
func (e *leaseTooShortError) Is(target error) bool { return target == errLeaseUnsure }

func (e *leaseTooShortError) Unwrap() error { return e.cause }

// adviseLease says what an operator can do about a lease that is too short.
func adviseLease(needed time.Duration) string {
	return fmt.Sprintf("run the relay nearer to the database, or set relay.Config.Lease (--lease) to %s or more", needed.Round(time.Second))
}

// rounded returns a time as an operator reads it.
func rounded(d time.Duration) time.Duration {
	if d < 100*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
