package eventlog

import "time"

const (
	// DefaultLease is the lease of a relay, unless its Config says otherwise or the database is slow.
	DefaultLease = 5 * time.Second

	// LongestLease is the longest lease that a relay chooses by itself.
	LongestLease = 30 * time.Second

	// A lease that the relay chooses lasts for at least this many round trips to the database, or
	// for LongestLease. The leader renews the lease when a third of it is over, and gives up after
	// three quarters of it: 7.5 round trips. A recording, a step of pruning and the next recording
	// end before that: they take at most two round trips each, if their statements are sent for the
	// first time. If the leader gives up, its next lease is twice as long.
	leaseTrips = 10
)

// LeaseFor returns the shortest safe lease for a database with the given round-trip time.
func LeaseFor(roundTrip time.Duration) time.Duration { return leaseTrips * roundTrip }
