package relay_test

import (
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/eventlog"
)

// fakeRewinds are the rewinds of a fakeSource: one after the other.
type fakeRewinds struct {
	all      []*fakeRewind
	looks    []time.Time
	repeated []eventlog.Repeated
	begun    int64
}

// fakeRewind is a rewind of events that are not in the fake log.
type fakeRewind struct {
	eventlog.Rewinding
	events []eventlog.Logged
	empty  int // looks that find nothing, before the events
}

func (s *fakeRewinds) look(limit int) (page eventlog.Rewound) {
	s.looks = append(s.looks, time.Now())
	if len(s.all) > 0 && (s.all[0].Cancelled || s.ended(s.all[0])) {
		page.Ended = []eventlog.Rewinding{s.all[0].Rewinding}
		s.all = s.all[1:]
	}
	if len(s.all) == 0 {
		return page
	}
	r := s.all[0]
	page.Rewinding, page.Begins = r.Rewinding, s.begun != r.ID
	s.begun = r.ID
	if r.empty > 0 {
		r.empty--
		page.Moved = true
		return page
	}
	n := min(limit, len(r.events)) // none, where limit is 0
	page.Moved = n > 0
	page.Events, r.events = slices.Clone(r.events[:n]), r.events[n:]
	return page
}

// looks returns when rewinds were looked at.
func (s *fakeSource) looks() []time.Time {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.Clone(s.rewinds.looks)
}

// repeated returns how many events of a rewind are recorded.
func (s *fakeSource) repeated(rewind int64) int64 {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.rewinds.count(rewind)
}

// ended reports whether all events of a rewind are recorded.
func (s *fakeRewinds) ended(r *fakeRewind) bool {
	return len(r.events) == 0 && s.count(r.ID) == r.Events
}

func (s *fakeRewinds) count(rewind int64) (n int64) {
	for _, e := range s.repeated {
		if e.Rewind == rewind && !e.Dropped {
			n++
		}
	}
	return n
}

// rewindOf returns a rewind of n events.
func rewindOf(id int64, n int, rate float64, each func(ev *eventlog.Logged)) *fakeRewind {
	r := &fakeRewind{Rewinding: eventlog.Rewinding{ID: id, Rate: rate, Events: int64(n)}, events: events(n)}
	for i := range r.events {
		r.events[i].Rewind = id
		if each != nil {
			each(&r.events[i])
		}
	}
	return r
}

// sightings is when events were published.
type sightings struct {
	mu      sync.Mutex
	rewound []time.Time
	live    map[int64]time.Time
}

func (s *sightings) see(ev eventlog.Logged) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ev.Rewind != 0 {
		s.rewound = append(s.rewound, time.Now())
		return
	}
	if s.live == nil {
		s.live = map[int64]time.Time{}
	}
	s.live[ev.Seq] = time.Now()
}
