package pglog

import (
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/seqset"
	"github.com/postroom/postroom/relay/broker"
)

// republish is what a term knows of one republish. The struct progress does not have the events of
// a republish, because they count as published already.
type republish struct {
	eventlog.RepublishStatus

	hi      int64
	passed  int64         // the seq up to which the term has read the republish
	backlog seqset.Set    // seqs up to the field passed that must still be read, before the rest
	open    map[int64]int // seqs that were read and are being published, each with its size in bytes
	copies  []int64       // seqs that were published and that no recording has noted in a checkpoint

	changed  int  // counts the changes of the republish
	stored   int  // the value of changed when it was last stored
	ended    bool // the row of the republish says that it is done or cancelled
	reported bool // the end of the republish was reported
}

// republishes are the republishes that a term has read, in the order of reading. The term still
// reads only the last one. The others may have events that are still being published.
type republishes []*republish

// last returns the republish that was read last, or nil.
func (rs republishes) last() *republish {
	if len(rs) == 0 {
		return nil
	}
	return rs[len(rs)-1]
}

func (rs republishes) find(id int64) *republish {
	for _, r := range rs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// remove removes an event from the map open, and reports whether it was in the map.
func (r *republish) remove(seq int64) bool {
	_, ok := r.open[seq]
	if ok {
		delete(r.open, seq)
		r.changed++
	}
	return ok
}

// finished reports whether all events of the republish were read and none is open.
func (r *republish) finished() bool {
	return r.passed >= r.hi && len(r.open) == 0 && len(r.backlog) == 0
}

// pending returns events up to passed that must still be read or are being published.
func (r *republish) pending() seqset.Set {
	seqs := make([]int64, 0, len(r.open))
	for seq := range r.open {
		seqs = append(seqs, seq)
	}
	return r.backlog.Union(seqset.Of(seqs))
}

// addResults adds the results of republished events.
func (rs republishes) addResults(repeated []eventlog.RepublishResult) {
	for _, e := range repeated {
		if r := rs.find(e.RepublishID); r != nil && r.remove(e.Seq) && !e.Dropped {
			r.Published++
			//guard:copies-since-a-checkpoint-are-compared remove
			r.copies = append(r.copies, e.Seq)
		}
	}
}

// bytes returns the size of an event that was read for a republish and is being published.
func (rs republishes) bytes(id, seq int64) int {
	if r := rs.find(id); r != nil {
		return r.open[seq]
	}
	return 0
}

// addHeld notes that the next recording moves these events to the table held.
func (rs republishes) addHeld(held []eventlog.Deferral) {
	for _, h := range held {
		if r := rs.find(h.RepublishID); r != nil && r.remove(h.Seq) {
			r.Held++
		}
	}
}

// republishProgress is the progress of a republish: the parameters of republish_progress.sql.
type republishProgress struct {
	republish *republish
	changed   int // the value of republish.changed when this progress was computed
	done      bool
	args      []any
	copies    []int64 // what was published since the last stored progress
}

// unstored returns the progress to store. All numbers count from the beginning of the republish. So
// a recording can be repeated if its outcome is unknown.
func (rs republishes) unstored(epoch int64) []republishProgress {
	var all []republishProgress
	for _, r := range rs {
		if r.changed == r.stored {
			continue
		}
		a := republishProgress{republish: r, changed: r.changed, done: r.finished() && !r.ended, copies: r.copies}
		a.args = []any{epoch, r.ID, r.passed, r.pending().String(), r.Published, r.Skipped, r.Held, a.done}
		all = append(all, a)
	}
	return all
}

// markStored notes that the given progress is stored.
func (rs republishes) markStored(all []republishProgress) {
	for _, a := range all {
		a.republish.stored = a.changed
		a.republish.copies = a.republish.copies[len(a.copies):]
		a.republish.ended = a.republish.ended || a.done
	}
}

// republishNote is the note in the first row of republish_page.sql.
type republishNote struct {
	Before    string // the state of the republish that the term was reading
	Reached   int64
	LeftOut   int64 `json:"left_out"`
	Republish *struct {
		ID, Events, Hi, Passed   int64
		Published, Skipped, Held int64
		Rate                     float64
		Pending                  string
	} `json:"republish"`
}

// addPage adds a page that was read, and returns it.
func (rs *republishes) addPage(note *republishNote, events []broker.Event) (page eventlog.RepublishPage, err error) {
	row, r := note.Republish, rs.last()
	switch {
	case row == nil, r != nil && r.ID == row.ID && r.ended: // no republish runs, or a recording has ended this republish meanwhile
		return page, nil
	case r == nil || r.ID != row.ID:
		r = &republish{
			RepublishStatus: eventlog.RepublishStatus{
				ID: row.ID, Rate: row.Rate, Events: row.Events,
				Published: row.Published, Skipped: row.Skipped, Held: row.Held,
			},
			hi: row.Hi, passed: row.Passed, open: make(map[int64]int),
		}
		if r.backlog, err = seqset.Parse(row.Pending); err != nil {
			return page, err
		}
		*rs = append(*rs, r)
		page.Begins = true
	}
	page.Advanced = page.Begins || note.Reached > 0 && (len(r.backlog) > 0 || r.passed < r.hi)
	if len(r.backlog) > 0 {
		r.backlog = r.backlog.Above(note.Reached)
	} else {
		r.passed = max(r.passed, note.Reached)
	}
	r.Skipped += note.LeftOut
	for i := range events {
		events[i].RepublishID = r.ID
		r.open[events[i].Seq] = events[i].Size()
	}
	if page.Advanced {
		r.changed++
	}
	page.Events, page.RepublishStatus = events, r.RepublishStatus
	return page, nil
}

// takeEnded returns the republishes that ended and were not reported yet. It removes ended
// republishes that have no open events and no unstored changes. The parameter known is the id of a
// republish, and the parameter before is its state in the database.
func (rs *republishes) takeEnded(known int64, before string) (ended []eventlog.RepublishStatus) {
	if r := rs.find(known); r != nil && before != "running" {
		r.ended, r.Cancelled = true, before != "done"
		r.backlog = nil
	}
	var rest republishes
	for _, r := range *rs {
		if r.ended && !r.reported {
			r.reported = true
			ended = append(ended, r.RepublishStatus)
		}
		if !r.ended || len(r.open) > 0 || r.changed != r.stored {
			rest = append(rest, r)
		}
	}
	*rs = rest
	return ended
}
