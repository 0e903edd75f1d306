package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// outgoingRig is a log, a relay, and a stream that takes no large messages.
type outgoingRig struct {
	*rig

	nc      *nats.Conn
	js      jetstream.JetStream
	subject string
}

const small = 3000 // the largest message that the stream takes, in bytes

func newOutgoingRig(n *rig) *outgoingRig {
	n.Helper()
	nc := devtest.NATS(n)
	js := devtest.JetStream(n, nc)
	o := &outgoingRig{rig: n, nc: nc, js: js, subject: nats.NewInbox()[len("_INBOX."):]}
	o.takes(small)
	return o
}

// takes sets the largest message that the stream takes.
func (o *outgoingRig) takes(size int32) {
	o.Helper()
	_, err := o.js.CreateOrUpdateStream(o.Context(), jetstream.StreamConfig{Name: o.subject, Subjects: []string{o.subject}, MaxMsgSize: size})
	if err != nil {
		o.Fatal(err)
	}
}

// write commits events of a key: their ids are <key>-<number>, and large ones have a
// body that the stream does not take.
func (o *outgoingRig) write(key string, from, to int, large ...int) {
	o.Helper()
	var events []postroom.Event
	for i := from; i <= to; i++ {
		size := 10
		if slices.Contains(large, i) {
			size = 2 * small
		}
		events = append(events, o.event(key, i, size))
	}
	err := pgx.BeginFunc(o.Context(), o.pool, func(tx pgx.Tx) error {
		return outbox.New(outbox.Config{Source: "/office"}).Write(o.Context(), tx, events...)
	})
	if err != nil {
		o.Fatal(err)
	}
}

// event returns an event of a key.
func (o *outgoingRig) event(key string, number, size int) postroom.Event {
	ev := postroom.NewEvent(o.subject, strings.Repeat("x", size))
	ev.Key, ev.ID = key, name(key, number)
	return ev
}

func (o *outgoingRig) relay() (stop func()) {
	o.Helper()
	r := relay.New(o.pool, natsjs.NewPublisher(o.nc), relay.Config{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), AcceptRisks: []broker.Risk{natsjs.SmallMessages},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				o.Errorf("relay: %v", err)
			}
		})
	}
	o.Cleanup(stop)
	return stop
}

// message is a message of the stream.
type message struct{ id, msgID, logged string }

// published returns the messages of the stream, in their order.
func (o *outgoingRig) published() (messages []message) {
	o.Helper()
	s, err := o.js.Stream(o.Context(), o.subject)
	if err != nil {
		o.Fatal(err)
	}
	reader, err := s.OrderedConsumer(o.Context(), jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		o.Fatal(err)
	}
	for total := s.CachedInfo().State.Msgs; uint64(len(messages)) < total; {
		batch, err := reader.Fetch(int(total)-len(messages), jetstream.FetchMaxWait(5*time.Second)) //nolint:gosec // few
		if err != nil {
			o.Fatal(err)
		}
		for m := range batch.Messages() {
			h := m.Headers()
			messages = append(messages, message{h.Get("ce-id"), h.Get("Nats-Msg-Id"), h.Get("postroom-logged-at")})
		}
		if err := batch.Error(); err != nil {
			o.Fatal(err)
		}
	}
	return messages
}

// wantPublished waits for messages of these ids, in this order.
func (o *outgoingRig) wantPublished(msgIDs ...string) {
	o.Helper()
	var got []string
	defer func() {
		if o.Failed() {
			o.Logf("published: %v", got)
		}
	}()
	devtest.Eventually(o, patience, fmt.Sprintf("%v to be published", msgIDs), func() bool {
		s, err := o.js.Stream(o.Context(), o.subject)
		return err == nil && s.CachedInfo().State.Msgs >= uint64(len(msgIDs))
	})
	for _, m := range o.published() {
		got = append(got, m.msgID)
	}
	if !slices.Equal(got, msgIDs) {
		o.Errorf("published: %v, want %v", got, msgIDs)
	}
}

func (o *outgoingRig) eventuallyHeld(want map[string]string) {
	o.Helper()
	o.eventuallyHeldBy(deadletter.Outgoing, want)
}

// ids are the message ids of events that are published for the first time.
func ids(key string, from, to int) (msgIDs []string) {
	for _, id := range names(key, from, to) {
		msgIDs = append(msgIDs, "/office#"+id)
	}
	return msgIDs
}

