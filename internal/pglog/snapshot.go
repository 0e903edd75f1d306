package pglog

import (
	"cmp"
	"slices"
	"sort"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// maxPending is the most acknowledged-ahead gaps that a recording spells out.
// Beyond it the recording stops short of the newest acknowledgements, which
// costs duplicates after a crash and keeps the state row small.
const maxPending = 500

// state is what the one row of postroom.relay says: every event with seq <=
// high whose transaction is visible in snap is published, except pending.
type state struct {
	high, floor int64
	snap        string
	pending     seqset.Set
}

// progress is what a leader knows of the log beyond the recorded state. It is
// pure: Term does the reading and the writing. It is valid only for as long as
// the database connections of its Term live.
type progress struct {
	high, floor int64
	snap        string

	// backlog is owed and not read yet: pending at take-over, or late in bulk.
	// It is read before anything newer.
	backlog seqset.Set

	// late holds what was read out of order and is not acknowledged, up to passed:
	// late rows and the backlog's.
	late map[int64]struct{}

	// page holds what was read above passed, ascending: the acknowledged prefix is
	// cut off as it grows. passed is the seq that was cut off last.
	page   []entry
	passed int64
}

type entry struct {
	seq  int64
	done bool
}

func resume(s state) *progress {
	return &progress{
		high: s.high, floor: s.floor, snap: s.snap, passed: s.high,
		backlog: s.pending, late: make(map[int64]struct{}),
	}
}

// readLate notes rows up to high that a pass found. Those above passed take their place
// in the page: noted apart, their acknowledgement could not be recorded before those of
// all that is below them.
func (p *progress) readLate(events []eventlog.Logged) {
	inOrder := len(p.page)
	for _, ev := range events {
		if ev.Seq > p.passed {
			p.page = append(p.page, entry{seq: ev.Seq})
		} else {
			p.late[ev.Seq] = struct{}{}
		}
	}
	if len(p.page) > inOrder {
		slices.SortFunc(p.page, func(a, b entry) int { return cmp.Compare(a.seq, b.seq) })
	}
}

// readPage notes the page above high that a pass found, ascending.
func (p *progress) readPage(events []eventlog.Logged) {
	for _, ev := range events {
		p.page = append(p.page, entry{seq: ev.Seq})
		p.high = ev.Seq
	}
}

// owe adds late rows that are too many for a page to the backlog. Rows that
// were read already and not acknowledged stay where they are.
func (p *progress) owe(late seqset.Set) { p.backlog = p.backlog.Union(late) }

// done notes that the events of the given seqs are published.
func (p *progress) done(seqs []int64) {
	for _, seq := range seqs {
		if _, ok := p.late[seq]; ok {
			delete(p.late, seq)
			continue
		}
		if e := p.entry(seq); e != nil {
			e.done = true
		}
	}
	n := 0
	for n < len(p.page) && p.page[n].done {
		p.passed = p.page[n].seq
		n++
	}
	p.page = slices.Delete(p.page, 0, n)
	if len(p.page) == 0 {
		p.passed = p.high
	}
}

// entry returns the entry of page with the given seq, or nil.
func (p *progress) entry(seq int64) *entry {
	i := sort.Search(len(p.page), func(i int) bool { return p.page[i].seq >= seq })
	if i < len(p.page) && p.page[i].seq == seq {
		return &p.page[i]
	}
	return nil
}

// state returns what can be recorded now. Its high is the last acknowledged
// seq, not the last that was read: what was read ahead would only lengthen
// pending. Whoever takes over reads it again from the log, and so pending need
// not name anything above high.
func (p *progress) state() state {
	owed := make([]int64, 0, len(p.late)+maxPending)
	for seq := range p.late {
		owed = append(owed, seq)
	}
	high, open := p.passed, len(owed)
	for _, e := range p.page {
		if e.done {
			high, open = e.seq, len(owed)
			continue
		}
		if len(owed)-len(p.late) == maxPending {
			break
		}
		owed = append(owed, e.seq)
	}
	pending := p.backlog.Union(seqset.Of(owed[:open])).UpTo(high)
	return state{high: high, floor: p.floor, snap: p.snap, pending: pending}
}
