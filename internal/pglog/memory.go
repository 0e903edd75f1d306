package pglog

import (
	"maps"
	"slices"
	"sync"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// memory is what a term knows of the log beyond what is recorded. It is valid for as long
// as the connections of the term live. The reader adds to it, the recorder takes from it,
// and each call locks it; only admit, choose and sort are called with the lock.
type memory struct {
	mu       sync.Mutex
	progress *progress
	ahead    map[int64]struct{} // held, though above the high that the term began with
	later    []int64            // read from the log and scheduled: to be held by the next recording
	unheld   []eventlog.Holding // likewise refused, or behind one that was
	due      map[int64]string   // read from held and not yet recorded, and the key that each blocks
	spoilt   int                // events that could not be held as they are, and were not told of
	repeats  repeats            // events that are published again
}

// newMemory returns that of a term that begins with a recorded state.
func newMemory(recorded state) *memory {
	return &memory{progress: resume(recorded), ahead: make(map[int64]struct{}), due: make(map[int64]string)}
}

// lookedAhead notes what is held above the high that the term began with.
func (m *memory) lookedAhead(seqs []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seq := range seqs {
		m.ahead[seq] = struct{}{}
	}
}

// position returns up to where the log is read, and by which snapshot.
func (m *memory) position() state {
	m.mu.Lock()
	defer m.mu.Unlock()
	return state{high: m.progress.high, floor: m.progress.floor, snap: m.progress.snap}
}

// dueSeqs returns what was read from held and is not recorded. It is not nil.
func (m *memory) dueSeqs() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(make([]int64, 0, len(m.due)), maps.Keys(m.due))
}

// owes reports whether there is a backlog.
func (m *memory) owes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.progress.backlog) > 0
}

// searched notes late rows that are to be read, up to a snapshot.
func (m *memory) searched(late seqset.Set, now string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.owe(late)
	m.progress.snap = now
}

// gathered is searched, and returns the lowest of the backlog, which are to be read now.
// They stay in it until they are.
func (m *memory) gathered(late seqset.Set, now string, limit int) (head seqset.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.owe(late)
	m.progress.snap = now
	head, _ = m.progress.backlog.Cut(int64(limit))
	return head
}

// readOwed notes what was read of the backlog: its head, or what of it there was room
// for. A recording may have added to the rest meanwhile.
func (m *memory) readOwed(found *rows, head seqset.Set) eventlog.Page {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found.full(partLate) { // what is above was not read
		head = head.UpTo(found.late[len(found.late)-1].Seq)
	}
	m.progress.backlog = m.progress.backlog.Without(head)
	m.progress.readLate(found.late)
	page := m.admit(found)
	page.Missing, page.More = head.Size()-int64(len(found.late)), found.full(partLate)
	return page
}

// passed notes what a pass found.
func (m *memory) passed(found *rows) eventlog.Page {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.readLate(found.late)
	m.progress.readPage(found.page)
	m.progress.snap = found.snap
	page := m.admit(found)
	page.Late, page.More = len(found.late), found.full(partPage) || found.full(partDue)
	return page
}

// spoil notes that an event could not be held as it is.
func (m *memory) spoil() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spoilt++
}

// admit returns the page of what was found. How many could not be held is told once.
func (m *memory) admit(found *rows) eventlog.Page {
	page := eventlog.Page{Events: m.choose(found), Scheduled: len(found.scheduled), Unstorable: m.spoilt}
	m.spoilt = 0
	return page
}

// choose returns the events that are to be published now: late and new ones of
// the log, then held ones that are due. What the log has scheduled for later
// stays owed until the next recording holds it.
func (m *memory) choose(found *rows) []eventlog.Logged {
	if len(found.scheduled) == 0 && len(found.late) == 0 && len(found.due) == 0 && len(m.ahead) == 0 {
		return found.page
	}
	events := make([]eventlog.Logged, 0, len(found.late)+len(found.page)+len(found.due))
	for _, ev := range append(found.late, found.page...) {
		if _, held := m.ahead[ev.Seq]; held {
			delete(m.ahead, ev.Seq)
			m.progress.done([]int64{ev.Seq})
			continue
		}
		if slices.Contains(found.scheduled, ev.Seq) {
			if ev.Fault == nil && ev.Validate() == nil {
				m.later = append(m.later, ev.Seq)
				continue
			}
			ev.Unordered = true // it is refused now, and not when it is due: nobody has to wait for that
		}
		events = append(events, ev)
	}
	for _, ev := range found.due {
		if _, reading := m.due[ev.Seq]; reading {
			continue // it waited behind one that was late, and is on its way
		}
		m.due[ev.Seq] = ""
		if !ev.Unordered {
			m.due[ev.Seq] = ev.Key
		}
		events = append(events, ev)
	}
	return events
}

// note takes in what became of events, and returns what is to be recorded of it by a term
// with an epoch.
func (m *memory) note(p eventlog.Progress, epoch int64) (next state, held changes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unheld = append(m.unheld, p.Held...)
	if len(p.Owed) > 0 {
		m.progress.owe(seqset.Of(slices.Clone(p.Owed)))
	}
	m.repeats.settle(p.Repeated, p.Held)
	held = m.sort(p.Published, epoch)
	m.progress.done(p.Published)
	m.progress.done(held.schedule)
	m.progress.done(held.read)
	return m.progress.state(), held
}

// sort finds out what is to be changed in held. What is to be put there is kept
// until it is: Release may have to try again.
func (m *memory) sort(published []int64, epoch int64) changes {
	c := changes{schedule: slices.Clone(m.later), advances: m.repeats.advances(epoch)}
	for _, seq := range published {
		if key, ok := m.due[seq]; ok {
			c.settle = append(c.settle, seq)
			c.touch(key)
		}
	}
	c.woken = slices.Clone(c.keys)
	for _, h := range m.unheld {
		key, ok := m.due[h.Seq]
		switch {
		case h.Rewind != 0:
			c.hold.add(h, "") // it holds up nobody
			continue
		case ok:
			c.rehold.add(h, key)
		default:
			key = h.Key
			c.hold.add(h, key)
			c.read = append(c.read, h.Seq)
		}
		c.touch(key)
	}
	c.sortKeys()
	return c
}

// stored notes that changes are, and that events were returned to held as they were.
func (m *memory) stored(held *changes, returned []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.later = m.later[len(held.schedule):] // what Read has added meanwhile
	m.unheld = nil
	m.repeats.stored(held.advances)
	for _, seqs := range [][]int64{held.settle, held.rehold.seqs, returned} {
		for _, seq := range seqs {
			delete(m.due, seq)
		}
	}
}

// rewindPlace returns the rewind that is read, zero for none, and where it is read next:
// behind a seq or, where first is not nil, in these ranges.
func (m *memory) rewindPlace() (known, place int64, first *string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.repeats.last()
	if r == nil {
		return 0, 0, nil
	}
	if len(r.first) == 0 {
		return r.ID, r.passed, nil
	}
	text := r.first.String()
	return r.ID, r.first[0].Lo - 1, &text
}

// rewound notes what was found of rewinds, and returns it.
func (m *memory) rewound(known int64, note *rewoundNote, events []eventlog.Logged) (page eventlog.Rewound, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if page, err = m.repeats.take(note, events); err != nil {
		return eventlog.Rewound{}, err
	}
	page.Ended = m.repeats.end(known, note.Before)
	return page, nil
}
