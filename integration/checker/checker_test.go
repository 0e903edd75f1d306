package checker

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

const (
	ledger = "ledger" // an ordered handler
	mail   = "mail"
	vendor = "vendor" // mail calls it
)

// sound is a run in which everything holds and every fault met work. mail cannot handle event
// d of key 1, which an operator released. e stays dead there, f was discarded, and g came late
// to the ledger. j and k were scheduled: j was called off, and k is published before an
// earlier event of its key.
func sound() ([]Record, State) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a, b, c := Event{ID: "a", Key: 1, N: 1}, Event{ID: "b", Key: 1, N: 2}, Event{ID: "c", Key: 2, N: 1}
	d, e, f := Event{ID: "d", Key: 1, N: 3, Poison: mail}, Event{ID: "e", Key: 2, N: 2, Poison: mail}, Event{ID: "f", Key: 2, N: 3, Poison: mail}
	g := Event{ID: "g", Key: 3, N: 1}
	h := Event{ID: "h", Key: 3, N: 2}
	i := Event{ID: "i", Key: 4, N: 1}
	j, k := Event{ID: "j", Key: 4, N: 2, Later: true}, Event{ID: "k", Key: 4, N: 3, Later: true}
	domain := []Event{a, b, c, d, e, f, g, h, i, j, k}
	held := func(e Event, handler, class string) Event { e.Handler, e.Class = handler, class; return e }
	tx := func(id string, phase Phase, events ...Event) Record {
		return Record{At: at, Process: "producer-0", Life: 1, What: Transaction, Phase: phase, ID: id, Events: events}
	}
	history := []Record{
		tx("1", Invoked, a), tx("1", OK, a), tx("2", Invoked, b, c), tx("2", Unknown, b, c), tx("2", Failed, b, c), tx("2", OK, b, c),
		tx("3", Invoked, d, e, f, g, h, i, j, k), tx("3", OK, d, e, f, g, h, i, j, k), tx("4", Failed, Event{ID: "never", Key: 1, N: 4}),
		{At: at, What: Fault, Phase: OK, ID: "1", Shape: "kill relay"},
		{At: at, Process: "producer-0", Life: 1, What: Cancel, Phase: Invoked, Events: []Event{held(j, Outgoing, "")}},
		{At: at, Process: "producer-0", Life: 1, What: Cancel, Phase: OK, Events: []Event{held(j, Outgoing, "")}},
		{At: at, Process: "operator-0", Life: 2, What: Release, Phase: Invoked, Events: []Event{held(d, mail, "error"), held(g, ledger, "late")}},
		{At: at, Process: "operator-0", Life: 2, What: Release, Phase: OK, Events: []Event{held(d, mail, "error"), held(g, ledger, "late")}},
		{At: at, Process: "operator-0", Life: 2, What: Discard, Phase: OK, Events: []Event{held(f, mail, "error")}},
		{At: at, Process: "operator-0", Life: 2, What: Cancel, Phase: Invoked, Events: []Event{held(i, mail, "")}},
		{At: at, Process: "operator-0", Life: 2, What: Cancel, Phase: OK, Events: []Event{held(i, mail, "")}},
		{At: at, Process: "operator-0", Life: 2, What: Reschedule, Phase: OK, Events: []Event{held(c, mail, "error")}},
		{At: at, Process: "operator-0", Life: 2, What: Pause, Phase: OK, Shape: mail},
		{At: at, Process: "relay-0", Life: 3, What: Signals, Phase: OK, Counts: map[string]int64{DuplicateAcks: 1, Goroutines: 10, Resident: 20 << 20}},
		{At: at, Process: "mail-0", Life: 4, What: Signals, Phase: OK, Counts: map[string]int64{InboxDuplicates: 1, Goroutines: 99}},
		{At: at.Add(1), Process: "mail-0", Life: 4, What: Signals, Phase: OK, Counts: map[string]int64{InboxDuplicates: 2, Goroutines: 20}},
	}
	found := State{
		Handlers: []Handler{
			{Name: ledger, Ordered: true, Consumer: "durable-ledger"}, {Name: mail, Consumer: "durable-mail"}, {Name: vendor, Inbox: mail},
		},
		Domain: domain,
		Effects: map[string][]Event{
			ledger: {a, b, c, d, e, f, h, g, k, i},
			mail:   {b, a, c, d, g, h, k},
			vendor: {b, a, c, d, g, h, k},
		},
		Held: []Held{{Event: held(e, mail, "error"), Dead: true, Attempts: 3, Failures: 3, Bytes: 10}},
		Archive: []Held{
			{Event: held(f, mail, "error"), Dead: true, Attempts: 3, Failures: 3, Bytes: 10},
			{Event: held(i, mail, ""), Bytes: 10},
			{Event: held(j, Outgoing, ""), Bytes: 10},
		},
		Marks:   []Mark{{1, 3}, {1, 5}, {2, 5}, {2, 8}},
		Streams: map[string][]Message{}, Replayed: 2,
		Drained: Wait{Took: time.Second}, Lead: Wait{Took: time.Second},
		Sessions: map[string]int{"relay": 2}, Consumers: map[string]int{"durable-ledger": 1, "durable-mail": 1},
		Bounds: Bounds{Sessions: map[string]int{"relay": 2}, Goroutines: 50, Resident: 100 << 20},
	}
	for _, ev := range domain {
		found.Log = append(found.Log, LogEntry{ev.ID, true})
	}
	for i, ev := range []Event{a, b, a, c, d, e, f, h, k, i} { // a was stored twice
		found.Streams["node-0"] = append(found.Streams["node-0"], Message{Event: ev, Seq: uint64(i + 1)})
	}
	found.Streams["node-0"] = append(found.Streams["node-0"], Message{Event: g, Seq: 11, Republished: true})
	found.Streams["node-1"] = slices.Clone(found.Streams["node-0"])
	return history, found
}

