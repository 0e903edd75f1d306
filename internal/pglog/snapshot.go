package pglog

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/postroom/postroom/internal/seqset"
	"github.com/postroom/postroom/relay/broker"
)

const (
	// maxPending limits how many events of progress.page are in pending. If more would be pending,
	// the method state returns a lower high. So the row of postroom.relay stays small, but after a
	// crash the next leader publishes more events again.
	maxPending = 500

	// maxBacklog limits how many ranges of the backlog a recording lists. If there are more, the
	// recorded state describes them without a list: see catchUp.
	maxBacklog = 2000

	// While the scheduled events that are not held yet have more than maxScheduled ranges, the
	// reader reads no further events.
	maxScheduled = 10_000
)

// state is the content of the only row of postroom.relay. It says: every event with seq <= high
// whose transaction is visible in snap is published or held, except those in pending. Transactions
// of events with seq <= floor count as visible: see adopt.sql.
type state struct {
	high, floor int64
	snap        string
	pending     seqset.Set
	streams     string // the positions of the streams

	catchUp
}

// catchUp says how far a relay has caught up with a long backlog. After two loads at once, each late
// row may be a range of its own. If each recording listed these ranges, its size would be that of the
// backlog. So the recorded state describes them without a list. The backlog is either
//
//   - the late rows that became visible between the snapshots state.snap and to. Meanwhile snap stays
//     as it is, so that for programs that do not know passed, none of these rows is published yet.
//   - or all of state.pending, if to is equal to snap. Meanwhile pending stays as it is, and is not
//     written again.
type catchUp struct {
	to     string     // empty if the relay does not catch up
	passed int64      // the events of the backlog up to this seq were read: they are published or held, unless they are in the list of unpublished events
	open   seqset.Set // this list, if pending is the backlog; otherwise pending is this list
}

// isListed reports whether the backlog with which the relay catches up is state.pending.
func (s *state) isListed() bool { return s.to != "" && s.to == s.snap }

// equal reports whether two states are the same, apart from snap.
func (s *state) equal(other *state) bool {
	return s.high == other.high && s.streams == other.streams && s.to == other.to && s.passed == other.passed && slices.Equal(s.pending, other.pending) && slices.Equal(s.open, other.open)
}

// ranges returns how many ranges a recording of the state lists.
func (s *state) ranges() int {
	if s.isListed() {
		return len(s.open)
	}
	return len(s.pending)
}

// limits are limits of a progress: see maxPending and maxBacklog.
type limits struct{ pending, backlog int }

// progress is what a leader has read and published since the recorded state. It does no I/O itself.
// It is valid as long as the term's connections are open.
type progress struct {
	high, floor int64
	snap        string
	max         limits

	// The field backlog has the events that must be read before newer events: events that were
	// pending when the term began, late rows that a search found, and events that the broker lost.
	// If they are many, most of them are in owed or lost, which recordings do not list.
	backlog seqset.Set

	// While the leader catches up, owed has the events of its backlog above passedOwed, ascending. If
	// the backlog are late rows, from is the earlier snapshot, and snap is the later one. While
	// resuming is true, owed lacks these rows, and the reader must search for them. Otherwise listed
	// has the complete backlog.
	owed       seqset.Set
	passedOwed int64
	from       string
	resuming   bool
	listed     seqset.Set

	// The field lost has events that the broker lost and that are not in backlog yet. While it is not
	// empty, the recorder keeps the old positions of the streams. So after a crash the next leader
	// compares the streams again, and finds these events.
	lost seqset.Set

	// The field scheduled has events that must be held until they are due. The first recording of
	// them are in the recording that runs now.
	scheduled []portion
	recording int

	// The field putBack has events that were read and that the relay has no room for. It reads them
	// again later. They count as done, except that state() lists them. backBytes has their sizes.
	putBack   seqset.Set
	backBytes map[int64]int

	// The field late has the events up to the field passed that were read and are not acknowledged:
	// late rows, and events of the backlog.
	late map[int64]lateEvent

	// The field page has the events above passed that were read, ascending. Acknowledged events at
	// its front are removed. The field passed is the seq removed last, or high if page is empty.
	page   []entry
	passed int64

	// The field stated is the highest high that the method state returned. No later state has a
	// lower high, even if late rows make pending longer. Otherwise events that were recorded as
	// published would no longer count as published.
	stated int64
}

