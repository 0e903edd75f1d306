package natsjs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay/broker"
)

// together returns events that may be acknowledged together, numbered from first on.
func together(first, n int) []*broker.Message {
	var batch []*broker.Message
	for i := range n {
		f := &broker.Message{Event: broker.Event{Seq: int64(first + i), Event: postroom.Event{Subject: "a.b"}}, AckGroup: "S"}
		batch = append(batch, f)
	}
	return batch
}

// recordingWindow is a window whose outcomes are recorded.
type recordingWindow struct {
	*window

	outcomes map[int64]broker.Outcome
}

func ask(fail func(format string, args ...any)) *recordingWindow {
	a := &recordingWindow{outcomes: make(map[int64]broker.Outcome)}
	a.window = newWindow("acks.", func(f *broker.Message, o broker.Outcome) {
		if before, twice := a.outcomes[f.Seq]; twice {
			fail("event %d got outcome %+v, and then %+v", f.Seq, before, o)
		}
		a.outcomes[f.Seq] = o
	})
	for _, name := range []string{"S", "T"} {
		a.origins[name] = origin{name: name, until: time.Now().Add(time.Hour)}
	}
	a.origins["SITE"] = origin{name: "SITE", foreign: true, until: time.Now().Add(time.Hour)}
	return a
}

// sendNow opens the groups of a batch and says that all is sent. It returns their replies.
func (a *recordingWindow) sendNow(batch []*broker.Message) (replies []string) {
	a.expect(batch, time.Now())
	for _, o := range a.refs {
		a.sentAll(o, nil)
		replies = append(replies, o.reply)
	}
	return replies
}

func (a *recordingWindow) answer(reply, data string) {
	a.onAck(&nats.Msg{Subject: reply, Data: []byte(data)})
}

func stored(stream string, seq uint64) string {
	return fmt.Sprintf(`{"stream":%q,"seq":%d}`, stream, seq)
}

func elsewhere(seq uint64) string { return fmt.Sprintf(`{"stream":"S","domain":"leaf","seq":%d}`, seq) }

func repeated(seq uint64) string { return fmt.Sprintf(`{"stream":"S","seq":%d,"duplicate":true}`, seq) }

const full = `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}`

// Events of different streams, and events that may not share an answer, have their own reply
// subjects.
func TestEventsThatShareAnAnswerHaveOneReplySubject(t *testing.T) {
	t.Parallel()
	batch := together(0, 7)
	batch[2].AckGroup, batch[3].AckGroup = "T", "T"
	batch[4].AckGroup, batch[5].AckGroup = "", ""
	w := ask(t.Errorf)
	w.expect(batch, time.Now())
	var got []string
	for _, o := range w.refs {
		got = append(got, o.reply)
	}
	if len(got) != 5 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 5 {
		t.Errorf("seven events of the groups S, S, T, T, none, none and S have the reply subjects %q, want five", got)
	}
}

