package pglog

import (
	"maps"
	"slices"
	"sync"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// memory is what a term has read from the log and not recorded yet. It is valid as long as the
// connections of the term are open. The reader adds to the memory, and the recorder takes from it.
// All methods lock mu, except pageOf, selectEvents and pendingChanges, whose callers lock mu.
type memory struct {
	mu          sync.Mutex
	progress    *progress
	heldAhead   map[int64]struct{}  // seqs above the recorded high at the start of the term; their events must not be published, because they are held, discarded or cancelled
	toSchedule  []int64             // events that were read from the log and are scheduled: the next recording moves them to the table held
	toHold      []eventlog.Deferral // events that the next recording moves to the table held because they were refused, or wait behind a refused event
	heldRead    map[int64]string    // events that were read from the table held and have no recorded result yet, each with the key that it blocks
	unstorable  int                 // how many events could not be held unchanged and were not reported yet
	republishes republishes         // the republishes that the term has read; takeEnded removes those that ended
}

// newMemory returns the memory of a term that begins with a recorded state.
func newMemory(recorded state) *memory {
	return &memory{progress: resume(recorded), heldAhead: make(map[int64]struct{}), heldRead: make(map[int64]string)}
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
	return len(m.progress.backlog) > 0
}

// addLate adds late rows (see search.go) to the backlog. They are visible in the given snapshot.
func (m *memory) addLate(late seqset.Set, now string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.addBacklog(late)
	m.progress.snap = now
}

// addLateRanges adds late rows as addLate does. It also returns the lowest events of the backlog,
// at most limit. These must be read next. readBacklogPage removes them from the backlog.
func (m *memory) addLateRanges(late seqset.Set, now string, limit int) (head seqset.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.addBacklog(late)
	m.progress.snap = now
	head, _ = m.progress.backlog.Cut(int64(limit))
	return head
}

// readBacklogPage removes head from the backlog, or head's first part if the rest was not read. It
// returns the page. Events that a recording has added since head was chosen stay in the backlog.
func (m *memory) readBacklogPage(found *rows, head seqset.Set) eventlog.Page {
	m.mu.Lock()
	defer m.mu.Unlock()
	//guard:owed-events-that-the-bytes-cut-off-stay-owed false
	if found.full(partLate) { // the rest of head was not read
		head = head.UpTo(found.late[len(found.late)-1].Seq)
	}
	//guard:what-is-owed-while-the-backlog-is-read = @0.1.Above(@1[len(@1)-1].Hi)
	m.progress.backlog = m.progress.backlog.Without(head)
	m.progress.readLate(found.late)
	page := m.pageOf(found)
	page.Missing, page.More = head.Size()-int64(len(found.late)), found.full(partLate)
	return page
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
// events that are due. An event that is scheduled for later stays pending until the next recording
// moves it to the table held.
func (m *memory) selectEvents(found *rows) []eventlog.Event {
	if len(found.scheduled) == 0 && len(found.late) == 0 && len(found.due) == 0 && len(m.heldAhead) == 0 {
		return found.page
	}
	events := make([]eventlog.Event, 0, len(found.late)+len(found.page)+len(found.due))
	for _, ev := range append(found.late, found.page...) {
		if _, held := m.heldAhead[ev.Seq]; held {
			delete(m.heldAhead, ev.Seq)
			m.progress.markDone([]int64{ev.Seq})
			continue
		}
		if slices.Contains(found.scheduled, ev.Seq) {
			if ev.Fault == nil && ev.Validate() == nil {
				m.toSchedule = append(m.toSchedule, ev.Seq)
				continue
			}
			ev.Unordered = true // the event is not valid: the relay refuses it now, before it is due, and no event may wait behind it
		}
		events = append(events, ev)
	}
	for _, ev := range found.due {
		if _, reading := m.heldRead[ev.Seq]; reading {
			continue // it is being published already; pass.sql returned it again with a late event of its key that is due
		}
		m.heldRead[ev.Seq] = ""
		if !ev.Unordered {
			m.heldRead[ev.Seq] = ev.Key
		}
		events = append(events, ev)
	}
	return events
}

// addResults adds the results of events, and returns what the term of the given epoch must record.
func (m *memory) addResults(p eventlog.Progress, epoch int64) (next state, held changes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.toHold = append(m.toHold, p.Held...)
	if len(p.Lost) > 0 {
		m.progress.addBacklog(seqset.Of(slices.Clone(p.Lost)))
	}
	m.republishes.addResults(p.Republished, p.Held)
	held = m.pendingChanges(p.Published, epoch)
	m.progress.markDone(p.Published)
	m.progress.markDone(held.schedule)
	m.progress.markDone(held.heldFirst)
	return m.progress.state(), held
}

// pendingChanges returns the changes that must be recorded besides the state. The memory keeps the
// events to hold until they are stored, because Release may have to record them again.
func (m *memory) pendingChanges(published []int64, epoch int64) changes {
	c := changes{schedule: slices.Clone(m.toSchedule), republishes: m.republishes.unstored(epoch)}
	for _, seq := range published {
		if key, ok := m.heldRead[seq]; ok {
			c.published = append(c.published, seq)
			c.addKey(key)
		}
	}
	c.unblocked = slices.Clone(c.keys)
	for _, h := range m.toHold {
		key, ok := m.heldRead[h.Seq]
		switch {
		case h.RepublishID != 0:
			c.hold.add(h, "") // no event waits behind an event of a republish
			continue
		case ok:
			c.holdAgain.add(h, key)
		default:
			key = h.Key
			c.hold.add(h, key)
			c.heldFirst = append(c.heldFirst, h.Seq)
		}
		c.addKey(key)
	}
	c.sortKeys()
	return c
}

// removeStored forgets stored changes, and events that stay in the table held unchanged (returned).
func (m *memory) removeStored(held *changes, returned []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	//guard:scheduled-events-read-beside-a-recording = nil
	m.toSchedule = m.toSchedule[len(held.schedule):] // keep the events that Read has added since pendingChanges
	m.toHold = nil
	m.republishes.markStored(held.republishes)
	for _, seqs := range [][]int64{held.published, held.holdAgain.seqs, returned} {
		for _, seq := range seqs {
			delete(m.heldRead, seq)
		}
	}
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
func (m *memory) addRepublishPage(known int64, note *republishNote, events []eventlog.Event) (page eventlog.RepublishPage, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if page, err = m.republishes.addPage(note, events); err != nil {
		return eventlog.RepublishPage{}, err
	}
	page.Ended = m.republishes.takeEnded(known, note.Before)
	return page, nil
}
