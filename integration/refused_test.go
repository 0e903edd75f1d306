package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// If the broker will never take an event, the event is dead at once. Later events of its key
// wait until an operator raises the stream's limit and sets the event ready.
func TestOneEventIsTooLarge(t *testing.T) {
	t.Parallel()
	const keys, each = 20, 10
	o := openRefusalRig(t, devtest.NATS(t))
	o.stream("a", jetstream.StreamConfig{MaxMsgSize: 5000})
	var names []string
	for n := range each {
		for k := range keys {
			l := letter{kind: "a", key: fmt.Sprint("key", k)}
			if n == 0 {
				names = append(names, l.key)
			}
			if k == 7 && n == 3 {
				l.size = 6000
			}
			o.write(l)
		}
	}
	o.relay(relay.Config{AcceptRisks: []broker.Risk{natsjs.SmallMessages}})
	o.waitForStored("a", (keys-1)*each+3)
	held := o.waitForHeld(each - 3)
	o.wantFirstHeld(held, "dead", "js_10054", 1)
	if held[0].ID != "key7-3" || held[0].Failures != 1 || held[0].After != 0 {
		t.Errorf("held %+v, want the large event dead from its first failure on", held[0])
	}
	o.write(several(5, "a", "key7")...)
	o.write(several(5, "a", "key8")...)
	o.waitForStored("a", (keys-1)*each+3+5)
	o.wantFirstHeld(o.waitForHeld(each-3+5), "dead", "js_10054", 1)
	o.wantInOrder("a", slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "key7" })...)

	o.stream("a", jetstream.StreamConfig{})
	o.overrideDeath()
	o.waitForHeld(0)
	o.wantInOrder("a", names...)
}

// If a subject has no stream, its events are held after a while, without an attempt. When there is
// a stream, they are published without an operator. Other events are not delayed.
func TestASubjectHasNoStream(t *testing.T) {
	t.Parallel()
	const each = 20
	o := openRefusalRig(t, devtest.NATS(t))
	o.stream("there", jetstream.StreamConfig{})
	began := time.Now()
	for range each {
		o.write(letter{kind: "missing", key: "a"}, letter{kind: "missing", key: "b"}, letter{kind: "there", key: "c"}, letter{kind: "there", key: "d"})
	}
	o.relay(relay.Config{})
	o.waitForStored("there", 2*each)
	passed := time.Now()
	for i, h := range o.waitForHeld(2 * each) {
		if h.At.Before(passed) {
			t.Errorf("%s was held at %s, before the others had passed at %s", h.ID, h.At, passed)
		}
		if h.At.Sub(began) < 4*time.Second {
			t.Errorf("%s was held after %s", h.ID, h.At.Sub(began))
		}
		first := i < 2 // the first of each key
		if h.Attempts != 0 || first != (h.Class == "no_stream") || first != (h.State == "due") || !first && h.State != "waiting" {
			t.Errorf("held %+v", h)
		}
	}
	o.stream("missing", jetstream.StreamConfig{})
	devtest.Eventually(t, refusalPatience, "the first of each key to be due for half a minute, and all to be published", func() bool { return len(o.held()) == 0 })
	o.wantInOrder("missing", "a", "b")
	o.wantInOrder("there", "c", "d")
}