// Three events are sent together. Each case has the broker's answers and the outcomes that the
// events get.
func TestAnswersToAGroup(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		answers  []string
		outcomes string // event:sequence, ! for a repetition
		again    string // events that are sent again, by themselves
	}{
		{"all stored", []string{stored("S", 7), stored("S", 8), stored("S", 9)}, "0:7 1:8 2:9", ""},
		{"all were there already", []string{repeated(7), repeated(8), repeated(9)}, "0:7! 1:8! 2:9!", ""},
		{"some were there already", []string{repeated(7), repeated(8), stored("S", 9)}, "", "0 1 2"},
		{"one answer is missing", []string{stored("S", 7), stored("S", 8)}, "", ""},
		{"others published in between", []string{stored("S", 7), stored("S", 8), stored("S", 10)}, "", "0 1 2"},
		{"one is answered twice", []string{stored("S", 7), stored("S", 8), stored("S", 8)}, "", "0 1 2"},
		{"out of order", []string{stored("S", 8), stored("S", 7), stored("S", 9)}, "", "0 1 2"},
		{"another stream answers too", []string{stored("S", 7), stored("EDGE", 8), stored("S", 9)}, "", "0 1 2"},
		{"a stream without a name answers", []string{stored("", 7), stored("", 8), stored("", 9)}, "", ""},
		{"a stream of another JetStream answers too", []string{stored("SITE", 6), stored("S", 7), stored("SITE", 7), stored("S", 8), stored("SITE", 8), stored("S", 9)}, "0:7 1:8 2:9", ""},
		{"another domain answers too", []string{elsewhere(7), stored("S", 7), elsewhere(8), elsewhere(9), stored("S", 8), stored("S", 9)}, "0:7 1:8 2:9", ""},
		{"only another domain answers", []string{elsewhere(7), elsewhere(8), elsewhere(9)}, "", ""},
		{"another JetStream refuses", []string{strings.ReplaceAll(full, `"S"`, `"SITE"`), stored("S", 7), stored("S", 8), stored("S", 9)}, "0:7 1:8 2:9", ""},
		{"one is refused", []string{stored("S", 7), full, stored("S", 8)}, "", "0 1 2"},
		{"another program answers too", []string{stored("S", 7), `{"thanks":true}`, "thanks", stored("S", 8), stored("S", 9)}, "0:7 1:8 2:9", ""},
		{"another program answers with an error", []string{`{"jsonrpc":"2.0","error":{"code":-32601,"message":"?"},"id":null}`, stored("S", 7), stored("S", 8), stored("S", 9)}, "0:7 1:8 2:9", ""},
		{"no stream", []string{""}, "", "0 1 2"},
		{"an answer comes when all is told", []string{stored("S", 7), stored("S", 8), stored("S", 9), stored("S", 10)}, "0:7 1:8 2:9", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := ask(t.Errorf)
			replies := w.sendNow(together(0, 3))
			if len(replies) != 1 {
				t.Fatalf("three events have %d reply subjects, want one", len(replies))
			}
			for _, data := range test.answers {
				m := &nats.Msg{Subject: replies[0], Data: []byte(data)}
				if data == "" {
					m.Header = nats.Header{"Status": {"503"}}
				}
				w.onAck(m)
			}
			if got := w.summary(); got != test.outcomes {
				t.Errorf("outcomes %q, want %q", got, test.outcomes)
			}
			for _, name := range w.unlooked {
				if !isName([]byte(name)) { // the look-up would have an invalid subject
					t.Errorf("a stream %q is looked up", name)
				}
			}
			again := w.takeAgain()
			if got := seqsOf(again); got != test.again {
				t.Errorf("sent again: %q, want %q", got, test.again)
			}
			w.singlesLeft = 0 // groups are allowed again, but events that are sent again are in none
			if replies := w.sendNow(again); len(replies) != len(again) {
				t.Errorf("%d events that are sent again have %d reply subjects, want one each", len(again), len(replies))
			}
		})
	}
}

