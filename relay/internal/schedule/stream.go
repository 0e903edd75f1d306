package schedule

import "time"

// maxProbes is how many events are in flight to a stream that is out: enough
// for one that is refused alone not to stand before all others, and few enough
// to leave the window to other streams.
const maxProbes = 16

// stream is what is known of one stream. It is out from an event that it did
// not take until it takes one: then what is meant for it waits, and a few are
// sent from time to time to find out.
type stream struct {
	name     string
	storedAt time.Time    // when it last stored an event
	sent     int          // in flight to it
	stored   int64        // events it stored, since that was last counted
	parked   fifo[*Entry] // wait for it to come back

	unavailable bool
	since       time.Time // when it went out
	rounds      int       // of probes that failed
	nextProbe   time.Time // of the next round
}

// full reports whether no more may be sent to the stream for now.
func (s *stream) full() bool { return s.unavailable && s.sent >= maxProbes }

// probes returns how many of the parked events may be sent now.
func (s *stream) probes(now time.Time) int {
	if !s.unavailable || s.nextProbe.After(now) {
		return 0
	}
	return max(0, min(maxProbes-s.sent, s.parked.len()))
}

// Failed parks an event that the stream did not take, sent at the given time.
func (s *stream) addFailed(f *Entry, now time.Time) {
	if !s.unavailable {
		s.unavailable, s.since, s.rounds, s.nextProbe = true, now, 0, time.Time{}
	}
	if !f.Sent.Before(s.nextProbe) { // the first failure of this round
		s.rounds++
		s.nextProbe = now.Add(probeBackoff.Delay(s.rounds))
	}
	s.parked.push(f)
}

// recover ends an outage: what waited may be sent.
func (s *stream) recover(ready *fifo[*Entry]) {
	s.unavailable = false
	for {
		f, ok := s.parked.pop()
		if !ok {
			return
		}
		ready.push(f)
	}
}
