package schedule

import "time"

// maxProbes is the largest number of events that may be in flight to an unavailable stream. The
// limit is more than one, so that one event that the stream does not take cannot stop all probes.
// It is small, so that most of relay.Config.Window stays free for other streams.
const maxProbes = 16

// stream is the state of one stream. The stream becomes unavailable when it does not take an event,
// and available again when it stores or refuses an event. While it is unavailable, its events wait,
// and a few of them are sent from time to time as probes.
type stream struct {
	name     string
	storedAt time.Time    // when the stream last stored an event
	sent     int          // events in flight to the stream
	stored   int64        // events that the stream stored since TakeStored
	parked   fifo[*Entry] // events that wait for the stream

	unavailable bool
	since       time.Time // when the stream became unavailable
	rounds      int       // rounds of probes that failed
	nextProbe   time.Time // when the next round of probes begins
}

// full reports whether no further event may be sent to the stream for now.
func (s *stream) full() bool { return s.unavailable && s.sent >= maxProbes }

// probes returns the number of parked events that may be sent now.
func (s *stream) probes(now time.Time) int {
	if !s.unavailable || s.nextProbe.After(now) {
		return 0
	}
	return max(0, min(maxProbes-s.sent, s.parked.len()))
}

// addFailed parks an event that the stream did not take.
func (s *stream) addFailed(e *Entry, now time.Time) {
	if !s.unavailable {
		s.unavailable, s.since, s.rounds, s.nextProbe = true, now, 0, time.Time{}
	}
	if !e.Sent.Before(s.nextProbe) { // the first failure of this round
		s.rounds++
		s.nextProbe = now.Add(probeBackoff.Delay(s.rounds))
	}
	s.parked.push(e)
}

// recover makes the stream available, and the events that waited for it ready.
func (s *stream) recover(ready *fifo[*Entry]) {
	s.unavailable = false
	for {
		e, ok := s.parked.pop()
		if !ok {
			return
		}
		ready.push(e)
	}
}