// summary returns the outcomes that events got.
func (a *recordingWindow) summary() string {
	var all []string
	for seq, o := range a.outcomes {
		text := fmt.Sprintf("%d:%d", seq, o.Sequence)
		if o.Duplicate {
			text += "!"
		}
		if o.Class != broker.Stored || o.Stream != "S" {
			text += fmt.Sprintf(" %s %s", o.Class, o.Stream)
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func seqsOf(asMessages []*broker.Message) string {
	return strings.Trim(fmt.Sprint(func() (seqs []int64) {
		for _, f := range asMessages {
			seqs = append(seqs, f.Seq)
		}
		return seqs
	}()), "[]")
}

// The sending goroutine reads an event until its group is sent. So before that, no answer ends the
// group.
func TestAGroupIsSettledWhenItIsSent(t *testing.T) {
	t.Parallel()
	w := ask(t.Errorf)
	batch := together(0, 3)
	w.expect(batch, time.Now())
	sent := w.refs[0]
	w.answer(sent.reply, stored("S", 7))
	w.answer(sent.reply, full)
	if len(w.outcomes) > 0 || len(w.takeAgain()) > 0 {
		t.Fatalf("outcomes %v before all events were sent", w.outcomes)
	}
	w.sentAll(sent, map[*broker.Message]broker.Outcome{batch[1]: failure(nats.ErrMaxPayload)})
	if o := w.outcomes[1]; len(w.outcomes) != 1 || o.Class != broker.Permanent {
		t.Errorf("outcomes %v, want that event 1 is too large", w.outcomes)
	}
	if again := seqsOf(w.takeAgain()); again != "0 2" {
		t.Errorf("sent again: %q, want those that were sent", again)
	}
}

// If the client does not send an event, the event has no answer. The others have theirs.
func TestEventThatWasNotSentHasNoAnswer(t *testing.T) {
	t.Parallel()
	w := ask(t.Errorf)
	batch := together(0, 3)
	w.expect(batch, time.Now())
	group := w.refs[0]
	w.answer(group.reply, stored("S", 7))
	w.answer(group.reply, stored("S", 8))
	w.sentAll(group, map[*broker.Message]broker.Outcome{batch[1]: failure(nats.ErrMaxPayload)})
	if w.outcomes[0].Sequence != 7 || w.outcomes[1].Class != broker.Permanent || w.outcomes[2].Sequence != 8 {
		t.Errorf("outcomes %v, want 7, too large, 8", w.outcomes)
	}

	gone := failure(nats.ErrDisconnected)
	for n := range 3 { // how many of the events are not sent
		batch = together(3+3*n, n)
		w.expect(batch, time.Now())
		failed := make(map[*broker.Message]broker.Outcome)
		for _, f := range batch {
			failed[f] = gone
		}
		for _, o := range w.refs {
			w.sentAll(o, failed)
		}
		for _, f := range batch {
			if w.outcomes[f.Seq].Class != broker.Unknown {
				t.Errorf("event %d got outcome %+v, want that it was not sent", f.Seq, w.outcomes[f.Seq])
			}
		}
		if w.isWaiting() {
			t.Errorf("the window waits for an answer, although none of %d events was sent", n)
		}
	}
}

// More answers than events come while a group is being sent. It is not known which answer is for
// which event.
func TestGroupWithTooManyAnswersIsAmbiguous(t *testing.T) {
	t.Parallel()
	w := ask(t.Errorf)
	w.expect(together(0, 2), time.Now())
	for seq := range uint64(3) {
		w.answer(w.refs[0].reply, stored("S", 7+seq))
	}
	w.sentAll(w.refs[0], nil)
	if again := seqsOf(w.takeAgain()); again != "0 1" || len(w.outcomes) > 0 {
		t.Errorf("sent again: %q, outcomes %v, want both events again", again, w.outcomes)
	}
}

// If a group is not answered in time, its outcomes are unknown, and the next events go by
// themselves.
func TestAGroupRunsOutOfTime(t *testing.T) {
	t.Parallel()
	w := ask(t.Errorf)
	replies := w.sendNow(together(0, 2))
	w.answer(replies[0], stored("S", 7))
	w.expire(time.Now().Add(time.Second))
	if w.outcomes[0].Class != broker.Unknown || w.outcomes[1].Class != broker.Unknown || w.isWaiting() {
		t.Errorf("outcomes %v, want Unknown for both", w.outcomes)
	}
	if replies := w.sendNow(together(2, 2)); len(replies) != 2 {
		t.Error("a group follows at once")
	}
}

// One subject of a group is denied: the other events are sent again.
func TestGroupIsSentAgainAfterADenial(t *testing.T) {
	t.Parallel()
	w := ask(t.Errorf)
	batch := together(0, 3)
	batch[1].Subject = "a.denied"
	w.sendNow(batch)
	w.Deny(fmt.Errorf("%w: Permissions Violation for Publish to \"a.denied\"", nats.ErrPermissionViolation))
	if o := w.outcomes[1]; len(w.outcomes) != 1 || !errors.Is(o.Err, broker.ErrNotAllowed) {
		t.Errorf("outcomes %v, want that event 1 is not allowed", w.outcomes)
	}
	if again := seqsOf(w.takeAgain()); again != "0 2" {
		t.Errorf("sent again: %q, want the others", again)
	}
}

// If the connection breaks, events that wait to be sent again are reported as unacknowledged,
// like all others.
func TestBrokenConnectionReportsWaitingEvents(t *testing.T) {
	t.Parallel()
	w := ask(t.Errorf)
	w.sendNow(together(3, 2))
	replies := w.sendNow(together(0, 3))
	w.answer(replies[0], full)
	w.failAll(nats.ErrDisconnected)
	for seq := range int64(5) {
		if o, ok := w.outcomes[seq]; !ok || o.Class != broker.Unknown {
			t.Errorf("event %d got outcome %+v, want Unknown", seq, o)
		}
	}
	if w.isWaiting() || len(w.takeAgain()) > 0 {
		t.Error("the window still waits for an answer")
	}
}

// After an ambiguous group, events go without groups for a while. This time grows with each
// ambiguous group.
func TestGroupsRestAfterAnAmbiguousOne(t *testing.T) {
	t.Parallel()
	w := ask(t.Errorf)
	sent, place := 0, uint64(0)
	singles := func() (n int) { // sends events until a group comes, and has the stream store them
		for {
			batch := together(sent, 2)
			sent += 2
			replies := w.sendNow(batch)
			for range 2 / len(replies) {
				for _, reply := range replies {
					place++
					w.answer(reply, stored("S", place))
				}
			}
			if len(replies) == 1 {
				return n
			}
			n += 2
		}
	}
	vague := func() {
		first, second := w.sendNow(together(sent, 2)), w.sendNow(together(sent+2, 2))
		sent += 4
		if len(first) != 1 || len(second) != 1 {
			t.Fatal("no groups are sent")
		}
		w.answer(first[0], full)
		w.answer(second[0], full) // was in flight already, so it does not prolong that time
		w.takeAgain()
	}
	if n := singles(); n != 0 {
		t.Fatalf("%d events were sent alone at first, want none", n)
	}
	for want := minSingles; want < 5*minSingles; want = 2*want - 2 { // singles ends with an unambiguous group of two
		vague()
		if n := singles(); n != want {
			t.Errorf("%d events were sent alone, want %d", n, want)
		}
	}
	for range 4 * minSingles { // each a group of two
		singles()
	}
	vague()
	if n := singles(); n != minSingles {
		t.Errorf("%d events were sent alone after many groups with clear answers, want %d", n, minSingles)
	}
}

// The model has everything that a broker and a connection can do. Messages are lost from some
// point on. The stream refuses events, knows them already, or stores them. Others publish to
// it. Answers are lost, come twice, or come from another program. If the stream has replicas,
// answers to what it knows overtake others. Streams of another JetStream answer too, and a stream may
// have to be looked up, which can take long and fail. If an event is reported as stored, the stream
// has it at that position. Each event is reported once.
func TestGroupsTellTheTruth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := ask(t.Fatalf)
		for _, name := range []string{"S", "SITE"} {
			switch rapid.IntRange(0, 2).Draw(t, "origin of "+name) {
			case 0:
				delete(w.origins, name)
			case 1:
				w.origins[name] = origin{name: name, foreign: name == "SITE", domain: w.origins[name].domain} // it may be looked up again
			}
		}
		var looking []string // the streams that are being looked up
		lookUp := func() {
			looking = append(looking, w.takeUnlooked()...)
			for len(looking) > 0 && rapid.IntRange(0, 2).Draw(t, "looked up") == 0 {
				name, found := looking[0], origin{name: looking[0], foreign: looking[0] != "S", until: time.Now().Add(time.Hour)}
				looking = looking[1:]
				if rapid.IntRange(0, 9).Draw(t, "lookup fails") == 0 {
					w.prove(name, origin{}, nats.ErrTimeout)
				} else {
					w.prove(name, found, nil)
				}
			}
		}
		at := make(map[int64]uint64) // the position of each event in the stream
		var last uint64
		var late []func() // answers that come in a later round
		pending := together(0, rapid.IntRange(1, 2*maxGroup+3).Draw(t, "events"))
		total := len(pending)
		for _, f := range pending {
			if rapid.IntRange(0, 3).Draw(t, "known") == 0 {
				last++
				at[f.Seq] = last
			}
		}
		replicated := rapid.Bool().Draw(t, "replicated")
		for round := 0; len(pending) > 0 && round < 5; round++ {
			w.singlesLeft = 0
			w.expect(pending, time.Now())
			alive := true
			for _, g := range slices.Clone(w.refs) {
				var slow []func()
				for _, f := range g.messages {
					known := at[f.Seq] > 0
					alive = alive && rapid.IntRange(0, 60).Draw(t, "cut") > 0
					if alive {
						for _, data := range respond(t, f.Seq, len(g.messages) > 1, at, &last) {
							say := func() { w.answer(g.reply, data); lookUp() }
							switch {
							case rapid.IntRange(0, 30).Draw(t, "late") == 0:
								late = append(late, say)
							case replicated && !known:
								slow = append(slow, say)
							default:
								say()
							}
						}
					}
				}
				for _, say := range slow {
					say()
				}
				w.sentAll(g, nil)
			}
			for _, say := range late {
				if rapid.Bool().Draw(t, "now") {
					say()
				}
			}
			pending = w.takeAgain()
		}
		w.failAll(nats.ErrDisconnected)
		reportAll(pending, failure(nats.ErrDisconnected), w.reportFn)
		if len(w.outcomes) != total {
			t.Fatalf("%d of %d events got an outcome", len(w.outcomes), total)
		}
		for seq, o := range w.outcomes {
			if o.Class == broker.Stored && at[seq] != o.Sequence {
				t.Fatalf("event %d was reported as stored at %d; the stream has it at %d", seq, o.Sequence, at[seq])
			}
		}
	})
}

