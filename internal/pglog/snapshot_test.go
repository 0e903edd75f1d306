package pglog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// model is a database as a pass sees it: rows that become visible at some
// step, in any order, or never. A snapshot is the step at which it was taken.
type model struct {
	now       int
	visibleAt map[int64]int
	nextSeq   int64
	open      []int64 // taken and not committed

	*progress

	state   state
	inHand  []int64       // read in this term and not acknowledged
	acked   map[int64]int // how often each was acknowledged
	crashes int
}

func newModel() *model {
	m := &model{visibleAt: map[int64]int{}, acked: map[int64]int{}, state: state{snap: "0"}}
	m.resume()
	return m
}

// take begins a transaction that has a seq and is not visible.
func (m *model) take(*rapid.T) {
	m.nextSeq++
	m.open = append(m.open, m.nextSeq)
}

// end commits one of the open transactions, or rolls it back.
func (m *model) end(t *rapid.T) {
	if len(m.open) == 0 {
		t.Skip("nothing is open") // rapid draws another action
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(t, "transaction")
	if rapid.IntRange(0, 4).Draw(t, "fate") > 0 {
		m.now++
		m.visibleAt[m.open[i]] = m.now
	}
	m.open = slices.Delete(m.open, i, i+1)
}

// pass reads as Term does, with pages of three.
func (m *model) pass(*rapid.T) {
	const limit = 3
	since, _ := strconv.Atoi(m.snap)
	var late, page []eventlog.Event
	for _, seq := range slices.Sorted(maps.Keys(m.visibleAt)) {
		switch {
		case seq <= m.high && seq > m.floor && m.visibleAt[seq] > since:
			late = append(late, eventlog.Event{Seq: seq})
		case seq > m.high && len(page) < limit:
			page = append(page, eventlog.Event{Seq: seq})
		}
	}
	m.snap = strconv.Itoa(m.now)
	if len(m.backlog) > 0 || len(late) > limit {
		m.addBacklog(seqset.Of(seqsOf(late)))
		var head seqset.Set
		head, m.backlog = m.backlog.Cut(limit)
		late, page = nil, nil
		for _, r := range head {
			for seq := r.Lo; seq <= r.Hi; seq++ {
				late = append(late, eventlog.Event{Seq: seq})
			}
		}
	}
	m.readLate(late)
	m.readPage(page)
	m.inHand = append(append(m.inHand, seqsOf(late)...), seqsOf(page)...)
}

// ack acknowledges one event that was read.
func (m *model) ack(t *rapid.T) {
	if len(m.inHand) == 0 {
		t.Skip("nothing is in hand") // rapid draws another action
	}
	i := rapid.IntRange(0, len(m.inHand)-1).Draw(t, "event")
	m.acked[m.inHand[i]]++
	m.markDone([]int64{m.inHand[i]})
	m.inHand = slices.Delete(m.inHand, i, i+1)
}

// record stores the state in the form in which it is read back.
func (m *model) record(t *rapid.T) {
	before := m.state.high
	m.state = m.progress.state()
	if m.state.high < before {
		t.Fatalf("the recorded high decreased from %d to %d", before, m.state.high)
	}
	text := "{" // the form in which PostgreSQL prints the result of String
	for i, r := range m.state.pending {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf("[%d,%d)", r.Lo, r.Hi+1)
	}
	pending, err := seqset.Parse(text + "}")
	if err != nil {
		t.Fatal(err)
	}
	m.state.pending = pending
}

// crash begins anew from the recorded state.
func (m *model) crash(*rapid.T) {
	m.crashes++
	m.inHand = nil
	m.resume()
}

// resume begins a term from the recorded state.
func (m *model) resume() {
	m.progress = resume(m.state)
	m.maxPending = 1
}

// check is what must hold after every step.
func (m *model) check(t *rapid.T) {
	now := m.progress.state()
	since, _ := strconv.Atoi(now.snap)
	for seq, at := range m.visibleAt {
		isPending := slices.ContainsFunc(now.pending, func(r seqset.Span) bool { return r.Lo <= seq && seq <= r.Hi })
		if seq <= now.high && at <= since && m.acked[seq] == 0 && !isPending {
			t.Fatalf("seq %d is visible in the snapshot, not above high %d, not pending and never published", seq, now.high)
		}
		if isPending && seq > now.high {
			t.Fatalf("seq %d is pending and above high %d: it would be read twice", seq, now.high)
		}
		if m.crashes == 0 && m.acked[seq] > 1 {
			t.Fatalf("seq %d was published %d times without a crash", seq, m.acked[seq])
		}
	}
}

func TestProgressMeansWhatItRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		t.Repeat(map[string]func(*rapid.T){
			"take": m.take, "end": m.end, "pass": m.pass, "pass again": m.pass, "ack": m.ack, "ack again": m.ack,
			"record": m.record, "crash": m.crash, "": m.check,
		})

		for len(m.open) > 0 {
			m.end(t)
		}
		m.crash(t)
		for idlePasses := 0; idlePasses < 2; {
			m.pass(t)
			idlePasses++
			for len(m.inHand) > 0 {
				m.ack(t)
				idlePasses = 0
			}
		}
		for seq := range m.visibleAt {
			if m.acked[seq] == 0 {
				t.Fatalf("seq %d was committed and never published", seq)
			}
		}
		if s := m.progress.state(); len(s.pending) > 0 {
			t.Fatalf("all is published, and %s is pending", s.pending)
		}
	})
}