// A refusal of an unknown kind is an attempt if other events pass. After five attempts the
// event is dead.
func TestUnknownRefusalIsAnAttempt(t *testing.T) {
	t.Parallel()
	o := openRefusalRig(t, devtest.NATS(t))
	o.stream("counter", jetstream.StreamConfig{AllowMsgCounter: true})
	o.stream("other", jetstream.StreamConfig{})
	o.write(several(3, "counter", "k")...)
	o.relay(relay.Config{})

	// while writes events that are published normally, until cond is true.
	while := func(what string, cond func() bool) {
		t.Helper()
		next := time.Now()
		devtest.Eventually(t, refusalPatience, what, func() bool {
			if now := time.Now(); now.After(next) {
				o.write(letter{kind: "other"})
				next = now.Add(50 * time.Millisecond)
			}
			return cond()
		})
	}
	var held []heldEvent
	attempts := len(postroom.DefaultBackoff()) + 1
	for n := 1; n <= attempts; n++ {
		while(fmt.Sprint("attempt ", n), func() bool {
			if held = o.held(); len(held) == 3 && held[0].Attempts == n {
				return true
			}
			if len(held) > 0 && held[0].Attempts > n {
				t.Fatalf("%d attempts after the %dth", held[0].Attempts, n-1)
			}
			return false
		})
		state := "due"
		if n == attempts {
			state = "dead"
		}
		o.wantFirstHeld(held, state, "js_10169", n)
		if held[0].Failures != n {
			t.Errorf("%d failures are listed after %d attempts", held[0].Failures, n)
		}
		if n > 2 { // the first waits are half a second and two seconds
			o.overrideNextAt()
		}
	}
	before := o.count("other")
	while("others to pass after that", func() bool { return o.count("other") > before+20 })
	o.wantFirstHeld(o.waitForHeld(3), "dead", "js_10169", attempts)
	if n := o.count("counter"); n > 0 {
		t.Errorf("%d events of the key are in the stream", n)
	}
}

