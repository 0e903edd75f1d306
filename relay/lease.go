package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// A term that lasted for this many leases counts as useful even if it recorded nothing: there was
// nothing to record.
const usefulLeases = 2

var (
	// tryWaits are the waits before the next try if the log or the broker did not answer. These
	// waits are short, because a try costs little.
	tryWaits = postroom.Backoff{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

	// termWaits are the waits between a term that failed and the next term. The waits grow while
	// terms are not useful: each term costs two connections, and publishes the same events again.
	termWaits = postroom.Backoff{
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
		2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	}
)

// leadAttempt describes one try to lead.
type leadAttempt struct {
	stoodBy bool // another relay led, or an operator had paused the relays

	ledAt      time.Time     // when the term began; zero if no term began
	firstLease time.Duration // the lease until the first renewal
	lease      time.Duration // the lease after the first renewal
	roundTrip  time.Duration // the time of a round trip to the log

	renewed  bool // the lease was renewed in this term
	recorded bool // the term recorded progress
}

// wasUseful reports whether the term recorded progress, or had nothing to record.
func (t *leadAttempt) wasUseful() bool {
	return t.recorded || t.renewed && time.Since(t.ledAt) > usefulLeases*t.lease
}

// attempts summarises the tries to lead in one call of Run.
type attempts struct {
	chosen     time.Duration // the value of Config.Lease
	leaseFixed bool          // the user set Config.Lease
	lease      time.Duration // the lease of the next term
	failures   int           // tries in a row without a useful term
	useless    int           // the failures in which a term began and was not useful
}

func newAttempts(lease time.Duration, fixed bool) *attempts {
	return &attempts{chosen: lease, leaseFixed: fixed, lease: lease}
}

// add adds a try that ended with err, and returns how long to wait before the next try.
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
		p.lease = min(2*t.lease, eventlog.LongestLease)
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

// errLeaseUnsure ends a term because its lease could not be renewed in time.
var errLeaseUnsure = errors.New("the lease was not renewed in time")

// leaseTooShortError means that a term ended because its lease could not be renewed in time.
type leaseTooShortError struct {
	lease     time.Duration
	what      string        // what did not end in time
	took      time.Duration // the time until the relay gave up
	roundTrip time.Duration
	cause     error
}

func (e *leaseTooShortError) Error() string {
	advice := adviseLease(max(2*e.lease, eventlog.LeaseFor(e.roundTrip)))
	//guard:a-near-database-is-not-blamed false
	if eventlog.LeaseFor(e.roundTrip) <= e.lease/2 {
		advice = fmt.Sprintf("the network is not the cause: the database was busy, its disk was slow, or the statement waited for a lock; set relay.Config.Lease (--lease) to %s or more if that cannot be changed", (2 * e.lease).Round(time.Second))
	}
	text := fmt.Sprintf("%v: a lease of %s is too short for this database: %s was not done after %s, and a round trip took %s when the term began; %s",
		errLeaseUnsure, rounded(e.lease), e.what, rounded(e.took), rounded(e.roundTrip), advice)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Is reports whether target is errLeaseUnsure.
func (e *leaseTooShortError) Is(target error) bool { return target == errLeaseUnsure }

func (e *leaseTooShortError) Unwrap() error { return e.cause }

// adviseLease says what an operator can do about a lease that is too short.
func adviseLease(needed time.Duration) string {
	return fmt.Sprintf("run the relay nearer to the database, or set relay.Config.Lease (--lease) to %s or more", needed.Round(time.Second))
}

// rounded rounds a time for an operator to read.
func rounded(d time.Duration) time.Duration {
	if d < 100*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
