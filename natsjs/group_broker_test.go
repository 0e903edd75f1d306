package natsjs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// publishTogether publishes events that may be acknowledged together, and returns their outcomes by
// seq. If an event got no answer in time, it sends the event again, as the relay does.
func publishTogether(t *testing.T, nc *nats.Conn, events []broker.Event) map[int64]broker.Outcome {
	t.Helper()
	told, _ := publishAgain(t, nc, events)
	return told
}

// publishAgain is publishTogether. It also returns which events were sent again. It fails the test
// if there are any although the machine did not stall.
func publishAgain(t *testing.T, nc *nats.Conn, events []broker.Event) (told map[int64]broker.Outcome, again map[int64]bool) {
	t.Helper()
	stalled := watchStalls(t, connect(t, nc.ConnectedUrl(), nats.UserInfo(nc.Opts.User, nc.Opts.Password)))
	told, again = publishOnce(t, nc, events), make(map[int64]bool)
	longest := stalled()
	for until := time.Now().Add(devtest.Patience(t, time.Minute)); time.Now().Before(until); {
		var left []broker.Event
		for _, ev := range events {
			if o := told[ev.Seq]; o.Class == broker.Unknown && errors.Is(o.Err, nats.ErrTimeout) {
				left = append(left, ev)
				again[ev.Seq] = true
			}
		}
		if len(left) == 0 {
			break
		}
		maps.Copy(told, publishOnce(t, nc, left))
	}
	if len(again) > 0 && longest < time.Second/2 {
		t.Errorf("%d events got no answer in time, although the machine stalled for %s at most", len(again), longest)
	}
	return told, again
}

// watchStalls asks the broker for a sign of life every 50 ms. The function that it returns ends
// that, and returns the longest time between two answers.
func watchStalls(t *testing.T, nc *nats.Conn) (longest func() time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var gap time.Duration
	var watching sync.WaitGroup
	watching.Go(func() {
		for answered := time.Now(); ctx.Err() == nil; {
			_ = nc.FlushTimeout(time.Minute) // if it fails, that shows as a gap or as outcomes
			gap = max(gap, time.Since(answered))
			answered = time.Now()
			sleep.For(ctx, 50*time.Millisecond)
		}
	})
	return func() time.Duration { stop(); watching.Wait(); return gap }
}

// publishOnce publishes events that may be acknowledged together, and returns their outcomes by seq.
func publishOnce(t *testing.T, nc *nats.Conn, events []broker.Event) map[int64]broker.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, time.Minute))
	defer cancel()
	batches := make(chan []*broker.Message)
	var mu sync.Mutex
	told := make(map[int64]broker.Outcome)
	done := make(chan error, 1)
	go func() {
		done <- natsjs.NewPublisher(nc).Run(ctx, batches, func(f *broker.Message, o broker.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			if _, twice := told[f.Seq]; twice {
				t.Errorf("event %d got two outcomes", f.Seq)
			}
			if told[f.Seq] = o; len(told) == len(events) {
				cancel()
			}
		})
	}()
	batches <- natsjs.Usual(asMessages(events...))
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if len(told) != len(events) {
		t.Fatalf("%d of %d events got an outcome", len(told), len(events))
	}
	return told
}

// several returns events of one subject, numbered from 1 on.
func several(subject string, n int) (events []broker.Event) {
	for i := range n {
		events = append(events, event(int64(i+1), subject, fmt.Sprintf("%s-%d", subject, i+1)))
	}
	return events
}

// wantStored checks that the stream has each of the events once, at the position that its
// outcome names.
func wantStored(t *testing.T, s jetstream.Stream, events []broker.Event, told map[int64]broker.Outcome) {
	t.Helper()
	places := make(map[uint64]bool)
	for _, ev := range events {
		o := told[ev.Seq]
		if o.Class != broker.Stored {
			t.Errorf("event %d: %s (%v), want stored", ev.Seq, o.Class, o.Err)
			continue
		}
		m, err := s.GetMsg(t.Context(), o.Sequence)
		if err != nil {
			t.Fatal(err)
		}
		if id := m.Header.Get("ce-id"); id != ev.ID || places[o.Sequence] {
			t.Errorf("event %s was reported at %d, where the stream has %s", ev.ID, o.Sequence, id)
		}
		places[o.Sequence] = true
	}
}