// The broker is away for longer than the relay keeps refused events in memory. No event goes
// to held, not even for a moment.
func TestAnOutageHoldsNothing(t *testing.T) {
	t.Parallel()
	const keys = 10
	broker := devtest.OwnNATS(t)
	nc, err := nats.Connect(broker.URL(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	o := openRefusalRig(t, nc)
	o.stream("a", jetstream.StreamConfig{})
	o.relay(relay.Config{})
	var names []string
	for k := range keys {
		names = append(names, fmt.Sprint("key", k))
	}
	traffic := func(what string, cond func() bool) {
		t.Helper()
		next := time.Now()
		devtest.Eventually(t, refusalPatience, what, func() bool {
			if now := time.Now(); now.After(next) {
				for _, key := range names {
					o.write(letter{kind: "a", key: key})
				}
				next = now.Add(50 * time.Millisecond)
			}
			return cond()
		})
	}
	traffic("first events", func() bool { return o.count("a") > 10*keys })

	// The broker stops during a burst, and dies while another one is on its way to it. Some
	// events of the first may be stored and not acknowledged.
	burst := func(name string) {
		letters := make([]letter, 500)
		for i := range letters {
			letters[i] = letter{kind: "a", key: fmt.Sprintf("%s.%d", name, i)}
		}
		o.write(letters...)
	}
	burst("first")
	if err := broker.Pause(); err != nil {
		t.Fatal(err)
	}
	sent := nc.Stats().OutMsgs
	burst("second")
	devtest.Eventually(t, refusalPatience, "events to be sent to a broker that has halted", func() bool { return nc.Stats().OutMsgs > sent+100 })
	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, refusalPatience, "acknowledgements to be given up", func() bool { return o.failures.Load() > 0 })
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	broker.Stop()
	gone := time.Now()
	traffic("the outage to be long", func() bool { return time.Since(gone) > 8*time.Second })
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := o.count("a")
	traffic("the relay to go on", func() bool { return o.count("a") > before })
	all := 0
	for _, n := range o.next {
		all += n
	}
	o.waitForStored("a", all)
	o.wantInOrder("a", slices.Collect(maps.Keys(o.next))...)

	var used bool
	if err := o.pool.QueryRow(t.Context(), "SELECT pg_sequence_last_value(pg_get_serial_sequence('postroom.held', 'id')) IS NOT NULL").Scan(&used); err != nil {
		t.Fatal(err)
	}
	if used {
		t.Error("events were held")
	}
}

// More events are refused than the relay may have read and not published. They have one key, or one
// subject. The other events, which come later in the log, are still published.
func TestManyRefusedEventsStopNoOther(t *testing.T) {
	t.Parallel()
	const most = 2000 // the least that a relay accepts
	tests := []struct {
		name   string
		refuse func(o *refusalRig)
		size   int    // of the refused events
		class  string // of the first held event
		oneKey bool
		kinds  int    // the number of other subjects of the refused events
		newest bool   // the newest events are refused ones, too
		heard  bool   // a program listens on the subjects
		says   string // what it answers to the refused events
	}{
		{name: "no stream, one key", class: "no_stream", oneKey: true},
		{name: "no stream, many keys", class: "no_stream"},
		{name: "no stream, many subjects", class: "no_stream", kinds: 20},
		{name: "no stream, many subjects, also of the newest", class: "no_stream", kinds: 20, newest: true},
		{name: "no stream but a listener, many subjects", class: "no_stream", kinds: 20, heard: true},
		{name: "no stream but a listener that answers", class: "no_stream", heard: true, says: "thanks"},
		{name: "too large, one key", size: 5000, class: "js_10054", oneKey: true},
		{name: "too large, many keys", size: 5000, class: "js_10054"},
		{name: "refused, one key", class: "js_10169", oneKey: true},
		{name: "refused, many keys", class: "js_10169"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := openRefusalRig(t, devtest.NATS(t))
			o.stream("good", jetstream.StreamConfig{})
			switch tt.class {
			case "js_10054":
				o.stream("bad", jetstream.StreamConfig{MaxMsgSize: 4000})
			case "js_10169":
				o.stream("bad", jetstream.StreamConfig{AllowMsgCounter: true})
			}
			if tt.heard {
				listening, err := o.nc.Subscribe(o.subject(">"), func(m *nats.Msg) {
					if tt.says != "" && m.Subject != o.subject("good") {
						_ = m.Respond([]byte(tt.says))
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = listening.Unsubscribe() })
			}
			var letters []letter
			for n := range most + 500 {
				l := letter{kind: "bad", key: "bad", size: tt.size}
				if !tt.oneKey {
					l.key = fmt.Sprint("bad", n)
				}
				if tt.kinds > 0 {
					l.kind = fmt.Sprint("bad", n%tt.kinds)
				}
				letters = append(letters, l)
			}
			write := func(letters []letter) {
				for some := range slices.Chunk(letters, 100) {
					o.write(some...)
				}
			}
			cfg := relay.Config{MaxUnpublished: most, AcceptRisks: []broker.Risk{natsjs.SmallMessages}}
			good, more := 50, 0
			if tt.newest { // an earlier relay has published the one before
				o.write(letter{kind: "good", key: "good"})
				stop := o.relay(cfg)
				o.waitForStored("good", 1)
				stop()
				good, more = 51, 1200
			}
			write(letters)
			o.write(several(50, "good", "good")...)
			write(letters[:more])
			o.relay(cfg)
			o.waitForStored("good", good)
			o.wantInOrder("good", "good")
			held := o.waitForHeld(most + 500 + more)
			if held[0].Class != tt.class {
				t.Errorf("the first is held as %+v, want class %s", held[0], tt.class)
			}
		})
	}
}

// If a relay starts while keys have held events, no event of these keys passes.
func TestRestartedRelayFindsHeldKeys(t *testing.T) {
	t.Parallel()
	o := openRefusalRig(t, devtest.NATS(t))
	o.stream("there", jetstream.StreamConfig{})
	o.write(several(3, "missing", "k")...)
	o.write(several(3, "there", "other")...)
	stop := o.relay(relay.Config{})
	o.waitForHeld(3)
	stop()

	o.stream("missing", jetstream.StreamConfig{}) // the held events are not due yet
	o.write(several(3, "missing", "k")...)
	o.write(several(3, "there", "other")...)
	stop = o.relay(relay.Config{})
	o.waitForStored("there", 6)
	o.wantFirstHeld(o.waitForHeld(6), "due", "no_stream", 0)
	stop()
	o.relay(relay.Config{})
	o.write(several(3, "missing", "k")...)
	o.wantFirstHeld(o.waitForHeld(9), "due", "no_stream", 0)
	if n := o.count("missing"); n > 0 {
		t.Errorf("%d events have passed those that are held", n)
	}
	o.overrideNextAt()
	o.waitForHeld(0)
	o.write(several(3, "missing", "k")...)
	o.waitForStored("missing", 12)
	o.wantInOrder("missing", "k")
	o.wantInOrder("there", "other")
}
