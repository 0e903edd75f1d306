package relay

import (
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/wire"
)

// positions has the position of the last acknowledged message of each stream. The mutex of
// recordBuffer guards it.
type positions map[string]*position

type position struct {
	eventlog.StreamPosition

	// unverified means that the stream must be compared with the position before the position may
	// move. Either the term has not compared the stream yet, or the stream used a sequence twice.
	unverified bool
}

// ackRange summarises the acknowledgements of a stream since the last call of the method advance.
type ackRange struct {
	low, high  uint64 // low is the lowest sequence of a new message, or zero if all messages were duplicates; high is the highest sequence
	source, id string // the source and id of the event with the sequence high
	copy       wire.Copy
}

// ackRanges has the ackRange of each stream. Only the dispatcher uses it.
type ackRanges struct {
	streams map[string]*ackRange
	name    string // the stream to which the range in the field last belongs
	last    *ackRange
}

// addNew adds an event that the broker has just stored.
func (e *ackRanges) addNew(o result) {
	last := e.of(o.Stream)
	if last.low == 0 || o.Sequence < last.low {
		last.low = o.Sequence
	}
	last.extend(o)
}

// addDuplicate adds an event that its stream had already, and still has.
func (e *ackRanges) addDuplicate(o result) { e.of(o.Stream).extend(o) }

// extend extends the range to an event.
func (e *ackRange) extend(o result) {
	if o.Sequence > e.high {
		e.high, e.source, e.id, e.copy = o.Sequence, o.Source, o.ID, o.Copy()
	}
}

// of returns the range of a stream.
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

// advance moves positions to the last acknowledged messages, and returns the positions that moved.
// The result suspicious reports whether a stream must be compared with its position.
func (p positions) advance(e *ackRanges) (moved []eventlog.StreamPosition, suspicious bool) {
	for name, told := range e.streams {
		if told.high == 0 {
			continue
		}
		at, known := p[name]
		if !known {
			at = &position{StreamPosition: eventlog.StreamPosition{Stream: name}}
			p[name] = at
			suspicious = true // the comparison finds out when the stream was created
		}
		switch {
		case at.unverified:
			suspicious = true
		case known && told.low > 0 && told.low <= at.Seq:
			at.unverified, suspicious = true, true
		case told.high > at.Seq:
			at.Seq = told.high
			at.MessageID = wire.MessageID(postroom.Event{Source: told.source, ID: told.id}, told.copy)
			moved = append(moved, at.StreamPosition)
		}
		*told = ackRange{}
	}
	return moved, suspicious
}

// snapshot returns a copy of the positions.
func (p positions) snapshot() []eventlog.StreamPosition {
	all := make([]eventlog.StreamPosition, 0, len(p))
	for _, at := range p {
		all = append(all, at.StreamPosition)
	}
	return all
}

// verified notes that a stream lost nothing, and when the stream was created. If the position had
// no time of creation yet, the method returns the position.
func (p positions) verified(name string, created time.Time) (moved []eventlog.StreamPosition) {
	at := p[name]
	if at == nil {
		return nil
	}
	at.unverified = false
	if at.Created.IsZero() {
		at.Created = created
		return []eventlog.StreamPosition{at.StreamPosition}
	}
	return nil
}

// mergePositions adds positions to the slice all. Each replaces an older one of the same stream.
func mergePositions(all, moved []eventlog.StreamPosition) []eventlog.StreamPosition {
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
