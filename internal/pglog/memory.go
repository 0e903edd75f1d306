package pglog

import (
	"maps"
	"slices"
	"sync"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/seqset"
	"github.com/postroom/postroom/relay/broker"
)

// memory is what a term has read from the log and not recorded yet. It is valid as long as the
// connections of the term are open. The reader adds to the memory, and the recorder takes from it.
// All methods lock mu, except pageOf, selectEvents, pendingChanges and size, whose callers lock mu.
type memory struct {
	mu          sync.Mutex
	progress    *progress
	heldAhead   map[int64]struct{}  // seqs above the recorded high at the start of the term; their events must not be published, because they are held, discarded or cancelled
	toHold      []deferred          // events that recordings move to the table held because they were refused, or wait behind a refused event
	toRemove    []int64             // events of the table held that were published, and that recordings remove from that table
	heldRead    map[int64]heldEvent // events that were read from the table held and have no recorded result yet
	unstorable  int                 // how many events could not be held unchanged and were not reported yet
	republishes republishes         // the republishes that the term has read; takeEnded removes those that ended
}

// deferred is an event for the table held.
type deferred struct {
	eventlog.Deferral

	bytes int
}

// heldEvent is what the memory knows of an event that was read from the table held.
type heldEvent struct {
	key   string // the key that the event blocks, or ""
	bytes int
}

// newMemory returns the memory of a term that begins with a recorded state.
func newMemory(recorded state) *memory {
	return &memory{progress: resume(recorded), heldAhead: make(map[int64]struct{}), heldRead: make(map[int64]heldEvent)}
}

// addHeldAhead adds seqs to heldAhead.
func (m *memory) addHeldAhead(seqs []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seq := range seqs {
		m.heldAhead[seq] = struct{}{}
	}
}

// position returns how far the log is read, and the snapshot of the last pass.
func (m *memory) position() state {
	m.mu.Lock()
	defer m.mu.Unlock()
	return state{high: m.progress.high, floor: m.progress.floor, snap: m.progress.snap}
}

// dueSeqs returns the seqs in heldRead, for a parameter of pass.sql. It never returns nil, because
// pass.sql finds no due event if this parameter is NULL.
func (m *memory) dueSeqs() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(make([]int64, 0, len(m.heldRead)), maps.Keys(m.heldRead))
}

// hasBacklog reports whether there are events that must be read before newer events.
func (m *memory) hasBacklog() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress.hasBacklog()
}

// isFull reports whether so many scheduled events wait for recordings that no more may be read.
func (m *memory) isFull() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress.scheduledRanges() >= maxScheduled
}

// catchingUp reports whether the leader catches up with a long backlog. If an earlier term has begun
// that, and the reader must search for the late rows of the backlog first, the result rest describes
// them: they became visible between rest.snap and rest.to, and their seqs are above rest.passed.
func (m *memory) catchingUp() (is bool, rest *state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.progress
	if p.resuming {
		rest = &state{high: p.high, floor: p.floor, snap: p.from, catchUp: catchUp{to: p.snap, passed: p.passedOwed}}
	}
	return p.isCatchingUp(), rest
}

// addLate adds late rows (see search.go) to the backlog. They are visible in the given snapshot.
func (m *memory) addLate(late seqset.Set, now string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.progress.resuming {
		m.progress.addOwed(late)
	} else {
		m.progress.addLate(late, now)
	}
}

// nextOwed returns the lowest events of the backlog, at most limit. These must be read next.
// readBacklogPage removes them from the backlog.
func (m *memory) nextOwed(limit int) head {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress.nextOwed(limit)
}

// readBacklogPage removes h from the backlog, or h's first part if the rest was not read. It returns
// the page. Events that a recording has added since h was chosen stay in the backlog.
func (m *memory) readBacklogPage(found *rows, h head) eventlog.Page {
	m.mu.Lock()
	defer m.mu.Unlock()
	//guard:owed-events-that-the-bytes-cut-off-stay-owed false
	if found.full(partLate) { // the rest of h was not read
		h.seqs = h.seqs.UpTo(found.late[len(found.late)-1].Seq)
	}
	m.progress.passHead(h)
	m.progress.readLate(found.late)
	page := m.pageOf(found)
	page.Missing, page.More = h.seqs.Size()-int64(len(found.late)), found.full(partLate)
	return page
}

