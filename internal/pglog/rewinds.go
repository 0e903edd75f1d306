package pglog

import (
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// rewinding is what a term knows of a rewind. Its events are not those of progress:
// they are published already, and on their way once more.
type rewinding struct {
	eventlog.Rewinding

	hi     int64
	passed int64              // read up to here
	first  seqset.Set         // of what is up to passed, what is read before the rest
	open   map[int64]struct{} // read, and on its way

	changed int  // counts changes
	stored  int  // the changes that the row has
	over    bool // done, as the row says, or cancelled
	told    bool // that it ended
}

// repeats is what a term knows of rewinds, the last one last. Of several that run one
// is read; others may have events on their way still.
type repeats []*rewinding

// last returns the rewind that is read, or was last.
func (rs repeats) last() *rewinding {
	if len(rs) == 0 {
		return nil
	}
	return rs[len(rs)-1]
}

func (rs repeats) find(id int64) *rewinding {
	for _, r := range rs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// leave takes an event off those that are on their way, and reports whether it was one.
func (r *rewinding) leave(seq int64) bool {
	_, ok := r.open[seq]
	if ok {
		delete(r.open, seq)
		r.changed++
	}
	return ok
}

// finished reports whether nothing of the rewind is left.
func (r *rewinding) finished() bool {
	return r.passed >= r.hi && len(r.open) == 0 && len(r.first) == 0
}

// owed is what is up to passed and not published.
func (r *rewinding) owed() seqset.Set {
	seqs := make([]int64, 0, len(r.open))
	for seq := range r.open {
		seqs = append(seqs, seq)
	}
	return r.first.Union(seqset.Of(seqs))
}

// settle notes what became of events of rewinds. What is held is so by the same
// recording.
func (rs repeats) settle(repeated []eventlog.Repeated, held []eventlog.Holding) {
	for _, e := range repeated {
		if r := rs.find(e.Rewind); r != nil && r.leave(e.Seq) && !e.Dropped {
			r.Published++
		}
	}
	for _, h := range held {
		if r := rs.find(h.Rewind); r != nil && r.leave(h.Seq) {
			r.Held++
		}
	}
}

// advance is what a recording says of a rewind: the parameters of advance.sql.
type advance struct {
	rewind  *rewinding
	changed int // the changes that it has
	done    bool
	args    []any
}

// advances returns what is to be stored. All counts are from the beginning, so that a
// recording may be repeated of which it is not known whether it was stored.
func (rs repeats) advances(epoch int64) []advance {
	var all []advance
	for _, r := range rs {
		if r.changed == r.stored {
			continue
		}
		a := advance{rewind: r, changed: r.changed, done: r.finished() && !r.over}
		a.args = []any{epoch, r.ID, r.passed, r.owed().String(), r.Published, r.Skipped, r.Held, a.done}
		all = append(all, a)
	}
	return all
}

// stored notes that advances are.
func (rs repeats) stored(all []advance) {
	for _, a := range all {
		a.rewind.stored = a.changed
		a.rewind.over = a.rewind.over || a.done
	}
}

// rewoundNote is what the first row of rewound.sql says.
type rewoundNote struct {
	Before  string // the state of the rewind that was read last
	Reached int64
	LeftOut int64 `json:"left_out"`
	Rewind  *struct {
		ID, Events, Hi, Passed   int64
		Published, Skipped, Held int64
		Rate                     float64
		Owed                     string
	}
}

// take notes what was found, and returns it.
func (rs *repeats) take(note *rewoundNote, events []eventlog.Logged) (page eventlog.Rewound, err error) {
	row, r := note.Rewind, rs.last()
	switch {
	case row == nil, r != nil && r.ID == row.ID && r.over: // it was recorded meanwhile that it is done
		return page, nil
	case r == nil || r.ID != row.ID:
		r = &rewinding{
			Rewinding: eventlog.Rewinding{
				ID: row.ID, Rate: row.Rate, Events: row.Events,
				Published: row.Published, Skipped: row.Skipped, Held: row.Held,
			},
			hi: row.Hi, passed: row.Passed, open: make(map[int64]struct{}),
		}
		if r.first, err = seqset.Parse(row.Owed); err != nil {
			return page, err
		}
		*rs = append(*rs, r)
		page.Begins = true
	}
	page.Moved = page.Begins || note.Reached > 0 && (len(r.first) > 0 || r.passed < r.hi)
	if len(r.first) > 0 {
		r.first = r.first.Above(note.Reached)
	} else {
		r.passed = max(r.passed, note.Reached)
	}
	r.Skipped += note.LeftOut
	for i := range events {
		events[i].Rewind = r.ID
		r.open[events[i].Seq] = struct{}{}
	}
	if page.Moved {
		r.changed++
	}
	page.Events, page.Rewinding = events, r.Rewinding
	return page, nil
}

// end returns the rewinds that ended and were not told of, and forgets those of which
// nothing is left. The one that is known was in the state before.
func (rs *repeats) end(known int64, before string) (ended []eventlog.Rewinding) {
	if r := rs.find(known); r != nil && before != "running" {
		r.over, r.Cancelled = true, before != "done"
		r.first = nil
	}
	var rest repeats
	for _, r := range *rs {
		if r.over && !r.told {
			r.told = true
			ended = append(ended, r.Rewinding)
		}
		if !r.over || len(r.open) > 0 || r.changed != r.stored {
			rest = append(rest, r)
		}
	}
	*rs = rest
	return ended
}
