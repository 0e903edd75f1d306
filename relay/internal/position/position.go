// Package position follows the last acknowledged message of each stream, with which a relay compares
// the stream to find losses. The package is pure: no I/O, no clock, no goroutines.
package position

import (
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// Set has the position of the last acknowledged message of each stream.
type Set map[string]*position

type position struct {
	broker.StreamPosition

	// unverified means that the stream must be compared with the position before the position may
	// move. Either the term has not compared the stream yet, or the stream used a sequence twice.
	unverified bool

	// If the stream lost events, the field repaired has the end of what is left of it, and is moved by
	// acknowledgements. The position itself stays, except that NextSeq follows these. So a relay that
	// takes over finds the loss again. When the lost events are found, repaired replaces the position.
	repaired *position

	// later is set if the stream used the sequence NextSeq, or one before it, twice. Then the stream
	// must also be compared with NextSeq. The field later has the acknowledgements since then.
	later ackRange
}

// ackRange summarises the acknowledgements of a stream since the last call of the method Advance.
type ackRange struct {
	low, high  uint64 // low is the lowest sequence of a new message, or zero if all messages were duplicates; high is the highest sequence
	source, id string // the source and id of the event with the sequence high
	copy       wire.Copy
}

// Acks has the acknowledgements since the last call of the method Advance. The zero value is ready
// to use.
type Acks struct {
	streams map[string]*ackRange
	name    string // the stream to which the range in the field last belongs
	last    *ackRange
}

// AddNew adds an event that the broker has just stored.
func (e *Acks) AddNew(ev *schedule.Entry, o broker.Outcome) {
	last := e.of(o.Stream)
	if last.low == 0 || o.Sequence < last.low {
		last.low = o.Sequence
	}
	last.extend(ev, o)
}

// AddDuplicate adds an event that its stream had already, and still has.
func (e *Acks) AddDuplicate(ev *schedule.Entry, o broker.Outcome) { e.of(o.Stream).extend(ev, o) }

// extend extends the range to an event.
func (e *ackRange) extend(ev *schedule.Entry, o broker.Outcome) {
	if o.Sequence > e.high {
		e.high, e.source, e.id, e.copy = o.Sequence, ev.Source, ev.ID, ev.Copy()
	}
}

// messageID returns the id of the message with the sequence high.
func (e *ackRange) messageID() string {
	return wire.MessageID(postroom.Event{Source: e.source, ID: e.id}, e.copy)
}

// of returns the range of a stream.
func (e *Acks) of(stream string) *ackRange {
	if e.last == nil || e.name != stream {
		e.name = stream
		if e.last = e.streams[stream]; e.last == nil {
			if e.streams == nil {
				e.streams = make(map[string]*ackRange)
			}
			e.last = &ackRange{}
			e.streams[stream] = e.last
		}
	}
	return e.last
}

// moveToNext moves the position to NextSeq, if that is set.
func (at *position) moveToNext() {
	if at.NextSeq > 0 {
		at.Seq, at.MessageID, at.NextSeq, at.NextID = at.NextSeq, at.NextID, 0, ""
	}
}

// Advance moves positions to the last acknowledged messages, and returns the positions that changed.
// If a position is unverified, or its stream lost events that are not found yet, Advance only sets its
// NextSeq. The result suspicious reports whether a stream must be compared with its position.
func (p Set) Advance(e *Acks) (moved []broker.StreamPosition, suspicious bool) {
	for name, told := range e.streams {
		if told.high == 0 {
			continue
		}
		at, known := p[name]
		if !known {
			at = &position{StreamPosition: broker.StreamPosition{Stream: name}}
			p[name] = at
			suspicious = true // the comparison finds out when the stream was created
		}
		if at.advance(told) {
			moved = append(moved, at.StreamPosition)
		}
		suspicious = suspicious || at.unverified && at.repaired == nil
		*told = ackRange{}
	}
	return moved, suspicious
}

// advance moves the position to the last acknowledged message, or sets its NextSeq. It reports whether
// the position changed.
func (at *position) advance(told *ackRange) (moved bool) {
	if end := at.repaired; end != nil {
		//guard:what-is-acknowledged-during-a-search-can-be-lost-too do return false
		if moved = end.advance(told); moved {
			at.NextSeq, at.NextID = end.newest()
		}
		return moved
	}
	if told.low > 0 && told.low <= at.Seq {
		at.unverified = true
	}
	switch {
	//guard:sequence-twice-behind-a-position 2 false
	case at.later.high > 0 || told.low > 0 && told.low <= at.NextSeq:
		if told.high > at.later.high {
			at.later = *told
		}
	case told.high > max(at.Seq, at.NextSeq):
		at.NextSeq, at.NextID = told.high, told.messageID()
		if !at.unverified {
			at.moveToNext()
		}
		return true
	}
	return false
}

// newest returns NextSeq and NextID, or Seq and MessageID if there is no NextSeq.
func (at *position) newest() (seq uint64, id string) {
	if at.NextSeq > 0 {
		return at.NextSeq, at.NextID
	}
	return at.Seq, at.MessageID
}

// Snapshot returns a copy of the positions.
func (p Set) Snapshot() []broker.StreamPosition {
	all := make([]broker.StreamPosition, 0, len(p))
	for _, at := range p {
		all = append(all, at.StreamPosition)
	}
	return all
}

// AddUnverified adds the positions that the last leader recorded. They must be compared before they
// may move.
func (p Set) AddUnverified(all []broker.StreamPosition) {
	for _, at := range all {
		p[at.Stream] = &position{StreamPosition: at, unverified: true}
	}
}

// Lost notes that a stream lost events, and where it ends now.
func (p Set) Lost(name string, end broker.StreamPosition) {
	p[name].repaired = &position{StreamPosition: end}
}

// Repaired returns the new position of a stream, after the events that it lost were found: where it
// ended when Lost was called, or where a later acknowledged message is.
func (p Set) Repaired(name string) broker.StreamPosition {
	p[name] = p[name].repaired
	return p[name].StreamPosition
}

// Verified notes that a stream has the message at its position, and when the stream was created. It
// moves the position to NextSeq, and returns the position if it changed.
func (p Set) Verified(name string, created time.Time) (moved []broker.StreamPosition) {
	at := p[name]
	if at == nil {
		return nil
	}
	before := at.StreamPosition
	if at.Created.IsZero() {
		at.Created = created
	}
	//guard:acknowledged-while-not-compared remove
	at.moveToNext()
	if at.unverified = at.later.high > 0; at.later.high > at.Seq {
		at.NextSeq, at.NextID = at.later.high, at.later.messageID()
	}
	at.later = ackRange{}
	if at.StreamPosition == before {
		return nil
	}
	return []broker.StreamPosition{at.StreamPosition}
}

// Merge adds positions to the slice all. Each replaces an older one of the same stream.
func Merge(all, moved []broker.StreamPosition) []broker.StreamPosition {
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