// putBack notes that the relay has no room for events that it got from the log.
func (m *memory) putBack(seqs []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.returnToLog(seqs)
}

// readAgain adds the events that were read again: of those with the given seqs, all up to through.
// It returns the page.
func (m *memory) readAgain(found *rows, seqs seqset.Set) (page eventlog.Page, through int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	through = seqs[len(seqs)-1].Hi
	if found.full(partLate) { // the rest was not read
		through = found.late[len(found.late)-1].Seq
	}
	gone := seqs.UpTo(through).Without(seqset.Of(seqsOfAll(found.late)))
	found.late = m.progress.readAgain(found.late, gone)
	page = m.pageOf(found)
	page.Missing = gone.Size()
	return page, through
}

// addPass adds what a pass found, and returns the page.
func (m *memory) addPass(found *rows) eventlog.Page {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.readLate(found.late)
	m.progress.readPage(found.page)
	m.progress.snap = found.snap
	page := m.pageOf(found)
	page.Late, page.More = len(found.late), found.full(partPage) || found.full(partDue) || found.moreDue && len(found.busy) > 0
	if len(page.Events) == 0 && len(found.page) > 0 { // all of them are held, and there may be a long row of them
		page.More = true
	}
	return page
}

// addUnstorable counts an event that could not be held unchanged.
func (m *memory) addUnstorable() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unstorable++
}

// pageOf returns the page for the rows that were found. It reports unstorable events only once.
func (m *memory) pageOf(found *rows) eventlog.Page {
	page := eventlog.Page{Events: m.selectEvents(found), Scheduled: len(found.scheduled), Unstorable: m.unstorable}
	m.unstorable = 0
	return page
}

// selectEvents returns the events to publish now: first late and new events of the log, then held
// events that are due. Events that are scheduled for later go to the table held with the next
// recordings.
func (m *memory) selectEvents(found *rows) []broker.Event {
	if len(found.scheduled) == 0 && len(found.late) == 0 && len(found.due) == 0 && len(m.heldAhead) == 0 {
		return found.page
	}
	events := make([]broker.Event, 0, len(found.late)+len(found.page)+len(found.due))
	var ahead []int64
	var scheduled []broker.Event
	for _, ev := range append(found.late, found.page...) {
		if _, held := m.heldAhead[ev.Seq]; held {
			delete(m.heldAhead, ev.Seq)
			ahead = append(ahead, ev.Seq)
			continue
		}
		if _, later := found.scheduled[ev.Seq]; later {
			if ev.Fault == nil && ev.Validate() == nil {
				scheduled = append(scheduled, ev)
				continue
			}
			ev.Unordered = true // the event is not valid: the relay refuses it now, before it is due, and no event may wait behind it
		}
		events = append(events, ev)
	}
	m.progress.markDone(ahead)
	m.progress.schedule(scheduled)
	var firstLate map[string]int64
	if len(found.due) > 0 {
		firstLate = m.progress.firstLate()
	}
	for _, ev := range found.due {
		//guard:a-held-event-waits-for-an-earlier-one-of-the-log false
		if first, ok := firstLate[ev.OrderKey()]; ok && !ev.Unordered && first < ev.Seq {
			continue // the earlier event was lost or late, and has no result: it is published first, or is on its way to the table held
		}
		if _, reading := m.heldRead[ev.Seq]; reading {
			continue // it is being published already; pass.sql returned it again with a late event of its key that is due
		}
		m.heldRead[ev.Seq] = heldEvent{key: ev.OrderKey(), bytes: ev.Size()}
		events = append(events, ev)
	}
	return events
}

// addResults adds the results of events, and returns what the term of the given epoch must record
// now. If the memory has more changes than a recording may write, it keeps the rest for the next
// recordings. The result hidden says that the state lacks lost events: see progress.lost.
func (m *memory) addResults(p eventlog.Progress, epoch int64) (next state, held changes, hidden bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range p.Held {
		m.toHold = append(m.toHold, deferred{h, m.size(h)})
	}
	for _, seq := range p.Published {
		if _, ok := m.heldRead[seq]; ok {
			m.toRemove = append(m.toRemove, seq)
		}
	}
	if len(p.Lost) > 0 {
		m.progress.addLost(seqset.Of(slices.Clone(p.Lost)))
	}
	m.republishes.addResults(p.Republished)
	m.progress.markDone(p.Published)
	held = m.pendingChanges(epoch)
	m.progress.markDone(held.heldFirst)
	return m.progress.state(), held, len(m.progress.lost) > 0
}