func TestSoundRun(t *testing.T) {
	t.Parallel()
	v := Check(sound())
	if !v.OK() {
		t.Errorf("violations %v, missing %v", v.Violations, v.Coverage.Missing())
	}
	c := v.Coverage
	if c.Events != 11 || c.CalledOff != 1 || c.AllFaults() != 1 || c.UnknownCommits != 1 || c.DuplicateAcks != 1 || c.TakeOvers != 1 || c.InboxDuplicates != 2 || c.Dead != 4 || c.Released != 2 || c.Cancelled != 1 || c.Rescheduled != 1 || c.Pauses != 1 {
		t.Errorf("coverage: %+v", c)
	}
}

// without returns a list without some elements.
func without[T any](list []T, is func(T) bool) []T { return slices.DeleteFunc(slices.Clone(list), is) }

// Each violation is planted in a sound run. The checker finds it by its name, and finds
// nothing else.
func TestPlantedViolations(t *testing.T) {
	t.Parallel()
	named := func(id string) func(Event) bool { return func(e Event) bool { return e.ID == id } }
	archived := func(id string) func(Held) bool { return func(h Held) bool { return h.ID == id } }
	ghost := Event{ID: "ghost", Key: 9, N: 1}
	plants := []struct {
		what string
		in   func(history *[]Record, s *State)
		want []Name
	}{
		{"an effect is missing", func(_ *[]Record, s *State) { s.Effects[mail] = without(s.Effects[mail], named("c")) }, []Name{NoLoss}},
		{"a dead event vanished", func(_ *[]Record, s *State) { s.Held = nil }, []Name{NoLoss}},
		{"a discarded event vanished", func(_ *[]Record, s *State) { s.Archive = without(s.Archive, archived("f")) }, []Name{NoLoss}},
		{"a cancelled event vanished", func(_ *[]Record, s *State) { s.Archive = without(s.Archive, archived("i")) }, []Name{NoLoss, DeadLetterComplete}},
		{"an event that was called off vanished", func(_ *[]Record, s *State) { s.Archive = without(s.Archive, archived("j")) }, []Name{NoLoss, DeadLetterComplete, MarkImpliesStored}},
		{"an event that was called off is in the stream", func(_ *[]Record, s *State) {
			s.Streams["node-1"] = append(s.Streams["node-1"], Message{Event: Event{ID: "j", Key: 4, N: 2, Later: true}, Seq: 12})
		}, []Name{DeadLetterComplete}},
		{"an event that was called off took effect", func(_ *[]Record, s *State) {
			s.Effects[ledger] = append(s.Effects[ledger], Event{ID: "j", Key: 4, N: 2})
		}, []Name{DeadLetterComplete}},
		{"a scheduled event is missing", func(_ *[]Record, s *State) { s.Effects[mail] = without(s.Effects[mail], named("k")) }, []Name{NoLoss}},
		{"a cancelled event ran", func(_ *[]Record, s *State) {
			s.Effects[mail] = append(s.Effects[mail], Event{ID: "i", Key: 4, N: 1})
		}, []Name{DeadLetterComplete}},
		{"an event ran, and is not cancelled as an operator was told", func(_ *[]Record, s *State) {
			s.Effects[mail], s.Archive = append(s.Effects[mail], Event{ID: "i", Key: 4, N: 1}), without(s.Archive, archived("i"))
			s.Effects[vendor] = append(s.Effects[vendor], Event{ID: "i", Key: 4, N: 1})
		}, []Name{DeadLetterComplete}},
		{"a committed change is gone", func(_ *[]Record, s *State) {
			s.Domain = without(s.Domain, named("c"))
			s.Log = without(s.Log, func(l LogEntry) bool { return l.ID == "c" })
			for server := range s.Streams {
				s.Streams[server] = without(s.Streams[server], func(m Message) bool { return m.ID == "c" })
			}
			for h := range s.Effects {
				s.Effects[h] = without(s.Effects[h], named("c"))
			}
		}, []Name{NoLoss}},
		{"a change without its event", func(_ *[]Record, s *State) { s.Log = without(s.Log, func(l LogEntry) bool { return l.ID == "c" }) }, []Name{NoLoss}},
		{"an event without its change", func(_ *[]Record, s *State) { s.Log = append(s.Log, LogEntry{"ghost", false}) }, []Name{NoGhost, Drains}},
		{"an event in the log twice", func(_ *[]Record, s *State) { s.Log = append(s.Log, LogEntry{"a", true}) }, []Name{NoGhost}},
		{"what was rolled back is there", func(h *[]Record, _ *State) {
			*h = append([]Record{{What: Transaction, Phase: Failed, Events: []Event{{ID: "a", Key: 1, N: 1}}}}, *h...)
		}, []Name{NoGhost}},
		{"a ghost in the stream", func(_ *[]Record, s *State) {
			s.Streams["node-1"] = append(s.Streams["node-1"], Message{Event: ghost, Seq: 10})
		}, []Name{NoGhost}},
		{"a ghost of an effect", func(_ *[]Record, s *State) { s.Effects[mail] = append(s.Effects[mail], ghost) }, []Name{NoGhost}},
		{"an effect twice", func(_ *[]Record, s *State) { s.Effects[mail] = append(s.Effects[mail], s.Effects[mail][0]) }, []Name{EffectOnce}},
		{"two changes swapped in a stream", func(_ *[]Record, s *State) {
			m := s.Streams["node-1"]
			m[3], m[5] = m[5], m[3]
		}, []Name{KeyOrder}},
		{"two changes swapped at the ordered handler", func(_ *[]Record, s *State) {
			e := s.Effects[ledger]
			e[0], e[1] = e[1], e[0]
		}, []Name{KeyOrder}},
		{"a change out of order that no operator released", func(h *[]Record, _ *State) {
			for i := range *h {
				(*h)[i].Events = without((*h)[i].Events, func(e Event) bool { return e.Class == "late" })
			}
		}, []Name{KeyOrder}},
		{"a republished message that does not say so", func(_ *[]Record, s *State) { s.Streams["node-0"][10].Republished = false }, []Name{KeyOrder}},
		{"a dead event without its payload", func(_ *[]Record, s *State) { s.Held[0].Bytes = 0 }, []Name{DeadLetterComplete}},
		{"a dead event without a failure", func(_ *[]Record, s *State) { s.Held[0].Failures = 0 }, []Name{DeadLetterComplete}},
		{"a dead event without attempts", func(_ *[]Record, s *State) { s.Held[0].Attempts = 0 }, []Name{DeadLetterComplete}},
		{"a dead event that took effect", func(_ *[]Record, s *State) { s.Effects[mail] = append(s.Effects[mail], s.Held[0].Event) }, []Name{DeadLetterComplete}},
		{"a dead event twice", func(_ *[]Record, s *State) { s.Held = append(s.Held, s.Held[0]) }, []Name{DeadLetterComplete}},
		{"a discarded event that took effect", func(_ *[]Record, s *State) {
			s.Effects[mail] = append(s.Effects[mail], s.Archive[0].Event)
		}, []Name{DeadLetterComplete}},
		{"a discarded event without its payload", func(_ *[]Record, s *State) { s.Archive[0].Bytes = 0 }, []Name{DeadLetterComplete}},
		{"poison that took effect by itself", func(h *[]Record, s *State) {
			for i := range *h {
				(*h)[i].Events = without((*h)[i].Events, func(e Event) bool { return e.ID == "d" && e.Handler == mail })
			}
		}, []Name{DeadLetterComplete}},
		{"a replay that has not ended", func(_ *[]Record, s *State) { s.OpenReplays = 1 }, []Name{DeadLetterComplete}},
		{"a replay that is not in the audit", func(_ *[]Record, s *State) { s.Replayed = 1 }, []Name{DeadLetterComplete}},
		{"a published event that one server has not", func(_ *[]Record, s *State) {
			s.Streams["node-1"] = without(s.Streams["node-1"], func(m Message) bool { return m.ID == "h" })
		}, []Name{MarkImpliesStored}},
		{"no stream", func(_ *[]Record, s *State) { s.Streams = nil }, []Name{MarkImpliesStored}},
		{"an old epoch that recorded", func(_ *[]Record, s *State) { s.Marks = append(s.Marks, Mark{1, 8}) }, []Name{Fence}},
		{"a record that went back", func(_ *[]Record, s *State) { s.Marks = append(s.Marks, Mark{2, 7}) }, []Name{Fence}},
		{"no record", func(_ *[]Record, s *State) { s.Marks = nil }, []Name{Fence}},
		{"an event that was never published", func(_ *[]Record, s *State) { s.Log[2].Published = false }, []Name{Drains}},
		{"an event that is still held", func(_ *[]Record, s *State) {
			s.Held = append(s.Held, Held{Event: Event{ID: "a", Key: 1, N: 1, Handler: mail}})
		}, []Name{Drains}},
		{"it stood still", func(_ *[]Record, s *State) { s.Drained.Stuck = []string{"held by mail: 2"} }, []Name{Drains}},
		{"it stood still, and what waits is not lost", func(_ *[]Record, s *State) {
			s.Drained.Stuck = []string{"held by mail: 2"}
			s.Effects[mail] = without(s.Effects[mail], named("c"))
		}, []Name{Drains}},
		{"no relay leads", func(_ *[]Record, s *State) { s.Lead.Stuck = []string{"no relay holds the lease"} }, []Name{NoStuckLease}},
		{"a session too many", func(_ *[]Record, s *State) { s.Sessions["relay"]++ }, []Name{NoLeak}},
		{"a session of a stranger", func(_ *[]Record, s *State) { s.Sessions["who"] = 1 }, []Name{NoLeak}},
		{"a transaction left open", func(_ *[]Record, s *State) { s.Idle = 1 }, []Name{NoLeak}},
		{"a consumer left over", func(_ *[]Record, s *State) { s.Consumers["x"] = 1 }, []Name{NoLeak}},
		{"goroutines left over", func(h *[]Record, _ *State) { (*h)[len(*h)-1].Counts[Goroutines] = 51 }, []Name{NoLeak}},
		{"memory that grew", func(h *[]Record, _ *State) { (*h)[len(*h)-3].Counts[Resident] = 101 << 20 }, []Name{Bounded}},
		{"a call is missing", func(_ *[]Record, s *State) { s.Effects[vendor] = without(s.Effects[vendor], named("c")) }, []Name{NoLoss}},
		{"a call twice", func(_ *[]Record, s *State) { s.Effects[vendor] = append(s.Effects[vendor], s.Effects[vendor][0]) }, []Name{EffectOnce}},
		{"a process that ended by itself", func(_ *[]Record, s *State) { s.Fallen = []string{"relay-0"} }, []Name{Survives}},
		{"a payload in a log", func(_ *[]Record, s *State) { s.Secrets = []string{"relay-0.log:7"} }, []Name{NoSecret}},
	}
	planted := make(map[Name]bool)
	for _, plant := range plants {
		for _, name := range plant.want {
			planted[name] = true
		}
		t.Run(plant.what, func(t *testing.T) {
			t.Parallel()
			history, found := sound()
			plant.in(&history, &found)
			v := Check(history, found)
			names := slices.SortedFunc(maps.Keys(v.Violations), func(a, b Name) int { return slices.Index(Names(), a) - slices.Index(Names(), b) })
			if !slices.Equal(names, plant.want) {
				t.Errorf("violated %v, want %v: %v", names, plant.want, v.Violations)
			}
		})
	}
	for _, name := range Names() {
		if !planted[name] {
			t.Errorf("no violation of %s is planted", name)
		}
	}
}