// The relay could not publish the first event of a key. The stream is corrected and the event is
// replayed. It is published with a new message id, and the events behind it follow.
func TestReplayOfAnOutgoingEvent(t *testing.T) {
	t.Parallel()
	o := newOutgoingRig(newRig(t))
	o.relay()
	o.write("k", 1, 5, 2)
	o.write("other", 1, 1)
	e2 := name("k", 2)
	wantHeld := with(all("waiting", names("k", 3, 5)...), all("dead", e2))
	o.eventuallyHeld(wantHeld)

	// It is still too large, so it is dead again after one attempt.
	job := o.runReplay(o.replay(deadletter.Filter{Handler: deadletter.Outgoing}, deadletter.ReplayOptions{Attempts: 3}))
	if job.State != deadletter.ReplayDone || job.Events != 1 || job.Failed != 1 {
		t.Errorf("a replay that fails: %+v", job)
	}
	o.eventuallyHeld(wantHeld)
	o.want("attempts", 2, "SELECT attempts FROM postroom.held WHERE event_id = $1", e2)

	o.takes(-1)
	job = o.runReplay(o.replay(only(e2), deadletter.ReplayOptions{}))
	if job.State != deadletter.ReplayDone || job.Succeeded != 1 {
		t.Errorf("a replay: %+v", job)
	}
	o.eventuallyHeld(nil)
	o.write("k", 6, 6)
	devtest.Eventually(o, patience, "the last event", func() bool { return len(o.published()) == 7 })
	var got []string
	for _, m := range o.published() {
		if m.id != "other-00001" {
			got = append(got, m.msgID)
		}
	}
	want := append(append(ids("k", 1, 1), "/office#"+e2+"#r2"), ids("k", 3, 6)...)
	if !slices.Equal(got, want) {
		t.Errorf("published: %v, want %v", got, want)
	}
	o.wantConsistent()
}