// wantAtOnce checks that the publisher sent no event again: the stream would have reported a
// duplicate. The test itself may have sent some again.
func wantAtOnce(t *testing.T, told map[int64]broker.Outcome, again map[int64]bool) {
	t.Helper()
	for seq, o := range told {
		if o.Duplicate && !again[seq] {
			t.Errorf("event %d was sent again, although the answers to its group were clear", seq)
		}
	}
}

// Events of a group share a reply subject, and each event has its own position.
func TestEventsAreAcknowledgedTogether(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := stream(t, nc, jetstream.StreamConfig{Name: "TOGETHER", Subjects: []string{"together.>"}})
	subjects := make(map[string]int)
	var mu sync.Mutex
	watch, err := nc.Subscribe("together.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		subjects[m.Reply]++
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Unsubscribe() }()
	events := several("together.a", 3*natsjs.MaxGroup+5)
	told, again := publishAgain(t, connect(t, nc.ConnectedUrl()), events)
	wantStored(t, s, events, told)
	wantAtOnce(t, told, again)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(subjects) != 4 && len(again) == 0 {
		t.Errorf("%d events had %d reply subjects, want 4: %v", len(events), len(subjects), subjects)
	}

	// The stream has all of them, so the answers name the same positions again.
	told = publishTogether(t, connect(t, nc.ConnectedUrl()), events)
	wantStored(t, s, events, told)
	for seq, o := range told {
		if !o.Duplicate {
			t.Errorf("event %d is reported as new, although it was stored before", seq)
		}
	}
}

// In a cluster the answer comes from the stream's leader, maybe through another server. While
// the leader changes, answers may be missing, or come from two servers. An event that is
// reported as stored is stored.
func TestAClusterAcknowledgesTogether(t *testing.T) {
	t.Parallel()
	c := commonCluster(t)
	nc := connect(t, c.url())
	s := c.stream(nc, "REPLICATED", "replicated.>")
	for name, server := range c.servers {
		events := several("replicated."+name, 10*natsjs.MaxGroup)
		told, again := publishAgain(t, connect(t, server.URL()), events)
		wantStored(t, s, events, told)
		wantAtOnce(t, told, again)
	}

	stored := 0
	for round := range 3 {
		events := several(fmt.Sprint("replicated.round-", round), 50*natsjs.MaxGroup)
		was, until := c.leader(s), time.Now().Add(devtest.Patience(t, clusterPatience))
		var stepping sync.WaitGroup
		stepping.Go(func() {
			for {
				_, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.REPLICATED", nil, 5*time.Second)
				if err == nil || !slices.Contains([]string{"", was}, c.leader(s)) {
					return
				}
				if time.Now().After(until) {
					t.Errorf("the leader does not step down: %v", err)
					return
				}
			}
		})
		told := publishOnce(t, connect(t, c.url()), events)
		stepping.Wait()
		devtest.Eventually(t, clusterPatience, "a new leader", func() bool { return c.leader(s) != "" })
		events = slices.DeleteFunc(events, func(ev broker.Event) bool { return told[ev.Seq].Class != broker.Stored })
		stored += len(events)
		wantStored(t, s, events, told)
	}
	if stored == 0 {
		t.Error("inconclusive: nothing was stored while the leader changed")
	}
	t.Logf("%d events were stored while the leader changed", stored)
}

// A cluster stores a new message before it answers, and answers to a duplicate at once. So the
// answers to a group with both do not come in its order. Each event is stored once.
func TestAClusterAnswersToDuplicatesFirst(t *testing.T) {
	t.Parallel()
	c := commonCluster(t)
	nc := connect(t, c.url())
	s := c.stream(nc, "OVERTAKE", "overtake.>")
	events := several("overtake.a", natsjs.MaxGroup)
	wantStored(t, s, events[1:], publishTogether(t, connect(t, c.url()), events[1:]))
	wantStored(t, s, events, publishTogether(t, connect(t, c.url()), events))
	if info, err := s.Info(t.Context()); err != nil || info.State.Msgs != uint64(len(events)) {
		t.Errorf("%d messages in the stream (%v), want %d", info.State.Msgs, err, len(events))
	}
}