// size returns how many bytes are written if an event goes to the table held. Of an event that was
// read from that table, the body is not written again.
func (m *memory) size(h eventlog.Deferral) int {
	if h.RepublishID != 0 {
		return m.republishes.bytes(h.RepublishID, h.Seq)
	}
	return m.progress.bytes(h.Seq)
}

// pendingChanges returns the changes that must be recorded besides the state: a limited number of
// each kind. The memory keeps the events until they are stored, because Release may have to record
// them again.
func (m *memory) pendingChanges(epoch int64) (c changes) {
	//guard:a-recording-schedules-a-bounded-part = len(m.progress.scheduled)
	m.progress.recording = min(len(m.progress.scheduled), 1)
	for i := range m.progress.recording {
		c.schedule = m.progress.scheduled[i].seqs.AppendTo(c.schedule)
		c.bytes += m.progress.scheduled[i].bytes
	}
	var removes, holds budget
	var repeats []eventlog.Deferral
	for _, seq := range m.toRemove {
		row := m.heldRead[seq]
		//guard:a-recording-removes-a-bounded-part false
		if !removes.take(row.bytes) {
			break
		}
		c.published = append(c.published, seq)
		c.addKey(row.key)
	}
	c.unblocked = slices.Clone(c.keys)
	for _, h := range m.toHold {
		//guard:a-recording-holds-a-bounded-part false
		if !holds.take(h.bytes) {
			break
		}
		row, ok := m.heldRead[h.Seq]
		switch {
		case h.RepublishID != 0:
			c.hold.add(h.Deferral, "") // no event waits behind an event of a republish
			repeats = append(repeats, h.Deferral)
			continue
		case ok:
			c.holdAgain.add(h.Deferral, row.key)
			c.addKey(row.key)
			continue
		}
		c.hold.add(h.Deferral, h.Key)
		c.heldFirst = append(c.heldFirst, h.Seq)
		c.addKey(h.Key)
	}
	c.bytes += removes.bytes + holds.bytes
	c.sortKeys()
	m.republishes.addHeld(repeats)
	c.republishes = m.republishes.unstored(epoch)
	return c
}

// removeStored forgets stored changes, and events that stay in the table held unchanged (returned).
func (m *memory) removeStored(held *changes, returned []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	//guard:scheduled-events-read-beside-a-recording = nil
	m.progress.scheduled = m.progress.scheduled[m.progress.recording:] // keep the events that Read has added since pendingChanges
	m.progress.recording = 0
	m.toHold = m.toHold[len(held.hold.seqs)+len(held.holdAgain.seqs):]
	m.toRemove = m.toRemove[len(held.published):]
	m.republishes.markStored(held.republishes)
	for _, seqs := range [][]int64{held.published, held.holdAgain.seqs, returned} {
		for _, seq := range seqs {
			delete(m.heldRead, seq)
		}
	}
}

// unrecorded returns how many events recordings have left to hold, and how many they have left to
// schedule or to remove from the table held.
func (m *memory) unrecorded() (held, other int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.progress.scheduled {
		other += m.progress.scheduled[i].rows
	}
	return len(m.toHold), other + len(m.toRemove)
}

// hasResults reports whether recordings have left to write results of events.
func (m *memory) hasResults() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.toHold)+len(m.toRemove) > 0
}

// republishPosition returns the id of the republish that the term reads (known), or zero. The next
// events to read have seqs above behind. If first is not nil, it has the ranges of their seqs.
func (m *memory) republishPosition() (known, behind int64, first *string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.republishes.last()
	if r == nil {
		return 0, 0, nil
	}
	if len(r.backlog) == 0 {
		return r.ID, r.passed, nil
	}
	text := r.backlog.String()
	return r.ID, r.backlog[0].Lo - 1, &text
}

// addRepublishPage adds what republish_page.sql returned, and returns the page.
func (m *memory) addRepublishPage(known int64, note *republishNote, events []broker.Event) (page eventlog.RepublishPage, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if page, err = m.republishes.addPage(note, events); err != nil {
		return eventlog.RepublishPage{}, err
	}
	page.Ended = m.republishes.takeEnded(known, note.Before)
	return page, nil
}
