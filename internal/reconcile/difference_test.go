package reconcile

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// pages returns a reader of a list, in pages of random sizes.
func pages[T any](t *rapid.T, list []T, name string) reader[T] {
	return func(context.Context) ([]T, error) {
		n := min(len(list), rapid.IntRange(1, 5).Draw(t, name))
		page := list[:n]
		list = list[n:]
		return page, nil
	}
}

// Exactly the events that a stream lacks are found, whatever the order of the stream's messages,
// even if it has some events twice and has messages of other services. An event is out of order if
// the stream has a later event of its key.
func TestDifference(t *testing.T) { rapid.Check(t, findsTheDifference) }

func findsTheDifference(t *rapid.T) {
	first := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	state := broker.StreamState{First: rapid.SampledFrom([]uint64{1, 8}).Draw(t, "first"), FirstTime: first, Subjects: []string{"a.*"}, Verdict: broker.Intact}
	if rapid.Bool().Draw(t, "recreated") { // the new stream never had the events that the old stream dropped
		state.Verdict = broker.Recreated
	}
	state.Last.Created = first.Add(rapid.SampledFrom([]time.Duration{0, clockSkew, 2 * time.Hour}).Draw(t, "created"))
	oldest := first.Add(3 * time.Hour) // when the first event that the stream has was logged
	state.Replaces, state.Transforms = rapid.Bool().Draw(t, "replaces"), rapid.Bool().Draw(t, "transforms")
	newest := map[string]time.Time{} // when the last message of each subject was stored
	drawStored := func(m broker.StoredMessage) broker.StoredMessage {
		m.Subject = rapid.SampledFrom([]string{"a.b", "a.c", "b.c"}).Draw(t, "stored subject")
		m.StoredAt = first.Add(rapid.SampledFrom([]time.Duration{0, time.Hour - clockSkew - 1, time.Hour - clockSkew/2, 2 * time.Hour}).Draw(t, "stored at"))
		if m.StoredAt.After(newest[m.Subject]) {
			newest[m.Subject] = m.StoredAt
		}
		return m
	}
	compared, unknown := 0, 0
	var entries []eventlog.HistoryEntry
	var stream []broker.StoredMessage
	want := map[string][]int64{}
	last := map[string]int64{} // the last event of each key in the stream
	for seq := range int64(rapid.IntRange(0, 30).Draw(t, "events")) {
		e := eventlog.HistoryEntry{
			Published: rapid.IntRange(0, 5).Draw(t, "published") > 0,
			Seq:       seq + 1, Source: "/shop", ID: fmt.Sprint("e", seq), LoggedAt: first.Add(time.Hour),
			Subject: rapid.SampledFrom([]string{"a.b", "a.c", "b.c"}).Draw(t, "subject"),
			Key:     rapid.SampledFrom([]string{"", "k1", "k2"}).Draw(t, "key"),
		}
		if rapid.Bool().Draw(t, "old") {
			e.LoggedAt = first.Add(clockSkew / 2)
		}
		entries = append(entries, e)
		if copies := rapid.IntRange(0, 2).Draw(t, "copies"); copies > 0 {
			for range copies {
				stream = append(stream, drawStored(broker.StoredMessage{Source: e.Source, ID: e.ID}))
			}
			if e.Subject != "b.c" {
				last[e.Key] = e.Seq
				if e.LoggedAt.Before(oldest) {
					oldest = e.LoggedAt
				}
			}
		}
		if rapid.Bool().Draw(t, "foreign") {
			stream = append(stream, drawStored(broker.StoredMessage{Source: "/other", ID: e.ID}), drawStored(broker.StoredMessage{}))
		}
	}
	for _, e := range entries {
		there := slices.ContainsFunc(stream, func(m broker.StoredMessage) bool { return m.Source == e.Source && m.ID == e.ID })
		certain := state.First == 1 || state.Verdict == broker.Recreated || e.LoggedAt.After(first.Add(clockSkew))
		if state.Replaces && !there && (state.Transforms || !newest[e.Subject].Before(e.LoggedAt.Add(-clockSkew))) { // it may be replaced or lost
			certain = false
		}
		if state.Verdict == broker.Intact && !there && e.LoggedAt.Before(state.Last.Created) && e.LoggedAt.Before(oldest) { // it may be in an earlier stream
			certain = false
		}
		switch {
		case !e.Published || e.Subject == "b.c":
		case certain:
			compared++
		default:
			unknown++
		}
		switch {
		case there || !certain || !e.Published || e.Subject == "b.c":
		case e.Key != "" && last[e.Key] > e.Seq:
			want["late"] = append(want["late"], e.Seq)
		default:
			want["missing"] = append(want["missing"], e.Seq)
		}
	}
	d := newDifference(state, []string{"/shop"})
	missing, late, err := d.run(t.Context(), pages(t, entries, "log page"), pages(t, rapid.Permutation(stream).Draw(t, "order"), "stream page"), func() {})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(missing, want["missing"]) || !slices.Equal(late, want["late"]) {
		t.Errorf("missing %v, late %v, want %v and %v", missing, late, want["missing"], want["late"])
	}
	if d.compared != compared || d.unknown != unknown {
		t.Errorf("%d compared, %d unknown, want %d and %d", d.compared, d.unknown, compared, unknown)
	}
}