// If the streams belong to another account, the broker replaces the group's reply subject by
// one for each message. The answers still arrive on the group's subject.
func TestAnotherAccountAcknowledgesTogether(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: `accounts {
		STREAMS { jetstream: enabled, users: [ { user: streams, password: s } ], exports: [ { service: "across.>", response_type: singleton }, { service: "$JS.API.>" } ] }
		RELAYS { users: [ { user: relay, password: r } ], imports: [ { service: { account: STREAMS, subject: "across.>" } }, { service: { account: STREAMS, subject: "$JS.API.>" } } ] }
	}`})
	s := stream(t, connect(t, server.URL(), nats.UserInfo("streams", "s")), jetstream.StreamConfig{Name: "ACROSS", Subjects: []string{"across.>"}})
	events := several("across.a", 10*natsjs.MaxGroup)
	told, again := publishAgain(t, connect(t, server.URL(), nats.UserInfo("relay", "r")), events)
	wantStored(t, s, events, told)
	wantAtOnce(t, told, again)
}

// If one event of a group is refused, the others are stored, and each has its own outcome.
func TestRefusalInAGroupLeavesTheOthersStored(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := stream(t, nc, jetstream.StreamConfig{Name: "AMONG", Subjects: []string{"among.>"}, MaxMsgSize: 2000})
	events := several("among.a", 32)
	refused, unsent, unknown := &events[5], &events[9], &events[20]
	refused.Data = make([]byte, 3000)
	unsent.Data = make([]byte, 2<<20)
	unknown.Subject = "nobody.among"
	told := publishTogether(t, connect(t, nc.ConnectedUrl()), events)
	if o := told[refused.Seq]; o.Class != broker.Permanent || codeOf(o.Err) != 10054 {
		t.Errorf("larger than the stream allows: %s (%v), want code 10054", o.Class, o.Err)
	}
	if o := told[unsent.Seq]; o.Class != broker.Permanent || !errors.Is(o.Err, nats.ErrMaxPayload) {
		t.Errorf("larger than the server allows: %s (%v), want nats.ErrMaxPayload", o.Class, o.Err)
	}
	if o := told[unknown.Seq]; !errors.Is(o.Err, broker.ErrNoStream) {
		t.Errorf("no stream: %s (%v), want ErrNoStream", o.Class, o.Err)
	}
	var good []broker.Event
	for i := range events {
		if ev := &events[i]; ev != refused && ev != unsent && ev != unknown {
			good = append(good, *ev)
		}
	}
	wantStored(t, s, good, told)
	if info, err := s.Info(t.Context()); err != nil || info.State.Msgs != uint64(len(good)) {
		t.Errorf("%d messages in the stream (%v), want %d", info.State.Msgs, err, len(good))
	}
}

// Others publish to the same stream, and another program answers, too. So the groups are
// ambiguous, but each event is stored once.
func TestEventsBesideOtherPublishersAreStoredOnce(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := stream(t, nc, jetstream.StreamConfig{Name: "BESIDE", Subjects: []string{"beside.>"}})
	events := several("beside.a", 20*natsjs.MaxGroup)
	other := connect(t, nc.ConnectedUrl())
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for ctx.Err() == nil {
			_, _ = other.Request("beside.b", nil, time.Second) // answered by the stream
		}
	})
	answering, err := other.Subscribe("beside.a", func(m *nats.Msg) {
		if m.Header.Get("ce-id") == "beside.a-40" {
			_ = m.Respond([]byte("thanks"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	told := publishTogether(t, connect(t, nc.ConnectedUrl()), events)
	cancel()
	others.Wait()
	if err := answering.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	for seq, o := range told { // event 40 may have got the other program's answer first
		if o.Class != broker.Stored && seq != 40 {
			t.Errorf("event %d: %s (%v), want stored", seq, o.Class, o.Err)
		}
	}
	known := append(append([]broker.Event(nil), events[:39]...), events[40:]...)
	wantStored(t, s, known, told)
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("beside.a"))
	if err != nil {
		t.Fatal(err)
	}
	if n := info.State.Subjects["beside.a"]; n != uint64(len(events)) {
		t.Errorf("the stream has %d messages, want each of %d events once", n, len(events))
	}
}