// If faults did not meet work, the run shows nothing.
func TestInconclusive(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		missing string
		in      func(history *[]Record, s *State)
	}{
		{"faults", func(h *[]Record, _ *State) { *h = without(*h, func(r Record) bool { return r.What == Fault }) }},
		{"unknown commits", func(h *[]Record, _ *State) {
			*h = without(*h, func(r Record) bool { return r.Phase == Unknown || r.Phase == Failed })
		}},
		{"duplicate acknowledgements", func(h *[]Record, _ *State) {
			*h = without(*h, func(r Record) bool { return r.Counts[DuplicateAcks] > 0 })
		}},
		{"duplicates at an inbox", func(h *[]Record, _ *State) {
			*h = without(*h, func(r Record) bool { return r.Counts[InboxDuplicates] > 0 })
		}},
		{"take-overs", func(_ *[]Record, s *State) { s.Marks = s.Marks[:2] }},
	} {
		t.Run(tt.missing, func(t *testing.T) {
			t.Parallel()
			history, found := sound()
			tt.in(&history, &found)
			v := Check(history, found)
			if got := fmt.Sprint(v.Coverage.Missing()); v.OK() || !v.Sound() || got != "["+tt.missing+"]" {
				t.Errorf("OK = %t, sound = %t, missing %s", v.OK(), v.Sound(), got)
			}
		})
	}
	v := Check(nil, State{})
	if len(v.Coverage.Missing()) != 12 || v.OK() {
		t.Errorf("nothing at all: missing %v", v.Coverage.Missing())
	}
}

