package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

func TestPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := 4
		three := func(context.Context) ([]int, error) {
			if left--; left == 0 {
				return nil, nil
			}
			return make([]int, 500), nil
		}
		next, began := rateLimited(three, 1000), time.Now()
		for n := 1; n <= 3; n++ {
			page, err := next(t.Context())
			if err != nil || len(page) != 500 || time.Since(began) != time.Duration(n)*500*time.Millisecond {
				t.Errorf("page %d: %d, %v after %s", n, len(page), err, time.Since(began))
			}
		}
		if page, err := next(t.Context()); len(page) > 0 || err != nil || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("the end: %d, %v after %s", len(page), err, time.Since(began))
		}

		left = 4
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		cancel(why)
		if _, err := rateLimited(three, 1)(ctx); !errors.Is(err, why) {
			t.Errorf("read on after the end of the context: %v", err)
		}
	})
}

// paper is a log without servers, and a stream that has all of its events.
type paper struct {
	eventlog.History
	broker.Publisher

	pages, size int
	says        map[string]broker.StreamState // the states of faulty streams
	digests     map[uint64][]byte             // of messages, by sequence
	lookedAt    []uint64                      // the sequences of the messages that were read in full
	scheduled   int                           // so many first events were scheduled for a time a day after all events were written
}

func (p *paper) Positions(context.Context) ([]broker.StreamPosition, error) {
	return []broker.StreamPosition{{Stream: "S", Seq: 1}}, nil
}

func (p *paper) Sources(context.Context) ([]string, error) { return []string{"/shop"}, nil }

func (p *paper) Entries(context.Context, eventlog.Checkpoint, time.Time, bool) (func(context.Context) ([]eventlog.HistoryEntry, error), error) {
	read := 0
	return func(context.Context) (page []eventlog.HistoryEntry, err error) {
		if read == p.pages {
			return nil, nil
		}
		for i := range p.size {
			seq := int64(read*p.size + i + 1)
			e := eventlog.HistoryEntry{Published: true, Seq: seq, Source: "/shop", ID: strconv.FormatInt(seq, 10), Subject: "a", CreatedAt: time.Now(), LoggedAt: time.Now()}
			if seq <= int64(p.scheduled) {
				e.LoggedAt = e.LoggedAt.AddDate(0, 0, 1)
			}
			page = append(page, e)
		}
		read++
		return page, nil
	}, nil
}

func (p *paper) Compare(_ context.Context, at broker.StreamPosition) (broker.StreamState, error) {
	if s, ok := p.says[at.Stream]; ok {
		return s, nil
	}
	return broker.StreamState{Verdict: broker.Intact, Limits: true, First: 1, Subjects: []string{"a"}, Last: at}, nil
}

func (p *paper) StoredDigest(_ context.Context, _ string, seq uint64, subject string) ([]byte, error) {
	p.lookedAt = append(p.lookedAt, seq)
	return p.digests[seq], nil
}

func (p *paper) ReadStored(_ context.Context, _ string, span broker.SeqRange) (func(context.Context) ([]broker.StoredMessage, error), func(), error) {
	first := 0
	if span.Since.After(time.Now()) {
		first = p.size * p.pages // messages of scheduled events come last
	}
	read := false
	return func(context.Context) (page []broker.StoredMessage, err error) {
		if read {
			return nil, nil
		}
		read = true
		for n := first; n < p.pages*p.size+p.scheduled; n++ {
			if id := n%(p.pages*p.size) + 1; id > p.scheduled || n >= p.pages*p.size {
				page = append(page, broker.StoredMessage{Seq: uint64(n + 1), Source: "/shop", ID: strconv.Itoa(id)}) //nolint:gosec // small
			}
		}
		return page, nil
	}, func() {}, nil
}

// If the log begins with events that were scheduled and published later, the stream is still read
// from the time when they were written: the events behind them have been stored since then.
func TestReconcileBeginsBeforeScheduledEvents(t *testing.T) {
	t.Parallel()
	p := &paper{pages: 3, size: 1000, scheduled: 1000}
	found, err := Compare(t.Context(), p, p, Config{Rate: 1e9})
	if err != nil || len(found) != 1 || found[0].Messages != 3000 || len(found[0].Missing) > 0 {
		t.Errorf("%d messages read, %d events missing, %v, want 3,000 and none", found[0].Messages, len(found[0].Missing), err)
	}
}

func TestReconcileLeavesTimeToOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate float64
		want time.Duration // how long 5,000 events must take
	}{{0, 200 * time.Millisecond}, {1000, 5 * time.Second}, {1e9, 5 * time.Microsecond}} {
		synctest.Test(t, func(t *testing.T) {
			p := &paper{pages: 5, size: 1000}
			began := time.Now()
			found, err := Compare(t.Context(), p, p, Config{Rate: tt.rate})
			if err != nil || len(found) != 1 || found[0].Compared != 5000 || len(found[0].Missing) > 0 {
				t.Fatalf("rate %g: %+v, %v", tt.rate, found, err)
			}
			if took := time.Since(began); took != tt.want {
				t.Errorf("rate %g: it took %s, want %s", tt.rate, took, tt.want)
			}
		})
	}
	for _, rate := range []float64{-1, math.NaN()} {
		if _, err := Compare(t.Context(), &paper{}, &paper{}, Config{Rate: rate}); err == nil {
			t.Errorf("rate %g is taken", rate)
		}
	}
}

// If some streams cannot be compared, the others still are. Only the requested streams are
// compared, even those of which the log knows nothing.
func TestStreamsThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	p := &paper{pages: 1, size: 3, says: map[string]broker.StreamState{
		"GONE": {Verdict: broker.Missing}, "QUEUE": {Verdict: broker.Intact, First: 1},
	}}
	var told []string
	all, err := Compare(t.Context(), p, p, Config{Streams: []string{"S", "QUEUE", "GONE"}, Progress: func(stream string, _, _ int) {
		if !slices.Contains(told, stream) {
			told = append(told, stream)
		}
	}})
	if err != nil || len(all) != 3 {
		t.Fatalf("Compare = %+v, %v, want three results", all, err)
	}
	for i, want := range []struct {
		stream   string
		err      error
		compared int
	}{{"GONE", broker.ErrNoStream, 0}, {"QUEUE", ErrConsumed, 0}, {"S", nil, 3}} {
		if got := all[i]; got.Stream != want.stream || !errors.Is(got.Err, want.err) || got.Compared != want.compared || len(got.Missing) > 0 {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if !slices.Equal(told, []string{"S"}) {
		t.Errorf("progress was reported of %v, want S", told)
	}
	if all, err := Compare(t.Context(), p, p, Config{Streams: []string{"GONE"}}); err != nil || len(all) != 1 || all[0].Stream != "GONE" {
		t.Errorf("of one stream: %+v, %v", all, err)
	}
}

// An event is a conflict if the stream has messages with its source and id, and none with its content.
// Only messages that were logged at another time than the event are read in full.
func TestConflicts(t *testing.T) {
	t.Parallel()
	at, later := time.Unix(1000, 0), time.Unix(2000, 0)
	own, other := []byte("own content 1234"), []byte("other content 12")
	stored := func(seq uint64, at time.Time) broker.StoredMessage {
		return broker.StoredMessage{Seq: seq, Source: "/shop", ID: "a", LoggedAt: at}
	}
	for _, tt := range []struct {
		name     string
		digest   []byte // of the event
		messages []broker.StoredMessage
		digests  map[uint64][]byte // of the messages
		looks    int
		conflict bool
	}{
		{"its own message", own, []broker.StoredMessage{stored(1, at)}, nil, 0, false},
		{"that of another log", own, []broker.StoredMessage{stored(1, later)}, map[uint64][]byte{1: other}, 1, true},
		{"both", own, []broker.StoredMessage{stored(1, later), stored(2, at)}, nil, 0, false},
		{"it was replayed as new", own, []broker.StoredMessage{stored(1, later)}, map[uint64][]byte{1: own}, 1, false},
		{"that of another log, and it was replayed as new", own, []broker.StoredMessage{stored(1, later), stored(2, later)}, map[uint64][]byte{1: other, 2: own}, 2, false},
		{"the message is gone by now", own, []broker.StoredMessage{stored(1, later)}, nil, 1, false},
		{"an event without a digest", nil, []broker.StoredMessage{stored(1, later)}, map[uint64][]byte{1: other}, 0, false},
	} {
		for _, logFirst := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.name, ", the log first: ", logFirst), func(t *testing.T) {
				t.Parallel()
				d := newDifference(broker.StreamState{First: 1, Subjects: []string{"a"}}, []string{"/shop"})
				d.contents = true
				entries := []eventlog.HistoryEntry{{Published: true, Seq: 7, Source: "/shop", ID: "a", Subject: "a", LoggedAt: at, Digest: tt.digest}}
				if logFirst {
					d.addEntries(entries)
				}
				for _, m := range tt.messages {
					d.addStored([]broker.StoredMessage{m})
				}
				if !logFirst {
					d.addEntries(entries)
				}
				p := &paper{digests: tt.digests}
				seqs, err := (&comparison{streams: p}).conflicting(t.Context(), "S", d.suspects)
				if err != nil || slices.Equal(seqs, []int64{7}) != tt.conflict || len(p.lookedAt) != tt.looks {
					t.Errorf("conflicts %v, %v after %d looks, want %t after %d", seqs, err, len(p.lookedAt), tt.conflict, tt.looks)
				}
				if missing, late := d.missing(); len(missing)+len(late) > 0 {
					t.Errorf("missing %v and %v", missing, late)
				}
			})
		}
	}
}