// lateEvent is what progress knows of an event in the field late.
type lateEvent struct {
	key   string // the key in whose order it is published, or ""
	bytes int
}

type entry struct {
	seq   int64
	bytes int
	done  bool
}

// portion is a number of scheduled events that one recording moves to the table held.
type portion struct {
	seqs seqset.Set
	budget
}

func resume(s state) *progress { return resumeWithin(s, limits{maxPending, maxBacklog}) }

func resumeWithin(s state, most limits) *progress {
	p := &progress{high: s.high, floor: s.floor, snap: s.snap, max: most, passed: s.high, stated: s.high, late: make(map[int64]lateEvent), backBytes: make(map[int64]int)}
	switch {
	case s.isListed():
		p.listed, p.passedOwed, p.backlog = s.pending, s.passed, s.open
		p.owed = slices.Clone(s.pending.Above(s.passed).Without(s.open))
		p.endCatchUp()
	case s.to != "":
		p.from, p.snap, p.passedOwed, p.backlog, p.resuming = s.snap, s.to, s.passed, s.pending, true
	case len(s.pending) > most.backlog:
		p.listed, p.owed = s.pending, slices.Clone(s.pending)
	default:
		//planted:pending-forgotten-at-take-over remove
		p.backlog = s.pending
	}
	return p
}

// readLate adds late rows and rows of the backlog. Rows above passed go into page, because an
// acknowledged row of page can raise the high that state() returns. In the map late, it could not
// raise high, so it would not count as published until another event raised high above its seq. A row
// that is in page already was put back or lost, and is read again.
func (p *progress) readLate(events []broker.Event) {
	inOrder := len(p.page)
	for i := range events {
		ev := &events[i]
		switch e := entryOf(p.page[:inOrder], ev.Seq); {
		//guard:an-event-is-in-the-page-once false
		case e != nil:
			e.done = false
		case ev.Seq > p.passed:
			p.page = append(p.page, entry{seq: ev.Seq, bytes: sizeOf(ev)})
		default:
			p.late[ev.Seq] = lateEvent{key: ev.OrderKey(), bytes: sizeOf(ev)}
		}
	}
	if len(p.page) > inOrder {
		slices.SortFunc(p.page, func(a, b entry) int { return cmp.Compare(a.seq, b.seq) })
	}
}

// readPage adds the next page: new rows that pass.sql returned. Their seqs must be above high, and
// ascending.
func (p *progress) readPage(events []broker.Event) {
	for i := range events {
		p.page = append(p.page, entry{seq: events[i].Seq, bytes: sizeOf(&events[i])})
		p.high = events[i].Seq
	}
}

// hasBacklog reports whether there are events that must be read before newer events.
func (p *progress) hasBacklog() bool { return len(p.backlog)+len(p.owed)+len(p.lost) > 0 }

// isCatchingUp reports whether the leader catches up with a long backlog.
func (p *progress) isCatchingUp() bool { return p.from != "" || p.listed != nil }

// addLate adds late rows that are visible in the snapshot now. If they make the backlog too long to
// be listed, the leader begins to catch up. It must not do so already.
func (p *progress) addLate(late seqset.Set, now string) {
	late = late.Without(p.backlog)
	//guard:a-long-backlog-is-not-listed 2 true
	if all := p.backlog.Union(late); len(late) == 0 || len(all) <= p.max.backlog {
		p.backlog = all
	} else {
		p.from, p.owed, p.passedOwed = p.snap, late, late[0].Lo-1
	}
	p.snap = now
}

