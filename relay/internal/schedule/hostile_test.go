package schedule

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/postroom/postroom/relay/broker"
)

// A hot key whose events go to the table held does not keep the events of another hot key in the log:
// they are read again as soon as there is room.
func TestAHeldHotKeyDoesNotStopAnother(t *testing.T) {
	t.Parallel()
	for range 20 { // the keys are asked for in random order
		const limit = 100
		l, now := New(limit, false), time.Unix(1000, 0)
		l.mayPutBack = limit
		for seq := int64(1); seq <= 80; seq++ {
			key := "bad"
			if seq%2 == 0 {
				key = "good"
			}
			l.Add([]broker.Event{keyed(seq, key)})
		}
		l.TakePutBack()
		for first := true; l.Size() > 0; first = false {
			for _, e := range l.nextEntries(10, now) {
				if first && e.Key == "bad" {
					l.Failed(e, broker.Outcome{Class: broker.Permanent, Err: errors.New("no")}, now)
					continue
				}
				l.Done(e, "S", now)
			}
		}
		if len(l.Ask()) == 0 {
			t.Fatal("nothing is in memory, and no event of the other key is read again")
		}
	}
}

// However many events may be read, new ones are read as long as none is put back.
func TestNoLimitIsNoFullList(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 3, 4, 2000, math.MaxInt / 2, math.MaxInt} {
		if New(limit, false).IsPutBackFull() {
			t.Errorf("limit %d: nothing is put back, and no new events are read", limit)
		}
	}
}

// An event that became visible late is not parked behind held events that come after it: these wait for
// it, and it would wait for them. It goes to the table held too.
func TestALateEventIsNotParkedBehindLaterOnes(t *testing.T) {
	t.Parallel()
	l, now := New(2000, false), time.Unix(1000, 0)
	l.Add([]broker.Event{keyed(1, "k"), keyed(2, "k")})
	l.Failed(l.nextEntries(1, now)[0], broker.Outcome{Class: broker.Permanent, Err: errors.New("no")}, now)
	l.TakeHeld(1)
	l.SetRecorded(1)
	l.Add([]broker.Event{keyed(9, "k")}) // it is on its way while the others are read
	one, two := keyed(1, "k"), keyed(2, "k")
	one.Held, two.Held, two.LastHeld = true, true, true
	l.Add([]broker.Event{one, two, keyed(10, "k"), keyed(7, "k")})
	held, _ := l.TakeHeld(2)
	var seqs []int64
	for _, d := range held {
		seqs = append(seqs, d.Seq)
	}
	if !slices.Equal(seqs, []int64{9, 10, 7}) {
		t.Errorf("events %v go to the table held, want the one that was on its way, and then the late one behind what was parked", seqs)
	}
}
