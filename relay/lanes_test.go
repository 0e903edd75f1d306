package relay

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom"
)

// Whatever happens to single publishes, the events of a key are sent one at a
// time and are first acknowledged in their order, and every event is sent.
func TestLanesKeepTheOrderOfEachKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLanes()
		now := time.Unix(0, 0)
		var seq int64
		inFlight := map[int64]string{}
		added, acked := map[string][]int64{}, map[string][]int64{}

		settle := func(t *rapid.T, err error) {
			if len(inFlight) == 0 {
				t.Skip("nothing is in flight")
			}
			seqs := make([]int64, 0, len(inFlight))
			for s := range inFlight {
				seqs = append(seqs, s)
			}
			slices.Sort(seqs)
			s := rapid.SampledFrom(seqs).Draw(t, "event")
			key := inFlight[s]
			delete(inFlight, s)
			if err != nil {
				l.failed(s, now, postroom.Backoff{time.Second})
				return
			}
			l.done(s)
			acked[key] = append(acked[key], s)
		}
		send := func(t *rapid.T) {
			for _, ev := range l.next(rapid.IntRange(1, 5).Draw(t, "window"), now) {
				for other, key := range inFlight {
					if ev.Key != "" && key == ev.Key {
						t.Fatalf("%d was sent while %d of the same key is in flight", ev.Seq, other)
					}
				}
				inFlight[ev.Seq] = ev.Key
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				var page []postroom.Logged
				for range rapid.IntRange(1, 6).Draw(t, "events") {
					seq++
					key := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key")
					page = append(page, postroom.Logged{Seq: seq, Event: postroom.Event{Key: key}})
					added[key] = append(added[key], seq)
				}
				l.add(page)
			},
			"send": send,
			"ack":  func(t *rapid.T) { settle(t, nil) },
			"fail": func(t *rapid.T) { settle(t, errors.New("no answer")) },
			"wait": func(*rapid.T) { now = now.Add(500 * time.Millisecond) },
			"": func(t *rapid.T) {
				if l.sent != len(inFlight) {
					t.Fatalf("lanes count %d in flight, and there are %d", l.sent, len(inFlight))
				}
			},
		})

		for l.size() > 0 {
			now = now.Add(2 * time.Second)
			send(t)
			for len(inFlight) > 0 {
				settle(t, nil)
			}
		}
		for _, key := range []string{"a", "b"} {
			if !slices.Equal(acked[key], added[key]) {
				t.Errorf("key %s was acknowledged as %v, added as %v", key, acked[key], added[key])
			}
		}
		if len(acked[""]) != len(added[""]) {
			t.Errorf("%d events without a key were acknowledged, %d added", len(acked[""]), len(added[""]))
		}
		if len(l.waiting) > 0 || len(l.retries) > 0 {
			t.Errorf("all is acknowledged, and the lanes still hold %d keys and %d retries", len(l.waiting), len(l.retries))
		}
	})
}

func TestLanesDoNotLetOneFailingKeyHoldUpOthers(t *testing.T) {
	l := newLanes()
	now := time.Unix(0, 0)
	page := []postroom.Logged{{Seq: 1, Event: postroom.Event{Key: "bad"}}, {Seq: 2, Event: postroom.Event{Key: "bad"}}}
	for seq := int64(3); seq <= 50; seq++ {
		page = append(page, postroom.Logged{Seq: seq, Event: postroom.Event{Key: fmt.Sprint("good ", seq)}})
	}
	l.add(page)
	for _, ev := range l.next(100, now) {
		if ev.Seq == 1 {
			l.failed(1, now, postroom.Backoff{time.Hour})
		} else {
			l.done(ev.Seq)
		}
	}
	if l.size() != 2 {
		t.Errorf("%d events are left, want the failing one and the one behind it", l.size())
	}
	if batch := l.next(100, now); len(batch) != 0 {
		t.Errorf("sent %d events before the failing one is due", len(batch))
	}
	if at, ok := l.nextRetry(); !ok || at.Before(now.Add(time.Hour)) {
		t.Errorf("next retry at %s, %t; want in an hour", at, ok)
	}
}

func TestLanesTakeAnEventOnce(t *testing.T) {
	l := newLanes()
	now := time.Unix(0, 0)
	ev := postroom.Logged{Seq: 1, Event: postroom.Event{Key: "k", Data: make([]byte, 10)}}
	l.add([]postroom.Logged{ev, ev, {Seq: 2, Event: postroom.Event{Key: "k"}}})
	for range 2 {
		for _, sent := range l.next(10, now) {
			l.add([]postroom.Logged{ev}) // again, while the first is on its way or done
			l.done(sent.Seq)
		}
	}
	for _, sent := range l.next(10, now) {
		l.done(sent.Seq)
	}
	if l.size() != 0 || l.sent != 0 || l.bytes != 0 || len(l.waiting) != 0 {
		t.Errorf("%d events, %d in flight, %d bytes, %d keys are left, want none", l.size(), l.sent, l.bytes, len(l.waiting))
	}
}
