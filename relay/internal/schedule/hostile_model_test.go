package schedule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/relay/broker"
)

// answers is a heldTable whose broker answers later, in any order, with any class, and has republishes.
type answers struct {
	*heldTable

	sent      [][]*Entry
	copies    map[int64]int
	republish int64
	calm      bool
}

// record leaves out events of republishes, which are held without a key.
func (a *answers) record(some int) {
	a.heldTable.record(some)
	maps.DeleteFunc(a.rows, func(_ int64, key string) bool { return key == "" })
}

func (a *answers) send(t *rapid.T, n int) {
	if batch := a.nextEntries(n, a.now); len(batch) > 0 {
		a.sent = append(a.sent, batch)
	}
	_, _, _ = a.TakeGone()
}

func (a *answers) store(e *Entry) {
	if e.IsRepublished() {
		return
	}
	if a.copies[e.Seq]++; a.copies[e.Seq] == 1 {
		a.stored[e.Key] = append(a.stored[e.Key], e.Seq)
	}
}

// answer answers the events of one batch. The events of a key are stored in their order, up to the first
// that is not.
func (a *answers) answer(t *rapid.T) {
	if len(a.sent) == 0 {
		return
	}
	i := rapid.IntRange(0, len(a.sent)-1).Draw(t, "batch")
	batch := a.sent[i]
	a.sent = slices.Delete(a.sent, i, i+1)
	failed := map[string]bool{}
	type reply struct {
		e *Entry
		o broker.Outcome
	}
	var replies []reply
	for _, e := range batch {
		o := broker.Outcome{Class: broker.Stored, Stream: "S"}
		switch n := rapid.IntRange(0, 24).Draw(t, "outcome"); {
		case e.OrderKey() != "" && failed[e.OrderKey()]:
			o.Class = broker.BlockedByKey
		case a.calm || n > 7:
		case n == 0:
			o.Class = broker.Permanent
		case n == 1:
			o.Class = broker.Refused
		case n == 2:
			o.Class = broker.Unavailable
		case n == 3:
			o.Class, o.Stream = broker.Unroutable, ""
		case n < 6:
			o.Class = broker.Unknown
			if n == 5 {
				a.store(e)
			}
		}
		if o.Class == broker.Stored {
			a.store(e)
		} else {
			o.Err = errors.New("no")
			failed[e.OrderKey()] = true
		}
		replies = append(replies, reply{e, o})
	}
	// Of a key, the events that were stored are reported first, in their order, then the blocked ones, the
	// last first, and then the one that failed: see RunAtomic of broker.Publisher.
	byKey := map[string][]reply{}
	var keys []string
	for _, r := range replies {
		key := r.e.OrderKey()
		if key == "" {
			key = fmt.Sprint(r.e.Seq, r.e.RepublishID)
		}
		if _, ok := byKey[key]; !ok {
			keys = append(keys, key)
		}
		byKey[key] = append(byKey[key], r)
	}
	var ordered []reply
	for _, key := range rapid.Permutation(keys).Draw(t, "order") {
		all := byKey[key]
		if n := slices.IndexFunc(all, func(r reply) bool { return r.o.Class != broker.Stored }); n >= 0 {
			slices.Reverse(all[n:])
		}
		ordered = append(ordered, all...)
	}
	for _, r := range ordered {
		a.now = a.now.Add(time.Millisecond)
		e, o := r.e, r.o
		switch {
		case o.Class == broker.BlockedByKey:
			a.ReturnBlocked(e)
		case o.Class != broker.Stored:
			a.Failed(e, o, a.now)
		case e.IsRepublished():
			a.Done(e, o.Stream, a.now)
		default:
			a.done, a.gone[e.Seq] = append(a.done, e.Seq), true
			a.Done(e, o.Stream, a.now)
		}
	}
}

// repeat adds events of a republish: some that were published.
func (a *answers) repeat(t *rapid.T) {
	a.republish++
	var events []broker.Event
	for _, key := range []string{"a", "b"} {
		for _, seq := range a.stored[key] {
			if a.gone[seq] && a.rows[seq] == "" && len(events) < 3 && rapid.Bool().Draw(t, "again") {
				ev := keyed(seq, key)
				ev.RepublishID = a.republish
				events = append(events, ev)
			}
		}
	}
	a.Add(events)
}

