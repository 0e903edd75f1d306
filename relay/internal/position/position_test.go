package position

import (
	"slices"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// result is an event with its outcome.
type result struct {
	*schedule.Entry
	broker.Outcome
}

func storedAt(stream, id string, seq uint64) result {
	return result{&schedule.Entry{Message: broker.Message{Event: broker.Event{Event: postroom.Event{Source: "/shop", ID: id}}}}, broker.Outcome{Class: broker.Stored, Stream: stream, Sequence: seq}}
}

// apart returns the event and the outcome of a result.
func apart(o result) (*schedule.Entry, broker.Outcome) { return o.Entry, o.Outcome }

func TestPositionsFollowAcknowledgements(t *testing.T) {
	created := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	at := func(seq uint64, id string) broker.StreamPosition {
		return broker.StreamPosition{Stream: "SHOP", Created: created, Seq: seq, MessageID: id}
	}
	next := func(seq uint64, id string) broker.StreamPosition { // behind the position of known
		return broker.StreamPosition{Stream: "SHOP", Created: created, Seq: 5, MessageID: "/shop#e5", NextSeq: seq, NextID: id}
	}
	known := func(doubted bool) Set {
		return Set{"SHOP": &position{StreamPosition: at(5, "/shop#e5"), unverified: doubted}}
	}
	tests := []struct {
		name       string
		places     Set
		acks       []result
		want       broker.StreamPosition
		moves      bool
		suspicious bool
	}{
		{"the highest of them", known(false), []result{storedAt("SHOP", "e6", 6), storedAt("SHOP", "e8", 8), storedAt("SHOP", "e7", 7)}, at(8, "/shop#e8"), true, false},
		{"a sequence that was used already", known(false), []result{storedAt("SHOP", "x", 5), storedAt("SHOP", "y", 9)}, next(9, "/shop#y"), true, true},
		{"until it is compared", known(true), []result{storedAt("SHOP", "y", 9)}, next(9, "/shop#y"), true, true},
		{"a stream that was not known", Set{}, []result{storedAt("SHOP", "e1", 1)}, broker.StreamPosition{Stream: "SHOP", Seq: 1, MessageID: "/shop#e1"}, true, true},
		{"no sequence", known(false), []result{storedAt("SHOP", "e6", 0)}, at(5, "/shop#e5"), false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var e Acks
			e.AddNew(apart(storedAt("OTHER", "o", 3))) // another stream between
			for _, ack := range tt.acks {
				e.AddNew(apart(ack))
			}
			tt.places["OTHER"] = &position{StreamPosition: broker.StreamPosition{Stream: "OTHER", Seq: 2}}
			moved, suspicious := tt.places.Advance(&e)
			if got := tt.places["SHOP"].StreamPosition; got != tt.want || suspicious != tt.suspicious {
				t.Errorf("place %+v, suspicious %t, want %+v and %t", got, suspicious, tt.want, tt.suspicious)
			}
			if moves := slices.Contains(moved, tt.want); moves != tt.moves {
				t.Errorf("moved %+v", moved)
			}
			if tt.suspicious && tt.want.Created.Equal(created) { // the position does not move until it is compared
				e.AddNew(apart(storedAt("SHOP", "e20", 20)))
				if moved, _ := tt.places.Advance(&e); !slices.Equal(moved, []broker.StreamPosition{next(20, "/shop#e20")}) {
					t.Errorf("the position moved before it was compared, or forgot an acknowledgement: %+v", moved)
				}
			}
			if again, suspicious := tt.places.Advance(&e); len(again) > 0 || suspicious {
				t.Errorf("the same position was reported again: %+v", again)
			}
		})
	}
}

// If a stream still has the message at its position, the position may move again.
func TestPositionMovesAgainIfItsMessageIsThere(t *testing.T) {
	created := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	p := Set{"SHOP": &position{StreamPosition: broker.StreamPosition{Stream: "SHOP", Seq: 5}, unverified: true}}
	want := broker.StreamPosition{Stream: "SHOP", Created: created, Seq: 5}
	if moved := p.Verified("SHOP", created); !slices.Equal(moved, []broker.StreamPosition{want}) || p["SHOP"].unverified {
		t.Errorf("verified %+v, unverified %t, want %+v", moved, p["SHOP"].unverified, want)
	}
	if moved := p.Verified("SHOP", created); len(moved) > 0 {
		t.Errorf("verified %+v, although it was verified before", moved)
	}
	if moved := p.Verified("NONE", created); len(moved) > 0 {
		t.Errorf("verified %+v, of a stream without a position", moved)
	}
}