// addOwed adds the late rows, above passedOwed, of a catch-up that an earlier term has begun.
func (p *progress) addOwed(late seqset.Set) {
	p.owed, p.resuming = p.owed.Union(late.Without(p.backlog)), false
	p.endCatchUp()
}

// addLost adds events that the broker lost. Rows that were read and are not acknowledged stay in the
// fields late or page.
func (p *progress) addLost(lost seqset.Set) {
	if all := p.backlog.Union(lost); len(p.lost) == 0 && len(all) <= p.max.backlog {
		p.backlog = all
		return
	}
	p.lost = p.lost.Union(lost)
}

// head is a part of the backlog that the reader reads next.
type head struct {
	seqs seqset.Set
	owed bool // it is a part of progress.owed
}

// nextOwed returns the lowest events of the backlog, at most limit. First come those that
// recordings list, and the lost ones: a late row of a key became visible after these events were
// read, so it is the newer one. The method passHead removes the events from the backlog.
func (p *progress) nextOwed(limit int) head {
	if len(p.lost) > 0 {
		some := p.lost.First(int64(limit))
		p.lost = p.lost.Drop(some[len(some)-1].Hi)
		p.backlog = p.backlog.Union(some)
	}
	if len(p.backlog) > 0 {
		return head{seqs: p.backlog.First(int64(limit))}
	}
	return head{seqs: p.owed.First(int64(limit)), owed: true}
}

// passHead removes a head from the backlog, after its rows were read.
func (p *progress) passHead(h head) {
	if !h.owed {
		//guard:what-is-owed-while-the-backlog-is-read = @0.1.Above(@1[len(@1)-1].Hi)
		p.backlog = p.backlog.Without(h.seqs)
		return
	}
	if n := len(h.seqs); n > 0 {
		p.passedOwed = h.seqs[n-1].Hi
		p.owed = p.owed.Drop(p.passedOwed)
	}
	p.endCatchUp()
}

// endCatchUp ends the catch-up if all of its backlog was read.
func (p *progress) endCatchUp() {
	if len(p.owed) == 0 && !p.resuming {
		p.from, p.listed, p.passedOwed = "", nil, 0
	}
}

// schedule notes that events must be held until they are due. They were read, and their rows count
// as done, except that state() lists them until they are held.
func (p *progress) schedule(events []broker.Event) {
	for i := range events {
		//guard:scheduled-events-are-held-in-portions 2 false
		if n := len(p.scheduled); n == p.recording || !p.scheduled[n-1].take(events[i].Size()) {
			p.scheduled = append(p.scheduled, portion{})
			p.scheduled[n].take(events[i].Size())
		}
		last := &p.scheduled[len(p.scheduled)-1]
		last.seqs = last.seqs.Add(events[i].Seq)
	}
	p.markDone(seqsOfAll(events))
}

// scheduledRanges returns how many ranges the events of the field scheduled have.
func (p *progress) scheduledRanges() (n int) {
	for i := range p.scheduled {
		n += len(p.scheduled[i].seqs)
	}
	return n
}

// returnToLog notes that the relay has no room for some events. If the list of such events becomes too
// long, these ones stay in the field page or late.
func (p *progress) returnToLog(seqs []int64) {
	//guard:events-that-are-put-back-are-listed-to-a-limit true
	if all := p.putBack.Union(seqset.Of(slices.Clone(seqs))); len(all) <= p.max.backlog {
		sizes := make([]int, len(seqs))
		for i, seq := range seqs {
			sizes[i] = p.bytes(seq)
		}
		p.markDone(seqs)
		p.putBack = all
		//guard:events-that-are-put-back-keep-their-sizes do clear(sizes); @
		for i, seq := range seqs {
			p.backBytes[seq] = sizes[i]
		}
	}
}