// Whatever the broker answers, and when: the first copies of a key's events are in their order, and none
// is forgotten. Republishes, which may be cancelled, delay and lose nothing.
func TestLanesKeepTheOrderWhateverIsAnswered(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			a := &answers{heldTable: newHeldTable(40), copies: map[int64]int{}}
			a.batching = atomic
			check := func() {
				for key, seqs := range a.stored {
					if !slices.IsSorted(seqs) {
						t.Fatalf("key %s: stored %v", key, seqs)
					}
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"pass": func(t *rapid.T) {
					if a.Size() < 40 {
						a.pass(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a", "b"}), 0, 8).Draw(t, "keys"), rapid.IntRange(1, 8).Draw(t, "some"))
					}
				},
				"record": func(t *rapid.T) { a.record(rapid.IntRange(1, 10).Draw(t, "some")) },
				"look":   func(*rapid.T) { a.look() },
				"again": func(t *rapid.T) {
					if a.late != nil {
						a.late()
						a.late = nil
						return
					}
					a.again(t)
				},
				"send":    func(t *rapid.T) { a.send(t, rapid.IntRange(1, 8).Draw(t, "window")) },
				"answer":  a.answer,
				"answer2": a.answer, "answer3": a.answer,
				"requeue": func(t *rapid.T) {
					batch := a.Next(rapid.IntRange(1, 4).Draw(t, "window"), a.now)
					if from := rapid.IntRange(0, len(batch)).Draw(t, "part"); len(batch) > 0 {
						if rest := batch[from:]; from > 0 {
							var sent []*Entry
							for _, m := range batch[:from] {
								sent = append(sent, EntryOf(m))
							}
							a.sent = append(a.sent, sent)
							a.Requeue(rest)
						} else {
							a.Requeue(batch)
						}
					}
				},
				"repeat": func(t *rapid.T) {
					if a.Size() < 40 {
						a.repeat(t)
					}
				},
				"cancel": func(t *rapid.T) {
					if a.republish > 0 {
						a.Cancel(rapid.Int64Range(1, a.republish).Draw(t, "republish"))
					}
				},
				"wait": func(t *rapid.T) {
					a.now = a.now.Add(time.Duration(rapid.IntRange(1, 10_000).Draw(t, "ms")) * time.Millisecond)
				},
				"room": func(*rapid.T) { a.MakeRoom(a.now) },
				"":     func(*rapid.T) { check() },
			})
			a.calm = true
			for rounds := 0; a.Size()+a.count+len(a.sent) > 0 || len(a.rows) > 0 || a.HasHeld() || len(a.pending)+len(a.done) > 0; rounds++ {
				if rounds > 1000 {
					t.Fatalf("%d events (%d put back, %d parked) and %d held ones are left, and none passes", a.Size(), a.count, a.parked.size, len(a.rows))
				}
				a.now = a.now.Add(10 * time.Second)
				a.send(t, 10)
				for len(a.sent) > 0 {
					a.answer(t)
				}
				a.record(10)
				a.look()
				if a.late != nil {
					a.late()
					a.late = nil
				} else {
					a.again(nil)
				}
				if a.Size() < 40 {
					a.pass(nil, 8)
				}
				check()
			}
			for key, seqs := range a.written {
				if !slices.Equal(a.stored[key], seqs) {
					t.Errorf("key %s: stored %v, written %v", key, a.stored[key], seqs)
				}
			}
			if a.Size() != 0 || a.Bytes() != 0 || len(a.keys) != 0 || a.sentNow() != 0 || a.parked.size != 0 || len(a.crowded) != 0 {
				t.Errorf("all is stored, and the lanes hold %d events, %d bytes, %d keys, %d in flight, %d parked, %d crowded", a.Size(), a.Bytes(), len(a.keys), a.sentNow(), a.parked.size, len(a.crowded))
			}
		})
	}
}

func (a *answers) sentNow() int { return a.InFlight() }