// While a position waits for its comparison, the stream loses messages and uses their sequences
// again. The position moves to the last acknowledgement before that, so that the next comparison
// finds the loss. Later acknowledgements are not forgotten either.
func TestSequenceUsedTwiceBehindAnUnverifiedPosition(t *testing.T) {
	at := broker.StreamPosition{Stream: "SHOP", Created: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), Seq: 3, MessageID: "/shop#e3"}
	p := Set{}
	p.AddUnverified([]broker.StreamPosition{at})
	acks := func(all ...result) []broker.StreamPosition {
		var e Acks
		for _, ack := range all {
			e.AddNew(apart(ack))
		}
		moved, suspicious := p.Advance(&e)
		if !suspicious {
			t.Errorf("the stream need not be compared after %d acknowledgements", len(all))
		}
		return moved
	}
	want := func(step string, moved []broker.StreamPosition, seq uint64, id string, next uint64, nextID string) {
		t.Helper()
		at.Seq, at.MessageID, at.NextSeq, at.NextID = seq, id, next, nextID
		if got := p.Snapshot(); !slices.Equal(got, []broker.StreamPosition{at}) || len(moved) > 0 && moved[0] != at {
			t.Errorf("%s: the position is %+v, returned as %+v, want %+v", step, got, moved, at)
		}
	}
	want("two events", acks(storedAt("SHOP", "e4", 4), storedAt("SHOP", "e5", 5)), 3, "/shop#e3", 5, "/shop#e5")
	want("a sequence again", acks(storedAt("SHOP", "e6", 4)), 3, "/shop#e3", 5, "/shop#e5")
	want("more events", acks(storedAt("SHOP", "e7", 5), storedAt("SHOP", "e8", 6)), 3, "/shop#e3", 5, "/shop#e5")
	want("compared", p.Verified("SHOP", at.Created), 5, "/shop#e5", 6, "/shop#e8")
	want("one more", acks(storedAt("SHOP", "e9", 7)), 5, "/shop#e5", 7, "/shop#e9")
	want("compared again", p.Verified("SHOP", at.Created), 7, "/shop#e9", 0, "")
}

// While the events that a stream lost are searched, the recorded position stays, so that a relay that
// takes over finds the loss again. After the search, the position is that of the last acknowledgement
// meanwhile. If the stream has used a sequence twice meanwhile, it must be compared with the position.
func TestAcknowledgementsDuringASearch(t *testing.T) {
	created := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	lost := broker.StreamPosition{Stream: "SHOP", Created: created, Seq: 9, MessageID: "/shop#e9", NextSeq: 12, NextID: "/shop#e12"}
	end := broker.StreamPosition{Stream: "SHOP", Created: created.Add(time.Hour), Seq: 1, MessageID: "/shop#e1"}
	p := Set{}
	p.AddUnverified([]broker.StreamPosition{lost})
	p.Lost("SHOP", end)
	acks := func(want broker.StreamPosition, suspicious bool, all ...result) {
		t.Helper()
		var e Acks
		for _, ack := range all {
			e.AddNew(apart(ack))
		}
		moved, suspects := p.Advance(&e)
		if got := p.Snapshot(); !slices.Equal(got, []broker.StreamPosition{want}) || len(moved) > 0 && moved[0] != want || suspects != suspicious {
			t.Errorf("the position is %+v, returned as %+v, suspicious %t, want %+v and %t", got, moved, suspects, want, suspicious)
		}
	}
	lost.NextSeq, lost.NextID = 3, "/shop#e21"
	acks(lost, false, storedAt("SHOP", "e20", 2), storedAt("SHOP", "e21", 3))
	acks(lost, false, storedAt("SHOP", "e22", 3))
	lost.NextSeq, lost.NextID = 4, "/shop#e23"
	acks(lost, false, storedAt("SHOP", "e23", 4))
	end.Seq, end.MessageID, end.NextSeq, end.NextID = 3, "/shop#e21", 4, "/shop#e23"
	if got := p.Repaired("SHOP"); got != end {
		t.Errorf("after the search, the position is %+v, want %+v", got, end)
	}
	end.NextSeq, end.NextID = 5, "/shop#e24"
	acks(end, true, storedAt("SHOP", "e24", 5))
}