func TestProgressKeepsPendingShort(t *testing.T) {
	p := resume(state{snap: "0"})
	var page []eventlog.Event
	for seq := int64(1); seq <= 10_000; seq++ {
		page = append(page, eventlog.Event{Seq: seq})
	}
	p.readPage(page)
	for seq := int64(2); seq <= 10_000; seq += 2 {
		p.markDone([]int64{seq}) // the events between are not published, for instance because they wait behind their keys
	}
	s := p.state()
	if got := s.pending.Size(); got > maxPending {
		t.Errorf("pending holds %d seqs, want at most %d", got, maxPending)
	}
	if s.high < maxPending {
		t.Errorf("high is %d: it should be as far as pending reaches", s.high)
	}
}

func seqsOf(events []eventlog.Event) []int64 {
	seqs := make([]int64, len(events))
	for i, ev := range events {
		seqs[i] = ev.Seq
	}
	return seqs
}

// If a late event is acknowledged, that is recorded, even if an event that was read in order
// before it is not acknowledged.
func TestALateEventIsRecordedAheadOfItsElders(t *testing.T) {
	t.Parallel()
	p := resume(state{high: 1})
	read := func(seqs ...int64) (events []eventlog.Event) {
		for _, seq := range seqs {
			events = append(events, eventlog.Event{Seq: seq})
		}
		return events
	}
	p.readPage(read(3, 5))
	p.readLate(read(2, 4))
	for _, step := range []struct {
		acked   []int64
		high    int64
		pending string
	}{
		{nil, 1, "{}"},
		{[]int64{4}, 4, "{[2,3]}"},
		{[]int64{2}, 4, "{[3,3]}"},
		{[]int64{3}, 4, "{}"},
		{[]int64{5}, 5, "{}"},
	} {
		p.markDone(step.acked)
		if s := p.state(); s.high != step.high || s.pending.String() != step.pending {
			t.Errorf("after %v: high %d, pending %s, want %d, %s", step.acked, s.high, s.pending, step.high, step.pending)
		}
	}
}

// Late rows below the recorded high lengthen pending. They do not lower high: the events
// between would be published again after a crash.
func TestLateRowsDoNotLowerHigh(t *testing.T) {
	t.Parallel()
	p := resume(state{})
	var page, late []eventlog.Event
	for seq := int64(2); seq <= 2*maxPending; seq += 2 {
		page = append(page, eventlog.Event{Seq: seq})
		late = append(late, eventlog.Event{Seq: seq - 1})
	}
	const last = 2*maxPending + 1
	p.readPage(append(page, eventlog.Event{Seq: last}))
	p.markDone([]int64{last})
	if s := p.state(); s.high != last || s.pending.Size() != maxPending {
		t.Fatalf("high %d with %d pending, want %d with %d", s.high, s.pending.Size(), last, maxPending)
	}
	p.readLate(late)
	if s := p.state(); s.high != last || s.pending.Size() != 2*maxPending {
		t.Errorf("after late rows: high %d with %d pending, want %d with %d", s.high, s.pending.Size(), last, 2*maxPending)
	}
}

// The broker may be found to have lost events while a part of the backlog is read.
func TestLostEventsAreRecordedWhileABacklogIsRead(t *testing.T) {
	t.Parallel()
	m := newMemory(state{high: 10, snap: "0", pending: seqset.Of([]int64{4, 5, 9})})
	head := m.addLateRanges(nil, "1", 2)
	m.addResults(eventlog.Progress{Lost: []int64{2, 7}}, 1)
	page := m.readBacklogPage(&rows{late: []eventlog.Event{{Seq: 4}, {Seq: 5}}}, head)
	if got := seqsOf(page.Events); !slices.Equal(got, []int64{4, 5}) {
		t.Errorf("read %v, want 4 and 5", got)
	}
	next, _ := m.addResults(eventlog.Progress{Published: []int64{4, 5}}, 1)
	if want := seqset.Of([]int64{2, 7, 9}); !slices.Equal(next.pending, want) {
		t.Errorf("pending %s, want %s", next.pending, want)
	}
}
