package outbox

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/eventlog"
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
	m.progress = resume(m.state)
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
		t.Skip("nothing is open")
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
	var late, page []eventlog.Logged
	for _, seq := range slices.Sorted(maps.Keys(m.visibleAt)) {
		switch {
		case seq <= m.high && seq > m.floor && m.visibleAt[seq] > since:
			late = append(late, eventlog.Logged{Seq: seq})
		case seq > m.high && len(page) < limit:
			page = append(page, eventlog.Logged{Seq: seq})
		}
	}
	m.snap = strconv.Itoa(m.now)
	if len(m.backlog) > 0 || len(late) > limit {
		m.owe(spansOf(seqsOf(late)))
		var head spans
		head, m.backlog = m.backlog.cut(limit)
		late, page = nil, nil
		for _, r := range head {
			for seq := r.lo; seq <= r.hi; seq++ {
				late = append(late, eventlog.Logged{Seq: seq})
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
		t.Skip("nothing is in hand")
	}
	i := rapid.IntRange(0, len(m.inHand)-1).Draw(t, "event")
	m.acked[m.inHand[i]]++
	m.done([]int64{m.inHand[i]})
	m.inHand = slices.Delete(m.inHand, i, i+1)
}

// record stores the state as it would be read back.
func (m *model) record(t *rapid.T) {
	m.state = m.progress.state()
	pending, err := parseSpans(canonical(m.state.pending))
	if err != nil {
		t.Fatal(err)
	}
	m.state.pending = pending
}

// crash begins anew from what was recorded.
func (m *model) crash(*rapid.T) {
	m.crashes++
	m.inHand = nil
	m.progress = resume(m.state)
}

// check holds after every step.
func (m *model) check(t *rapid.T) {
	now := m.progress.state()
	since, _ := strconv.Atoi(now.snap)
	for seq, at := range m.visibleAt {
		owed := slices.ContainsFunc(now.pending, func(r span) bool { return r.lo <= seq && seq <= r.hi })
		if seq <= now.high && at <= since && m.acked[seq] == 0 && !owed {
			t.Fatalf("seq %d is visible in the snapshot, not above high %d, not pending and never published", seq, now.high)
		}
		if owed && seq > now.high {
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
		for settled := 0; settled < 2; {
			m.pass(t)
			settled++
			for len(m.inHand) > 0 {
				m.ack(t)
				settled = 0
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
	var page []eventlog.Logged
	for seq := int64(1); seq <= 10_000; seq++ {
		page = append(page, eventlog.Logged{Seq: seq})
	}
	p.readPage(page)
	for seq := int64(2); seq <= 10_000; seq += 2 {
		p.done([]int64{seq}) // every other one waits behind its key
	}
	s := p.state()
	if got := s.pending.size(); got > maxPending {
		t.Errorf("pending holds %d seqs, want at most %d", got, maxPending)
	}
	if s.high < maxPending {
		t.Errorf("high is %d: it should be as far as pending reaches", s.high)
	}
}

func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seqs := rapid.SliceOf(rapid.Int64Range(1, 60))
		a, b := set(seqs.Draw(t, "a")), set(seqs.Draw(t, "b"))
		s, u := spansOf(slices.Collect(maps.Keys(a))), spansOf(slices.Collect(maps.Keys(b)))

		both := maps.Clone(a)
		maps.Copy(both, b)
		if got := set(members(s.union(u))); !maps.Equal(got, both) {
			t.Errorf("union of %s and %s is %v", s, u, got)
		}
		n := rapid.Int64Range(0, 70).Draw(t, "n")
		head, rest := s.cut(n)
		if want := min(n, s.size()); head.size() != want {
			t.Errorf("cut(%d) of %s gives %s, want %d seqs", n, s, head, want)
		}
		if got := set(append(members(head), members(rest)...)); !maps.Equal(got, a) {
			t.Errorf("cut(%d) of %s lost something: %s and %s", n, s, head, rest)
		}
		if len(head) > 0 && len(rest) > 0 && head[len(head)-1].hi >= rest[0].lo {
			t.Errorf("cut(%d) of %s: %s is not below %s", n, s, head, rest)
		}
		for seq := range set(members(s.upTo(n))) {
			if seq > n || !a[seq] {
				t.Errorf("upTo(%d) of %s holds %d", n, s, seq)
			}
		}
		if parsed, err := parseSpans(canonical(s)); err != nil || !slices.Equal(parsed, s) {
			t.Errorf("%s reads back as %s, %v", s, parsed, err)
		}
	})
}

func TestParseSpansRefusesWhatIsNoMultirange(t *testing.T) {
	for _, text := range []string{"{[1,2", "{[a,b)}", "{(,5)}", "{[3,3)}", "nonsense"} {
		if s, err := parseSpans(text); err == nil {
			t.Errorf("parseSpans(%q) = %s, want an error", text, s)
		}
	}
}

// canonical is the text that PostgreSQL prints for what String gives it.
func canonical(s spans) string {
	text := "{"
	for i, r := range s {
		if i > 0 {
			text += ","
		}
		text += "[" + strconv.FormatInt(r.lo, 10) + "," + strconv.FormatInt(r.hi+1, 10) + ")"
	}
	return text + "}"
}

func members(s spans) []int64 {
	var seqs []int64
	for _, r := range s {
		for seq := r.lo; seq <= r.hi; seq++ {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

func set(seqs []int64) map[int64]bool {
	m := make(map[int64]bool)
	for _, seq := range seqs {
		m[seq] = true
	}
	return m
}

func seqsOf(events []eventlog.Logged) []int64 {
	seqs := make([]int64, len(events))
	for i, ev := range events {
		seqs[i] = ev.Seq
	}
	return seqs
}

// What became visible late and is acknowledged is recorded, also where an event that was
// read in order before it is not.
func TestALateEventIsRecordedAheadOfItsElders(t *testing.T) {
	t.Parallel()
	p := resume(state{high: 1})
	read := func(seqs ...int64) (events []eventlog.Logged) {
		for _, seq := range seqs {
			events = append(events, eventlog.Logged{Seq: seq})
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
		p.done(step.acked)
		if s := p.state(); s.high != step.high || s.pending.String() != step.pending {
			t.Errorf("after %v: high %d, pending %s, want %d, %s", step.acked, s.high, s.pending, step.high, step.pending)
		}
	}
}