// respond makes a stream take a message, and returns the answers.
func respond(t *rapid.T, seq int64, shared bool, at map[int64]uint64, last *uint64) []string {
	if rapid.IntRange(0, 20).Draw(t, "others") == 0 {
		*last += uint64(rapid.IntRange(1, 3).Draw(t, "of them"))
	}
	if rapid.IntRange(0, 40).Draw(t, "refused") == 0 {
		return []string{full}
	}
	answer := repeated(at[seq])
	if at[seq] == 0 {
		*last++
		at[seq] = *last
		answer = stored("S", *last)
	}
	switch rapid.IntRange(0, 60).Draw(t, "answers") {
	case 0:
		return nil
	case 1:
		return []string{answer, answer}
	case 2:
		if shared { // for an event with its own reply subject the first answer counts, so only groups get this
			return []string{stored("EDGE", *last), answer}
		}
	case 3, 4, 5, 6:
		return []string{stored("SITE", *last), answer}
	case 7, 8:
		return []string{elsewhere(*last), answer}
	case 9, 10:
		return []string{answer, strings.ReplaceAll(full, `"S"`, `"SITE"`)}
	case 11:
		return []string{elsewhere(*last)}
	}
	return []string{answer}
}

// If the lookup of a stream that answered is refused, that is no refusal of the event.
func TestARefusedLookupRefusesNoEvent(t *testing.T) {
	t.Parallel()
	for _, refused := range []*BrokerError{{Code: 10025, Status: 400}, {Code: 10054, Status: 400}, {Code: 10039, Status: 503}} {
		a := ask(t.Fatalf)
		delete(a.origins, "S")
		reply := a.sendNow(together(1, 1))[0]
		a.answer(reply, stored("S", 9))
		a.prove("S", origin{}, fmt.Errorf("look it up: %w", refused))
		if o, told := a.outcomes[1]; !told || o.Class != broker.Unknown {
			t.Errorf("outcome %+v after the error %d, want one of the class unknown", o, refused.Code)
		}
	}
}

// If our JetStream gets another domain, its acknowledgements count again after a lookup.
func TestAnOriginThatDoesNotFitIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	a := ask(t.Fatalf)
	a.origins["S"] = origin{name: "S"}
	reply := a.sendNow(together(1, 2))[0]
	a.answer(reply, elsewhere(7))
	a.answer(reply, elsewhere(8))
	if names := a.takeUnlooked(); !slices.Equal(names, []string{"S"}) {
		t.Fatalf("streams to look up: %q, want S once", names)
	}
	a.prove("S", origin{name: "S", domain: "leaf", until: time.Now().Add(time.Hour)}, nil)
	if got := a.summary(); len(a.outcomes) != 2 || a.outcomes[2].Sequence != 8 {
		t.Errorf("outcomes %s, want both stored", got)
	}
	reply = a.sendNow(together(3, 2))[0]
	a.answer(reply, stored("S", 9))
	if names := a.takeUnlooked(); names != nil {
		t.Errorf("streams to look up: %q, want none so soon", names)
	}
}