// The time ran out before all work was done. Then the run does not judge the events that wait,
// however long it took. It still finds violations that no later work can change.
func TestUndecided(t *testing.T) {
	t.Parallel()
	pending := []string{"undecided at mail: 1"}
	history, found := sound()
	found.Drained.Took, found.Lead.Took = time.Hour, time.Hour
	if v := Check(history, found); !v.OK() {
		t.Errorf("it took long: %v", v.Violations)
	}
	for _, tt := range []struct {
		what string
		in   func(s *State)
		want []Name
	}{
		{"an effect is missing", func(s *State) { s.Effects[mail] = without(s.Effects[mail], func(e Event) bool { return e.ID == "c" }) }, nil},
		{"an event is not published", func(s *State) { s.Log[2].Published = false }, nil},
		{"an event is held", func(s *State) { s.Held = append(s.Held, Held{Event: Event{ID: "a", Key: 1, N: 1, Handler: mail}}) }, nil},
		{"a repair is under way", func(s *State) {
			s.Streams["node-1"] = without(s.Streams["node-1"], func(m Message) bool { return m.ID == "h" })
		}, nil},
		{"a replay runs", func(s *State) { s.OpenReplays = 1 }, nil},
		{"processes at work have more sessions", func(s *State) { s.Sessions["relay"]++ }, nil},
		{"an effect twice", func(s *State) { s.Effects[mail] = append(s.Effects[mail], s.Effects[mail][0]) }, []Name{EffectOnce}},
		{"a ghost", func(s *State) { s.Effects[mail] = append(s.Effects[mail], Event{ID: "ghost"}) }, []Name{NoGhost}},
		{"two epochs", func(s *State) { s.Marks = append(s.Marks, Mark{1, 8}) }, []Name{Fence}},
		{"a change without its event", func(s *State) { s.Log = without(s.Log, func(l LogEntry) bool { return l.ID == "c" }) }, []Name{NoLoss}},
	} {
		for name, at := range map[string]func(s *State) *Wait{
			"draining": func(s *State) *Wait { return &s.Drained }, "leading": func(s *State) *Wait { return &s.Lead },
		} {
			history, found := sound()
			at(&found).Pending = pending
			if name == "leading" {
				found.Drained.Pending = pending // without a leader no work is done
			}
			tt.in(&found)
			v := Check(history, found)
			names := slices.Collect(maps.Keys(v.Violations))
			if !slices.Equal(names, tt.want) {
				t.Errorf("%s while %s: violated %v, want %v: %v", tt.what, name, names, tt.want, v.Violations)
			}
			if v.OK() || len(v.Pending) == 0 {
				t.Errorf("%s while %s: OK = %t, pending %v", tt.what, name, v.OK(), v.Pending)
			}
		}
	}
}