// An event that was logged before a stream was created is not missing in it: an earlier stream of its
// subject may have it. That does not hold if the stream has an event that was logged no later.
func TestBeforeTheStream(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, tt := range []struct {
		name    string
		logged  time.Duration // from the creation of the stream
		there   bool          // whether the stream has an event that was logged with it
		missing bool
	}{
		{"before", -time.Second, false, false},
		{"before, and the stream has another one of then", -time.Second, true, true},
		{"after", time.Second, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			state := broker.StreamState{First: 1, Subjects: []string{"a.*"}, Verdict: broker.Intact}
			state.Last.Created = created
			event := eventlog.HistoryEntry{Published: true, Source: "/shop", LoggedAt: created.Add(tt.logged), Subject: "a.b"}
			lacked, has := event, event
			lacked.Seq, lacked.ID, has.Seq, has.ID = 1, "lacked", 2, "there"
			entries := []eventlog.HistoryEntry{lacked}
			var stream []broker.StoredMessage
			if tt.there {
				entries, stream = append(entries, has), []broker.StoredMessage{{Source: "/shop", ID: "there", Subject: "a.b", StoredAt: created}}
			}
			d := newDifference(state, []string{"/shop"})
			d.addEntries(entries)
			d.addStored(stream)
			if missing, late := d.missing(); len(late) != 0 || (len(missing) == 1) != tt.missing {
				t.Errorf("missing %v, late %v; want it missing: %t", missing, late, tt.missing)
			}
		})
	}
}

// A stream keeps one message of each subject, and lacks an event. The event is missing only if no message
// of its subject was stored later.
func TestReplacedOrMissing(t *testing.T) {
	t.Parallel()
	logged := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	stored := func(subject string, at time.Duration) []broker.StoredMessage {
		return []broker.StoredMessage{{Source: "/other", ID: "m", Subject: subject, StoredAt: logged.Add(at)}}
	}
	for _, tt := range []struct {
		name       string
		transforms bool
		messages   []broker.StoredMessage
		missing    bool
	}{
		{"no message", false, nil, true},
		{"a later message", false, stored("a.b", time.Hour), false},
		{"a later message by another clock", false, stored("a.b", -clockSkew/2), false},
		{"an earlier message", false, stored("a.b", -2*clockSkew), true},
		{"a later message of another subject", false, stored("a.c", time.Hour), true},
		{"a later message of another subject, which the stream changed", true, stored("a.c", time.Hour), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDifference(broker.StreamState{First: 1, Subjects: []string{"a.*"}, Replaces: true, Transforms: tt.transforms}, []string{"/shop"})
			d.addEntries([]eventlog.HistoryEntry{{Published: true, Seq: 7, Source: "/shop", ID: "a", Subject: "a.b", LoggedAt: logged}})
			d.addStored(tt.messages)
			if missing, _ := d.missing(); (len(missing) > 0) != tt.missing || (d.unknown > 0) == tt.missing || d.compared+d.unknown != 1 {
				t.Errorf("missing %v, %d compared, %d unknown", missing, d.compared, d.unknown)
			}
		})
	}
}

// If log and stream have nearly the same order, the comparison keeps few events in memory.
func TestDifferenceRemembersLittle(t *testing.T) {
	const n = 20_000
	var entries []eventlog.HistoryEntry
	var stream []broker.StoredMessage
	for i := range n {
		id := fmt.Sprint(i)
		entries = append(entries, eventlog.HistoryEntry{Published: true, Seq: int64(i + 1), Source: "/shop", ID: id, Subject: "a"})
		stream = append(stream, broker.StoredMessage{Source: "/shop", ID: id}, broker.StoredMessage{Source: "/other", ID: id}, broker.StoredMessage{})
	}
	inPages := func(size int) func(total int) (from, to int) {
		at := 0
		return func(total int) (from, to int) {
			from, at = at, min(at+size, total)
			return from, at
		}
	}
	logPage, streamPage := inPages(500), inPages(2100)
	d, most := newDifference(broker.StreamState{First: 1, Subjects: []string{"a"}}, []string{"/shop"}), 0
	_, _, err := d.run(t.Context(),
		func(context.Context) ([]eventlog.HistoryEntry, error) {
			from, to := logPage(n)
			return entries[from:to], nil
		},
		func(context.Context) ([]broker.StoredMessage, error) {
			from, to := streamPage(len(stream))
			return stream[from:to], nil
		},
		func() { most = max(most, len(d.log)+len(d.stream)) })
	if err != nil {
		t.Fatal(err)
	}
	if most > 1500 {
		t.Errorf("%d events were remembered at once, of %d in pages of 500 and 700", most, n)
	}
}
