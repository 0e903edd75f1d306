package pglog

import (
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// republish is what a term knows of a republish. Its events are not part of progress: they
// were published before, and are published once more.
type republish struct {
	eventlog.RepublishStatus

	hi      int64
	passed  int64              // read up to here
	backlog seqset.Set         // up to passed, and read before the rest
	open    map[int64]struct{} // read, and being published

	changed  int  // how often the republish changed
	stored   int  // the value of changed that the row has
	ended    bool // the row says that it is done or cancelled
	reported bool // its end was reported
}

// republishes are those that a term has read, the latest last. Only the latest is read; the
// others may have events that are still being published.
type republishes []*republish

// last returns the republish that is read, or was read last; nil if there is none.
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

// remove removes an event from those that are being published, and reports whether it was one.
func (r *republish) remove(seq int64) bool {
	_, ok := r.open[seq]
	if ok {
		delete(r.open, seq)
		r.changed++
	}
	return ok
}

// finished reports whether nothing of the republish is left.
func (r *republish) finished() bool {
	return r.passed >= r.hi && len(r.open) == 0 && len(r.backlog) == 0
}

// pending returns the events up to passed that are not published yet.
func (r *republish) pending() seqset.Set {
	seqs := make([]int64, 0, len(r.open))
	for seq := range r.open {
		seqs = append(seqs, seq)
	}
	return r.backlog.Union(seqset.Of(seqs))
}

// addResults adds the results of republished events. The same recording holds the events of
// held.
func (rs republishes) addResults(repeated []eventlog.RepublishResult, held []eventlog.Deferral) {
	for _, e := range repeated {
		if r := rs.find(e.RepublishID); r != nil && r.remove(e.Seq) && !e.Dropped {
			r.Published++
		}
	}
	for _, h := range held {
		if r := rs.find(h.RepublishID); r != nil && r.remove(h.Seq) {
			r.Held++
		}
	}
}

// republishProgress is the progress of a republish: the parameters of republish_progress.sql.
type republishProgress struct {
	republish *republish
	changed   int // the value of changed that it has
	done      bool
	args      []any
}

// unstored returns the progress to store. All numbers count from the beginning. So a
// recording can be repeated if it is unknown whether it was stored.
func (rs republishes) unstored(epoch int64) []republishProgress {
	var all []republishProgress
	for _, r := range rs {
		if r.changed == r.stored {
			continue
		}
		a := republishProgress{republish: r, changed: r.changed, done: r.finished() && !r.ended}
		a.args = []any{epoch, r.ID, r.passed, r.pending().String(), r.Published, r.Skipped, r.Held, a.done}
		all = append(all, a)
	}
	return all
}

// markStored notes that this progress is stored.
func (rs republishes) markStored(all []republishProgress) {
	for _, a := range all {
		a.republish.stored = a.changed
		a.republish.ended = a.republish.ended || a.done
	}
}

// republishNote is the first row of republish_page.sql.
type republishNote struct {
	Before    string // the state of the republish that was read before
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
func (rs *republishes) addPage(note *republishNote, events []eventlog.Event) (page eventlog.RepublishPage, err error) {
	row, r := note.Republish, rs.last()
	switch {
	case row == nil, r != nil && r.ID == row.ID && r.ended: // a recording has ended it meanwhile
		return page, nil
	case r == nil || r.ID != row.ID:
		r = &republish{
			RepublishStatus: eventlog.RepublishStatus{
				ID: row.ID, Rate: row.Rate, Events: row.Events,
				Published: row.Published, Skipped: row.Skipped, Held: row.Held,
			},
			hi: row.Hi, passed: row.Passed, open: make(map[int64]struct{}),
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
		r.open[events[i].Seq] = struct{}{}
	}
	if page.Advanced {
		r.changed++
	}
	page.Events, page.RepublishStatus = events, r.RepublishStatus
	return page, nil
}

// takeEnded returns the republishes that ended and were not reported yet, and removes those
// that are finished. before is the state that republish known had.
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
