package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/relay/internal/schedule"
)

func storedAt(stream, id string, seq uint64) result {
	return result{&schedule.Entry{Message: broker.Message{Event: eventlog.Event{Event: postroom.Event{Source: "/shop", ID: id}}}}, broker.Outcome{Stream: stream, Sequence: seq}}
}

func TestPositionsFollowAcknowledgements(t *testing.T) {
	created := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	at := func(seq uint64, id string) eventlog.StreamPosition {
		return eventlog.StreamPosition{Stream: "SHOP", Created: created, Seq: seq, MessageID: id}
	}
	known := func(doubted bool) positions {
		return positions{"SHOP": &position{StreamPosition: at(5, "/shop#e5"), unverified: doubted}}
	}
	tests := []struct {
		name       string
		places     positions
		acks       []result
		want       eventlog.StreamPosition
		moves      bool
		suspicious bool
	}{
		{"the highest of them", known(false), []result{storedAt("SHOP", "e6", 6), storedAt("SHOP", "e8", 8), storedAt("SHOP", "e7", 7)}, at(8, "/shop#e8"), true, false},
		{"a sequence that was used already", known(false), []result{storedAt("SHOP", "x", 5), storedAt("SHOP", "y", 9)}, at(5, "/shop#e5"), false, true},
		{"until it is compared", known(true), []result{storedAt("SHOP", "y", 9)}, at(5, "/shop#e5"), false, true},
		{"a stream that was not known", positions{}, []result{storedAt("SHOP", "e1", 1)}, eventlog.StreamPosition{Stream: "SHOP", Seq: 1, MessageID: "/shop#e1"}, true, true},
		{"no sequence", known(false), []result{storedAt("SHOP", "e6", 0)}, at(5, "/shop#e5"), false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := ackRanges{streams: map[string]*ackRange{}}
			e.addNew(storedAt("OTHER", "o", 3)) // another stream between
			for _, ack := range tt.acks {
				e.addNew(ack)
			}
			tt.places["OTHER"] = &position{StreamPosition: eventlog.StreamPosition{Stream: "OTHER", Seq: 2}}
			moved, suspicious := tt.places.advance(&e)
			if got := tt.places["SHOP"].StreamPosition; got != tt.want || suspicious != tt.suspicious {
				t.Errorf("place %+v, suspicious %t, want %+v and %t", got, suspicious, tt.want, tt.suspicious)
			}
			if moves := slices.Contains(moved, tt.want); moves != tt.moves {
				t.Errorf("moved %+v", moved)
			}
			if tt.suspicious && tt.want.Created.Equal(created) { // the position does not move until it is compared
				e.addNew(storedAt("SHOP", "e20", 20))
				if moved, _ := tt.places.advance(&e); len(moved) > 0 {
					t.Errorf("the position moved before it was compared: %+v", moved)
				}
			}
			if again, suspicious := tt.places.advance(&e); len(again) > 0 || suspicious {
				t.Errorf("the same position was reported again: %+v", again)
			}
		})
	}
}

// If a stream still has the message at its position, the position may move again.
func TestPositionMovesAgainIfItsMessageIsThere(t *testing.T) {
	created := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	p := positions{"SHOP": &position{StreamPosition: eventlog.StreamPosition{Stream: "SHOP", Seq: 5}, unverified: true}}
	want := eventlog.StreamPosition{Stream: "SHOP", Created: created, Seq: 5}
	if moved := p.verified("SHOP", created); !slices.Equal(moved, []eventlog.StreamPosition{want}) || p["SHOP"].unverified {
		t.Errorf("verified %+v, unverified %t, want %+v", moved, p["SHOP"].unverified, want)
	}
	if moved := p.verified("SHOP", created); len(moved) > 0 {
		t.Errorf("verified %+v, although it was verified before", moved)
	}
	if moved := p.verified("NONE", created); len(moved) > 0 {
		t.Errorf("verified %+v, of a stream without a position", moved)
	}
}
