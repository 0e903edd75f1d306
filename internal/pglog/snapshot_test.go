package pglog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/seqset"
	"github.com/postroom/postroom/relay/broker"
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
	inHand  []int64        // read in this term and not acknowledged
	back    []int64        // put back into the log in this term
	acked   map[int64]int  // how often each was acknowledged
	lossy   map[int64]bool // the broker lost it once
	crashes int

	caughtUp int // states of a relay that catches up
}

func newModel() *model {
	m := &model{visibleAt: map[int64]int{}, acked: map[int64]int{}, lossy: map[int64]bool{}, state: state{snap: "0"}}
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

// fallBehind makes more rows late than a page holds, so that the relay has to catch up with them.
// Draws alone come there so seldom that one test in ten never did.
func (m *model) fallBehind(t *rapid.T) {
	for range 12 {
		m.take(t)
	}
	commit := func(i int) {
		m.now++
		m.visibleAt[m.open[i]] = m.now
		m.open = slices.Delete(m.open, i, i+1)
	}
	commit(len(m.open) - 1)
	m.pass(t)
	for len(m.open) > 2 {
		commit(rapid.IntRange(0, len(m.open)-1).Draw(t, "late"))
	}
	m.pass(t)
}

// became returns the rows up to high that became visible between two snapshots.
func (m *model) became(high int64, from, to string) (late []int64) {
	since, _ := strconv.Atoi(from)
	until, _ := strconv.Atoi(to)
	for seq, at := range m.visibleAt {
		if seq <= high && seq > m.floor && at > since && at <= until {
			late = append(late, seq)
		}
	}
	return late
}

// pass reads as Term does, with pages of three.
func (m *model) pass(*rapid.T) {
	const limit = 3
	now := strconv.Itoa(m.now)
	if m.resuming {
		m.addOwed(seqset.Of(m.became(m.high, m.from, m.snap)).Above(m.passedOwed))
	}
	late := m.became(m.high, m.snap, now)
	if !m.isCatchingUp() && (m.hasBacklog() || len(late) > limit) {
		m.addLate(seqset.Of(late), now)
	}
	if m.hasBacklog() {
		head := m.nextOwed(limit)
		m.passHead(head)
		late = head.seqs.AppendTo(nil)
		m.readLate(eventsOf(late))
		m.inHand = append(m.inHand, late...)
		return
	}
	var page []int64
	for _, seq := range slices.Sorted(maps.Keys(m.visibleAt)) {
		if seq > m.high && len(page) < limit {
			page = append(page, seq)
		}
	}
	slices.Sort(late)
	m.snap = now
	m.readLate(eventsOf(late))
	m.readPage(eventsOf(page))
	m.inHand = append(append(m.inHand, late...), page...)
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

// putBack puts some events back into the log, of which some may be held before they are read again.
func (m *model) putBack(t *rapid.T) {
	if len(m.inHand) == 0 {
		t.Skip("nothing is in hand") // rapid draws another action
	}
	i := rapid.IntRange(0, len(m.inHand)-1).Draw(t, "from")
	some := slices.Clone(m.inHand[i:min(i+3, len(m.inHand))])
	m.returnToLog(some)
	m.inHand = slices.Delete(m.inHand, i, i+len(some))
	m.back = append(m.back, some...)
}

// readBack reads some events again that were put back. One may have been held meanwhile.
func (m *model) readBack(t *rapid.T) {
	if len(m.back) == 0 {
		t.Skip("nothing was put back") // rapid draws another action
	}
	n := rapid.IntRange(1, len(m.back)).Draw(t, "events")
	some := slices.Sorted(slices.Values(m.back[:n]))
	m.back = m.back[n:]
	if rapid.IntRange(0, 3).Draw(t, "held") == 0 {
		m.acked[some[0]]++
		m.markDone(some[:1])
	}
	m.inHand = append(m.inHand, seqsOf(m.readAgain(eventsOf(some), nil))...)
}

// record stores the state in the form in which it is read back.
func (m *model) record(t *rapid.T) {
	before := m.state.high
	m.state = m.progress.state()
	if m.state.high < before {
		t.Fatalf("the recorded high decreased from %d to %d", before, m.state.high)
	}
	m.state.pending, m.state.open = readBack(t, m.state.pending), readBack(t, m.state.open)
}

// readBack returns a set as the next leader reads it.
func readBack(t *rapid.T, set seqset.Set) seqset.Set {
	text := "{" // the form in which PostgreSQL prints the result of String
	for i, r := range set {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf("[%d,%d)", r.Lo, r.Hi+1)
	}
	read, err := seqset.Parse(text + "}")
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// crash begins anew from the recorded state.
func (m *model) crash(*rapid.T) {
	m.crashes++
	m.inHand, m.back = nil, nil
	m.resume()
	var lost []int64
	for seq := range m.lossy {
		if m.acked[seq] == 0 && !m.owes(m.state, seq) {
			lost = append(lost, seq)
		}
	}
	m.addLost(seqset.Of(lost)) // the comparison of the streams finds them again
}

// resume begins a term from the recorded state.
func (m *model) resume() {
	m.progress = resumeWithin(m.state, limits{pending: 1, backlog: 1})
}

// lose begins anew, and finds that the broker has lost some events that were recorded as published.
func (m *model) lose(t *rapid.T) {
	m.crash(t)
	m.loseBeside(t)
}

// loseBeside finds that the broker has lost some events that were recorded as published, in the midst of
// a term.
func (m *model) loseBeside(t *rapid.T) {
	seen, _ := strconv.Atoi(cmp.Or(m.state.to, m.state.snap))
	var lost []int64
	for seq := range m.acked {
		if m.acked[seq] > 0 && seq <= m.state.high && m.visibleAt[seq] <= seen && !m.owes(m.state, seq) {
			lost = append(lost, seq)
		}
	}
	if len(lost) == 0 {
		t.Skip("nothing can be lost") // rapid draws another action
	}
	slices.Sort(lost)
	lost = lost[:rapid.IntRange(1, len(lost)).Draw(t, "lost")]
	for _, seq := range lost {
		m.acked[seq] = 0
		m.lossy[seq] = true
	}
	m.addLost(seqset.Of(lost))
}

// owes reports whether a state says of an event that was visible in time that it must be published.
func (m *model) owes(s state, seq int64) bool {
	has := func(set seqset.Set) bool {
		return slices.ContainsFunc(set, func(r seqset.Span) bool { return r.Lo <= seq && seq <= r.Hi })
	}
	switch {
	case s.isListed():
		return seq > s.passed && has(s.pending) || has(s.open)
	case s.to != "" && seq > s.passed && slices.Contains(m.became(s.high, s.snap, s.to), seq):
		return true
	}
	return has(s.pending)
}

// check is what must hold after every step.
func (m *model) check(t *rapid.T) {
	now := m.progress.state()
	for _, e := range m.page {
		if !e.done && !slices.Contains(m.inHand, e.seq) && !slices.Contains(m.back, e.seq) {
			t.Fatalf("seq %d is not in hand, and counts as not acknowledged: the page never becomes shorter", e.seq)
		}
	}
	since, _ := strconv.Atoi(cmp.Or(now.to, now.snap))
	for seq, at := range m.visibleAt {
		isPending := m.owes(now, seq)
		hidden := slices.Contains(m.lost.AppendTo(nil), seq) // the positions of the streams do not move, so that the next leader finds it again
		if seq <= now.high && at <= since && m.acked[seq] == 0 && !isPending && !hidden {
			t.Fatalf("seq %d is visible in the snapshot, not above high %d, not pending and never published", seq, now.high)
		}
		if isPending && seq > now.high {
			t.Fatalf("seq %d is pending and above high %d: it would be read twice", seq, now.high)
		}
		if now.to != "" {
			m.caughtUp++
		}
		if m.crashes == 0 && m.acked[seq] > 1 && !m.lossy[seq] {
			t.Fatalf("seq %d was published %d times without a crash", seq, m.acked[seq])
		}
	}
}

func TestProgressMeansWhatItRecords(t *testing.T) {
	caughtUp := 0
	defer func() {
		if caughtUp == 0 {
			t.Error("inconclusive: no relay had to catch up")
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		defer func() { caughtUp += m.caughtUp }()
		if rapid.Bool().Draw(t, "behind") {
			m.fallBehind(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": m.take, "end": m.end, "pass": m.pass, "pass again": m.pass, "ack": m.ack, "ack again": m.ack,
			"record": m.record, "crash": m.crash, "lose": m.lose, "lose beside": m.loseBeside, "put back": m.putBack, "read back": m.readBack, "": m.check,
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
		if s := m.progress.state(); len(s.pending) > 0 || s.to != "" {
			t.Fatalf("all is published, and %s is pending, to %q", s.pending, s.to)
		}
	})
}

func TestProgressKeepsPendingShort(t *testing.T) {
	p := resume(state{snap: "0"})
	var page []broker.Event
	for seq := int64(1); seq <= 10_000; seq++ {
		page = append(page, broker.Event{Seq: seq})
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

func eventsOf(seqs []int64) []broker.Event {
	events := make([]broker.Event, len(seqs))
	for i, seq := range seqs {
		events[i].Seq = seq
	}
	return events
}

func seqsOf(events []broker.Event) []int64 {
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
	read := func(seqs ...int64) (events []broker.Event) {
		for _, seq := range seqs {
			events = append(events, broker.Event{Seq: seq})
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
	var page, late []broker.Event
	for seq := int64(2); seq <= 2*maxPending; seq += 2 {
		page = append(page, broker.Event{Seq: seq})
		late = append(late, broker.Event{Seq: seq - 1})
	}
	const last = 2*maxPending + 1
	p.readPage(append(page, broker.Event{Seq: last}))
	p.markDone([]int64{last})
	if s := p.state(); s.high != last || s.pending.Size() != maxPending {
		t.Fatalf("high %d with %d pending, want %d with %d", s.high, s.pending.Size(), last, maxPending)
	}
	p.readLate(late)
	if s := p.state(); s.high != last || s.pending.Size() != 2*maxPending {
		t.Errorf("after late rows: high %d with %d pending, want %d with %d", s.high, s.pending.Size(), last, 2*maxPending)
	}
}

// An event that was put back, and is read again, does not lower high either.
func TestAnEventThatIsReadAgainDoesNotLowerHigh(t *testing.T) {
	t.Parallel()
	p := resume(state{})
	p.readPage([]broker.Event{{Seq: 1}, {Seq: 2}, {Seq: 3}})
	p.returnToLog([]int64{2, 3})
	if s := p.state(); s.high != 3 || s.pending.String() != "{[1,3]}" {
		t.Fatalf("high %d, pending %s, want 3, {[1,3]}", s.high, s.pending)
	}
	p.readAgain([]broker.Event{{Seq: 2}, {Seq: 3}}, nil)
	if s := p.state(); s.high != 3 || s.pending.String() != "{[1,3]}" {
		t.Errorf("after it was read again: high %d, pending %s, want 3, {[1,3]}", s.high, s.pending)
	}
}

// An event that the broker lost is read again while events before it are not acknowledged yet.
func TestAnEventThatWasLostIsInThePageOnce(t *testing.T) {
	t.Parallel()
	p := resume(state{})
	p.readPage([]broker.Event{{Seq: 1}, {Seq: 2}, {Seq: 3}})
	p.markDone([]int64{2})
	if s := p.state(); s.high != 2 || s.pending.String() != "{[1,1]}" {
		t.Fatalf("high %d, pending %s, want 2, {[1,1]}", s.high, s.pending)
	}
	p.addLost(seqset.Of([]int64{2}))
	p.passHead(p.nextOwed(1))
	p.readLate([]broker.Event{{Seq: 2}})
	if s := p.state(); s.high != 2 || s.pending.String() != "{[1,2]}" {
		t.Errorf("after it was read again: high %d, pending %s, want 2, {[1,2]}", s.high, s.pending)
	}
	p.markDone([]int64{1, 2, 3})
	if s := p.state(); s.high != 3 || len(s.pending) > 0 || len(p.page) > 0 {
		t.Errorf("all are acknowledged: high %d, pending %s, and %d in the page", s.high, s.pending, len(p.page))
	}
}

// The broker may be found to have lost events while a part of the backlog is read.
func TestLostEventsAreRecordedWhileABacklogIsRead(t *testing.T) {
	t.Parallel()
	m := newMemory(state{high: 10, snap: "0", pending: seqset.Of([]int64{4, 5, 9})})
	head := m.nextOwed(2)
	m.addResults(eventlog.Progress{Lost: []int64{2, 7}}, 1)
	page := m.readBacklogPage(&rows{late: []broker.Event{{Seq: 4}, {Seq: 5}}}, head)
	if got := seqsOf(page.Events); !slices.Equal(got, []int64{4, 5}) {
		t.Errorf("read %v, want 4 and 5", got)
	}
	next, _, _ := m.addResults(eventlog.Progress{Published: []int64{4, 5}}, 1)
	if want := seqset.Of([]int64{2, 7, 9}); !slices.Equal(next.pending, want) {
		t.Errorf("pending %s, want %s", next.pending, want)
	}
}
