package pglog

import (
	"cmp"
	"slices"
	"sort"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// maxPending limits how many events of progress.page are in pending. If more would be pending, the
// method state returns a lower high. So the row of postroom.relay stays small, but after a crash
// the next leader publishes more events again.
const maxPending = 500

// state is the content of the only row of postroom.relay. It says: every event with seq <= high
// whose transaction is visible in snap is published or held, except those in pending. Transactions
// of events with seq <= floor count as visible: see adopt.sql.
type state struct {
	high, floor int64
	snap        string
	pending     seqset.Set
}

// progress is what a leader has read and published since the recorded state. It does no I/O itself.
// It is valid as long as the term's connections are open.
type progress struct {
	high, floor int64
	snap        string

	// The field backlog has the events that must be read before newer events: events that were
	// pending when the term began, late rows that a search found, late rows of a pass that found
	// too many for one page, and events that the broker lost.
	backlog seqset.Set

	// The field late has the events up to the field passed that were read and are not acknowledged:
	// late rows, and events of the backlog.
	late map[int64]struct{}

	// The field page has the events above passed that were read, ascending. Acknowledged events at
	// its front are removed. The field passed is the seq removed last, or high if page is empty.
	page   []entry
	passed int64

	// The field stated is the highest high that the method state returned. No later state has a
	// lower high, even if late rows make pending longer. Otherwise events that were recorded as
	// published would no longer count as published.
	stated     int64
	maxPending int
}

type entry struct {
	seq  int64
	done bool
}

func resume(s state) *progress {
	return &progress{
		high: s.high, floor: s.floor, snap: s.snap, passed: s.high, stated: s.high,
		//planted:pending-forgotten-at-take-over remove
		backlog: s.pending, late: make(map[int64]struct{}),
		maxPending: maxPending,
	}
}

// readLate adds late rows and rows of the backlog. Rows above passed go into page, because an
// acknowledged row of page can raise the high that state() returns. In the map late, it could not
// raise high, so it would not count as published until another event raised high above its seq.
func (p *progress) readLate(events []eventlog.Event) {
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

// readPage adds the next page: new rows that pass.sql returned. Their seqs must be above high, and
// ascending.
func (p *progress) readPage(events []eventlog.Event) {
	for _, ev := range events {
		p.page = append(p.page, entry{seq: ev.Seq})
		p.high = ev.Seq
	}
}

// addBacklog adds rows to the backlog: late rows that are too many for a page, and events that the
// broker lost. Rows that were read and are not acknowledged stay in the fields late or page.
func (p *progress) addBacklog(late seqset.Set) { p.backlog = p.backlog.Union(late) }

// markDone notes that these events need not be read again: they are published, or held.
func (p *progress) markDone(seqs []int64) {
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

// entry returns the entry of the page with the given seq, or nil.
func (p *progress) entry(seq int64) *entry {
	i := sort.Search(len(p.page), func(i int) bool { return p.page[i].seq >= seq })
	if i < len(p.page) && p.page[i].seq == seq {
		return &p.page[i]
	}
	return nil
}

// state returns the state to record now. Its high is the highest acknowledged seq (or lower: see
// maxPending), so that events that were only read ahead do not make pending longer. The next leader
// reads everything above high again, so pending has no seqs above high.
func (p *progress) state() state {
	unpublished := make([]int64, 0, len(p.late)+p.maxPending)
	for seq := range p.late {
		unpublished = append(unpublished, seq)
	}
	high, open := p.passed, len(unpublished)
	for _, e := range p.page {
		if e.done {
			high, open = e.seq, len(unpublished)
			continue
		}
		//guard:high-goes-back 2 true
		if len(unpublished)-len(p.late) >= p.maxPending && e.seq > p.stated {
			break
		}
		unpublished = append(unpublished, e.seq)
	}
	p.stated = high
	pending := p.backlog.Union(seqset.Of(unpublished[:open])).UpTo(high)
	return state{high: high, floor: p.floor, snap: p.snap, pending: pending}
}
