package relay

import (
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/wire"
)

// places are where streams end, as far as the broker has acknowledged. The leader's
// mutex guards them.
type places map[string]*place

type place struct {
	eventlog.Place

	// doubted: the stream has to be compared with the place before that may move. It
	// told of a sequence that it had used already, or could not be looked at.
	doubted bool
}

// end is what acknowledgements told of a stream since it was last asked.
type end struct {
	low, high  uint64 // sequences; low is of what was not stored before, zero where all was
	source, id string // of the event at the high one
	copy       wire.Copy
}

// ends are the ends of streams. They are conduct's.
type ends struct {
	streams map[string]*end
	name    string // of the last one
	last    *end
}

// note takes in an event that was stored, and not before.
func (e *ends) note(o landing) {
	last := e.of(o.Stream)
	if last.low == 0 || o.Sequence < last.low {
		last.low = o.Sequence
	}
	last.reach(o)
}

// noteAgain takes in an event that was stored before, and that its stream still has.
func (e *ends) noteAgain(o landing) { e.of(o.Stream).reach(o) }

// reach takes in that a stream has an event.
func (e *end) reach(o landing) {
	if o.Sequence > e.high {
		e.high, e.source, e.id, e.copy = o.Sequence, o.Source, o.ID, o.Copy()
	}
}

// of returns the end of a stream.
func (e *ends) of(stream string) *end {
	if e.last == nil || e.name != stream {
		e.name = stream
		if e.last = e.streams[stream]; e.last == nil {
			e.last = &end{}
			e.streams[stream] = e.last
		}
	}
	return e.last
}

// learn moves places to where acknowledgements say that their streams end, and returns
// those that moved. suspicious reports whether a stream has to be looked at.
func (p places) learn(e *ends) (moved []eventlog.Place, suspicious bool) {
	for name, told := range e.streams {
		if told.high == 0 {
			continue
		}
		at, known := p[name]
		if !known {
			at = &place{Place: eventlog.Place{Stream: name}}
			p[name] = at
			suspicious = true // when was it created?
		}
		switch {
		case at.doubted:
			suspicious = true
		case known && told.low > 0 && told.low <= at.Seq:
			at.doubted, suspicious = true, true
		case told.high > at.Seq:
			at.Seq = told.high
			at.MessageID = wire.MessageID(postroom.Event{Source: told.source, ID: told.id}, told.copy)
			moved = append(moved, at.Place)
		}
		*told = end{}
	}
	return moved, suspicious
}

// snapshot returns the places as they are.
func (p places) snapshot() []eventlog.Place {
	all := make([]eventlog.Place, 0, len(p))
	for _, at := range p {
		all = append(all, at.Place)
	}
	return all
}

// kept notes that a stream has what it had, and when it was created. It returns the
// place where it did not have that.
func (p places) kept(name string, created time.Time) (moved []eventlog.Place) {
	at := p[name]
	if at == nil {
		return nil
	}
	at.doubted = false
	if at.Created.IsZero() {
		at.Created = created
		return []eventlog.Place{at.Place}
	}
	return nil
}

// move sets places, each in the place of an older one of its stream.
func move(all, moved []eventlog.Place) []eventlog.Place {
	for _, at := range moved {
		i := 0
		for i < len(all) && all[i].Stream != at.Stream {
			i++
		}
		if i == len(all) {
			all = append(all, at)
			continue
		}
		all[i] = at
	}
	return all
}