// The first replay of an outgoing event has the message id #r1. If another process takes the replay
// over and publishes that again, the broker drops it, and the replay has succeeded.
func TestIDsOfReplays(t *testing.T) {
	t.Parallel()
	o := newOutgoingRig(newRig(t))
	stop := o.relay()
	o.write("k", 1, 2, 1)
	o.eventuallyHeld(map[string]string{name("k", 1): "dead", name("k", 2): "waiting"})
	o.takes(-1)
	// The broker knows the message id of the first replay already. A later replay has another id,
	// so its message is not dropped.
	ev := o.event("k", 1, 2*small)
	ev.Source, ev.LoggedAt = "/office", time.Now()
	for _, known := range []string{"", "#r1"} {
		header := nats.Header(wire.Encode(ev))
		header.Set(wire.MsgID, "/office#"+ev.ID+known)
		if _, err := o.nc.RequestMsg(&nats.Msg{Subject: o.subject, Header: header, Data: ev.Data}, patience); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	job := o.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := o.store.RunReplay(ctx, job.ID, deadletter.RunOptions{Progress: func(j deadletter.Replay) {
		if j.Released == 1 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("RunReplay = %v", err)
	}
	o.relay() // another relay takes over, and publishes a message that the broker drops: that is success
	o.runReplay(job)
	o.eventuallyHeld(nil)
	o.wantPublished("/office#"+name("k", 1), "/office#"+name("k", 1)+"#r1", "/office#"+name("k", 2))
}

// If the first event of a key is discarded, the next event of the key is published without an
// operator.
func TestDiscardOfAnOutgoingEvent(t *testing.T) {
	t.Parallel()
	o := newOutgoingRig(newRig(t))
	o.relay()
	o.write("k", 1, 6, 2, 4)
	e2, e4 := name("k", 2), name("k", 4)
	o.eventuallyHeld(with(all("waiting", names("k", 3, 6)...), all("dead", e2)))
	o.discarded(only(e2), 1)
	o.eventuallyHeld(with(all("waiting", names("k", 5, 6)...), all("dead", e4)))
	o.wantPublished(append(ids("k", 1, 1), ids("k", 3, 3)...)...)

	// After it is reopened, no event waits for it. It is replayed while another event of its key is
	// dead.
	o.reopened(only(e2), 1)
	o.takes(-1)
	if job := o.runReplay(o.replay(only(e2), deadletter.ReplayOptions{})); job.Succeeded != 1 {
		t.Errorf("replay of the reopened events: %+v", job)
	}
	o.wantPublished(append(append(ids("k", 1, 1), ids("k", 3, 3)...), "/office#"+e2+"#r1")...)
	o.discarded(only(e4), 1)
	o.eventuallyHeld(nil)
	o.wantPublished(append(append(append(ids("k", 1, 1), ids("k", 3, 3)...), "/office#"+e2+"#r1"), ids("k", 5, 6)...)...)
	o.wantConsistent()
}

// Two events of a key are dead: the second died before the first became visible.
func TestTwoDeadOutgoingEventsOfAKey(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} { // whether the first event is replayed too
		o := newOutgoingRig(newRig(t))
		o.relay()
		o.write("k", 1, 4, 2)
		e2, e4 := name("k", 2), name("k", 4)
		o.eventuallyHeld(map[string]string{e2: "dead", name("k", 3): "waiting", e4: "waiting"})
		o.exec(`UPDATE postroom.held SET dead_at = now(), class = 'js_10054' WHERE event_id = $1`, e4)
		o.takes(-1)
		f := deadletter.Filter{All: true}
		if !first {
			f = only(e4)
		}
		job := o.runReplay(o.replay(f, deadletter.ReplayOptions{}))
		if !first {
			o.wantOutcomes(job, all("withdrawn", e4))
			o.eventuallyHeld(map[string]string{e2: "dead", name("k", 3): "waiting", e4: "dead"})
			o.wantPublished(ids("k", 1, 1)...)
			o.discarded(only(e2), 1)
			o.eventuallyHeld(all("dead", e4))
			o.discarded(only(e4), 1)
			continue
		}
		o.wantOutcomes(job, all("succeeded", e2, e4))
		o.eventuallyHeld(nil)
		o.wantPublished("/office#"+name("k", 1), "/office#"+e2+"#r1", "/office#"+name("k", 3), "/office#"+e4+"#r1")
	}
}

// An event that is too old for its consumers must be replayed as new. It then counts as logged at
// its release.
func TestReplayAsNew(t *testing.T) {
	t.Parallel()
	o := newOutgoingRig(newRig(t))
	o.relay()
	o.write("k", 1, 1, 1)
	o.eventuallyHeld(all("dead", name("k", 1)))
	o.exec("UPDATE postroom.held SET logged_at = now() - interval '29 days 1 minute'")
	o.takes(-1)
	if _, err := o.store.CreateReplay(t.Context(), deadletter.Filter{All: true}, deadletter.ReplayOptions{}, o.by); !errors.Is(err, deadletter.ErrTooOld) {
		t.Errorf("Replay = %v, want ErrTooOld", err)
	}
	o.want("replays", 0, "SELECT count(*) FROM postroom.replay")
	o.want("marked events", 0, "SELECT count(*) FROM postroom.held WHERE replay IS NOT NULL")
	forecasts, _, err := o.store.Preview(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
	if err != nil || len(forecasts) != 1 || forecasts[0].TooOld != 1 || !forecasts[0].HasProcess {
		t.Errorf("Preview = %+v, %v", forecasts, err)
	}
	before := time.Now().Add(-time.Minute)
	if job := o.runReplay(o.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{AsNew: true})); job.Succeeded != 1 {
		t.Errorf("replay: %+v", job)
	}
	o.wantPublished("/office#" + name("k", 1) + "#r1")
	logged, err := time.Parse(time.RFC3339Nano, o.published()[0].logged)
	if err != nil || logged.Before(before) {
		t.Errorf("logged at %s, %v; want now", logged, err)
	}
	o.want("noted", 1, "SELECT count(*) FROM postroom.audit WHERE details #>> '{options,as_new}' = 'true'")

	// The process with the shortest time counts: this one keeps inbox rows for half an hour.
	in := inbox.New(o.pool, nil, inbox.Config{DedupeWindow: 30 * time.Minute})
	in.Handle(sub("short"), newScript().handler("short"))
	o.run(in)
	o.takes(small)
	o.write("k", 2, 2, 2)
	o.eventuallyHeld(all("dead", name("k", 2)))
	o.exec("UPDATE postroom.held SET logged_at = now() - interval '31 minutes'")
	devtest.Eventually(o, patience, "the process to be known", func() bool { return o.number("SELECT count(*) FROM postroom.node") == 1 })
	if _, err := o.store.CreateReplay(t.Context(), deadletter.Filter{All: true}, deadletter.ReplayOptions{}, o.by); !errors.Is(err, deadletter.ErrTooOld) {
		t.Errorf("Replay = %v, want ErrTooOld", err)
	}

	// A handler of this process remembers events for only twenty minutes.
	forgets := inbox.New(o.pool, nil, inbox.Config{})
	shorter := sub("shorter")
	shorter.DedupeWindow = 20 * time.Minute
	forgets.Handle(shorter, newScript().handler("shorter"))
	o.exec("UPDATE postroom.held SET logged_at = now() - interval '20 minutes'")
	o.run(forgets)
	devtest.Eventually(o, patience, "the handler's time to count", func() bool {
		forecasts, _, err := o.store.Preview(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
		return err == nil && len(forecasts) == 1 && forecasts[0].TooOld == 1
	})
}

// Relays come and go while events of many keys are replayed: each event is published once, and the
// events of a key in their order.
func TestOutgoingReplaysWhileRelaysComeAndGo(t *testing.T) {
	t.Parallel()
	const keys, each = 40, 5
	o := newOutgoingRig(newRig(t))
	stop := o.relay()
	for k := range keys {
		o.write(fmt.Sprint("k", k), 1, each, 1, 3)
	}
	devtest.Eventually(o, patience, "the heads to be dead", func() bool {
		return o.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL") == keys && o.number("SELECT count(*) FROM postroom.held") == keys*each
	})
	o.takes(-1)
	job := o.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Rate: 100})
	finished := o.startReplay(job)
	running := true
	life := 100 * time.Millisecond // how long a relay lives; it grows, so that even a slow machine gets past the start
	for running {
		stop()
		stop = o.relay()
		select {
		case done := <-finished:
			if done.Succeeded != keys {
				t.Errorf("result: %+v", done)
			}
			running = false
		case <-time.After(life):
			life += life / 10
		}
	}
	o.eventuallyHeld(nil)
	got := map[string][]string{}
	for _, m := range o.published() {
		key, _, _ := strings.Cut(m.id, "-")
		got[key] = append(got[key], m.id)
	}
	for k := range keys {
		key := fmt.Sprint("k", k)
		if !slices.Equal(got[key], names(key, 1, each)) {
			t.Errorf("published of %s: %v", key, got[key])
		}
	}
}
