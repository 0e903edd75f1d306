package relay_test

import (
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// fakeRepublishes are the republishes of a fakeSource: one after the other.
type fakeRepublishes struct {
	all      []*fakeRepublish
	looks    []time.Time
	repeated []eventlog.RepublishResult
	begun    int64
}

// fakeRepublish is a republish of events that are not in the fake log.
type fakeRepublish struct {
	eventlog.RepublishStatus
	events []broker.Event
	empty  int // reads that find no event, before the events
}

func (s *fakeRepublishes) look(limit int) (page eventlog.RepublishPage) {
	s.looks = append(s.looks, time.Now())
	if len(s.all) > 0 && (s.all[0].Cancelled || s.ended(s.all[0])) {
		page.Ended = []eventlog.RepublishStatus{s.all[0].RepublishStatus}
		s.all = s.all[1:]
	}
	if len(s.all) == 0 {
		return page
	}
	r := s.all[0]
	page.RepublishStatus, page.Begins = r.RepublishStatus, s.begun != r.ID
	s.begun = r.ID
	if r.empty > 0 {
		r.empty--
		page.Advanced = true
		return page
	}
	n := min(limit, len(r.events)) // none if limit is 0
	page.Advanced = n > 0
	page.Events, r.events = slices.Clone(r.events[:n]), r.events[n:]
	return page
}

// looks returns when republishes were looked at.
func (s *fakeSource) looks() []time.Time {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.Clone(s.republishes.looks)
}

// repeated returns how many events of a republish are recorded.
func (s *fakeSource) repeated(republish int64) int64 {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.republishes.count(republish)
}

// ended reports whether all events of a republish are recorded.
func (s *fakeRepublishes) ended(r *fakeRepublish) bool {
	return len(r.events) == 0 && s.count(r.ID) == r.Events
}

func (s *fakeRepublishes) count(republish int64) (n int64) {
	for _, e := range s.repeated {
		if e.RepublishID == republish && !e.Dropped {
			n++
		}
	}
	return n
}

// republishOf returns a republish of n events.
func republishOf(id int64, n int, rate float64, each func(ev *broker.Event)) *fakeRepublish {
	r := &fakeRepublish{RepublishStatus: eventlog.RepublishStatus{ID: id, Rate: rate, Events: int64(n)}, events: events(n)}
	for i := range r.events {
		r.events[i].RepublishID = id
		if each != nil {
			each(&r.events[i])
		}
	}
	return r
}

// sightings is when events were published.
type sightings struct {
	mu          sync.Mutex
	republished []time.Time
	live        map[int64]time.Time
}

func (s *sightings) see(ev broker.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ev.RepublishID != 0 {
		s.republished = append(s.republished, time.Now())
		return
	}
	if s.live == nil {
		s.live = map[int64]time.Time{}
	}
	s.live[ev.Seq] = time.Now()
}