// readAgain notes that events were read again, and returns those that are not done meanwhile. The
// events of gone are missing in the log.
func (p *progress) readAgain(events []broker.Event, gone seqset.Set) (open []broker.Event) {
	var back []broker.Event
	for i := range events {
		if p.putBack.Has(events[i].Seq) {
			back = append(back, events[i])
			delete(p.backBytes, events[i].Seq)
		}
	}
	p.markDone(gone.AppendTo(nil))
	p.putBack = p.putBack.Without(seqset.Of(seqsOfAll(back)))
	p.readLate(back)
	return slices.DeleteFunc(events, func(ev broker.Event) bool {
		_, late := p.late[ev.Seq]
		e := p.entry(ev.Seq)
		return !late && (e == nil || e.done)
	})
}

// seqsOfAll returns the seqs of events.
func seqsOfAll(events []broker.Event) []int64 {
	seqs := make([]int64, len(events))
	for i := range events {
		seqs[i] = events[i].Seq
	}
	return seqs
}

// markDone notes that these events need not be read again: they are published, or held.
func (p *progress) markDone(seqs []int64) {
	if len(p.putBack) > 0 {
		p.putBack = p.putBack.Without(seqset.Of(slices.Clone(seqs)))
	}
	for _, seq := range seqs {
		delete(p.backBytes, seq)
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

// firstLate returns the first event of each key in the field late.
func (p *progress) firstLate() map[string]int64 {
	first := make(map[string]int64)
	for seq, ev := range p.late {
		if other, ok := first[ev.key]; !ok || seq < other {
			first[ev.key] = seq
		}
	}
	return first
}

// entry returns the entry of the page with the given seq, or nil.
func (p *progress) entry(seq int64) *entry { return entryOf(p.page, seq) }

// entryOf returns the entry of a page with the given seq, or nil. The page is ascending.
func entryOf(page []entry, seq int64) *entry {
	i := sort.Search(len(page), func(i int) bool { return page[i].seq >= seq })
	if i < len(page) && page[i].seq == seq {
		return &page[i]
	}
	return nil
}

// bytes returns the size of an event that was read and is not done.
func (p *progress) bytes(seq int64) int {
	if e := p.entry(seq); e != nil {
		return e.bytes
	}
	return p.late[seq].bytes + p.backBytes[seq] // it is in one of them at most
}

// state returns the state to record now. Its high is the highest acknowledged seq (or lower: see
// maxPending), so that events that were only read ahead do not make pending longer. The next leader
// reads everything above high again, so pending has no seqs above high.
func (p *progress) state() state {
	high, unpublished := p.passed, make([]int64, 0, len(p.late)+p.max.pending)
	open := 0
	for _, e := range p.page {
		if !e.done {
			//guard:high-goes-back 2 true
			if len(unpublished) >= p.max.pending && e.seq > p.stated {
				break
			}
			unpublished = append(unpublished, e.seq)
		}
		//guard:high-goes-back-when-an-event-is-read-again 2 false
		if e.done || e.seq <= p.stated {
			high, open = e.seq, len(unpublished)
		}
	}
	p.stated = high
	s := state{high: high, floor: p.floor, snap: p.snap, pending: p.unpublished(unpublished[:open]).UpTo(high)}
	switch {
	case p.from != "":
		s.snap, s.to, s.passed = p.from, p.snap, p.passedOwed
	case p.listed != nil:
		s.to, s.passed, s.pending, s.open = p.snap, p.passedOwed, p.listed, s.pending
	}
	return s
}

// unpublished returns the events that are neither published nor held: the given ones of the page,
// and all others.
func (p *progress) unpublished(open []int64) seqset.Set {
	all := append(seqset.Of(slices.AppendSeq(open, maps.Keys(p.late))), p.putBack...)
	for i := p.recording; i < len(p.scheduled); i++ {
		all = append(all, p.scheduled[i].seqs...)
	}
	return p.backlog.Union(all)
}
