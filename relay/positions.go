package relay

import (
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/wire"
)

// positions are where streams end, as far as the broker has acknowledged. The leader's
// mutex guards them.
type positions map[string]*position

type position struct {
	eventlog.Place

	// unverified: the stream has to be compared with the place before that may move. It
	// told of a sequence that it had used already, or could not be looked at.
	unverified bool
}

// ackRange is what acknowledgements told of a stream since it was last asked.
type ackRange struct {
	low, high  uint64 // sequences; low is of what was not stored before, zero where all was
	source, id string // of the event at the high one
	copy       wire.Copy
}

// ackRanges are the ends of streams. They are the dispatcher's.
type ackRanges struct {
	streams map[string]*ackRange
	name    string // of the last one
	last    *ackRange
}

// addNew takes in an event that was stored, and not before.
func (e *ackRanges) addNew(o result) {
	last := e.of(o.Stream)
	if last.low == 0 || o.Sequence < last.low {
		last.low = o.Sequence
	}
	last.extend(o)
}

// addDuplicate takes in an event that was stored before, and that its stream still has.
func (e *ackRanges) addDuplicate(o result) { e.of(o.Stream).extend(o) }

// extend takes in that a stream has an event.
func (e *ackRange) extend(o result) {
	if o.Sequence > e.high {
		e.high, e.source, e.id, e.copy = o.Sequence, o.Source, o.ID, o.Copy()
	}
}

// of returns the end of a stream.
func (e *ackRanges) of(stream string) *ackRange {
	if e.last == nil || e.name != stream {
		e.name = stream
		if e.last = e.streams[stream]; e.last == nil {
			e.last = &ackRange{}
			e.streams[stream] = e.last
		}
	}
	return e.last
}

// advance moves places to where acknowledgements say that their streams end, and returns
// those that moved. suspicious reports whether a stream has to be looked at.
func (p positions) advance(e *ackRanges) (moved []eventlog.Place, suspicious bool) {
	for name, told := range e.streams {
		if told.high == 0 {
			continue
		}
		at, known := p[name]
		if !known {
			at = &position{Place: eventlog.Place{Stream: name}}
			p[name] = at
			suspicious = true // when was it created?
		}
		switch {
		case at.unverified:
			suspicious = true
		case known && told.low > 0 && told.low <= at.Seq:
			at.unverified, suspicious = true, true
		case told.high > at.Seq:
			at.Seq = told.high
			at.MessageID = wire.MessageID(postroom.Event{Source: told.source, ID: told.id}, told.copy)
			moved = append(moved, at.Place)
		}
		*told = ackRange{}
	}
	return moved, suspicious
}

// snapshot returns the places as they are.
func (p positions) snapshot() []eventlog.Place {
	all := make([]eventlog.Place, 0, len(p))
	for _, at := range p {
		all = append(all, at.Place)
	}
	return all
}

// verified notes that a stream has what it had, and when it was created. It returns the
// place where it did not have that.
func (p positions) verified(name string, created time.Time) (moved []eventlog.Place) {
	at := p[name]
	if at == nil {
		return nil
	}
	at.unverified = false
	if at.Created.IsZero() {
		at.Created = created
		return []eventlog.Place{at.Place}
	}
	return nil
}

// mergePositions sets places, each in the place of an older one of its stream.
func mergePositions(all, moved []eventlog.Place) []eventlog.Place {
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
