package natsjs_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/relay/broker"
)

// If a stream is full and refuses a batch, that is an attempt for none of its events. After a few
// single events the publisher does not try the others.
func TestAFullStreamRefusesABatch(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := openStream(t, nc, "FULLBATCH", func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 5 })
	p := begin(t, nc, new(leaseTable).claim())
	events := series("FULLBATCH.a", "f", 200, 200)
	p.send(events...)
	classes := map[broker.Class]int{}
	for _, o := range p.all(200) {
		classes[o.class]++
	}
	if classes[broker.Stored] != 3 || classes[broker.Unavailable] != 197 {
		t.Errorf("outcomes %v, want 3 stored in the room there is, and the others unavailable", classes)
	}
	before := nc.Stats().OutMsgs
	p.send(events[3:]...)
	for _, o := range p.all(197) {
		if o.class != broker.Unavailable {
			t.Fatalf("outcome %+v, want unavailable", o)
		}
	}
	if sent := nc.Stats().OutMsgs - before; sent > 197+50 {
		t.Errorf("%d messages were sent to find out that the stream is full", sent)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgs = -1
	if _, err := devtest.JetStream(t, nc).UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	p.store(events[3:]...)
}

// A server may take smaller batches than others do: the relay finds out how small.
func TestRelayLearnsTheBatchSizeOfAServer(t *testing.T) {
	t.Parallel()
	devtest.NeedsNATS(t, devtest.NATS(t), 12)
	server := startNATS(t, devstack.NATSConfig{Options: "jetstream { limits { batch { max_msgs: 90 } } }"})
	nc := connect(t, server.URL())
	s := atomicStream(t, nc, "SMALL", "small.a")
	p := begin(t, nc, new(leaseTable).claim())
	events := series("small.a", "s", 1000, 3)
	before := nc.Stats().InMsgs
	p.store(events...) // events that do not fit come again, behind those that fit
	if got := nc.Stats().InMsgs - before; got > 200 {
		t.Errorf("%d answers to 1000 events: they were not sent in batches", got)
	}
	if ids, _ := stored(t, s); len(ids) != len(events) || !inOrder(ids, 3) {
		t.Errorf("%d events are stored, want 1000, each key in order", len(ids))
	}
}

// inOrder reports whether the events of series are in the order of their keys.
func inOrder(ids []string, keys int) bool {
	last := make([]int, keys)
	for _, id := range ids {
		_, number, _ := strings.Cut(id, "-")
		n, err := strconv.Atoi(number)
		if err != nil || n <= last[n%keys] {
			return false
		}
		last[n%keys] = n
	}
	return true
}

// Events that the relay sends together stay together when batches are filled up. Otherwise the
// end of a key could be stored although its beginning is refused.
func TestAKeyIsInOneBatchAtATime(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := openStream(t, nc, "WHOLE", func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = 32 << 10 })
	asked, wake := make(chan struct{}), make(chan struct{})
	claims := &leaseTable{asking: func() { close(asked); <-wake }}
	p := begin(t, nc, claims.claim())
	one, hot := series("WHOLE.a", "others", 601, 601), series("WHOLE.a", "hot", 600, 1)
	for i := range hot {
		hot[i].Seq += 1000
		hot[i].Key = "hot"
	}
	hot[100].Data = make([]byte, 64<<10)
	p.send(one[0])
	<-asked // more events come while the term takes the fence
	p.send(one[1:]...)
	p.send(hot...)
	p.send() // when the publisher takes this batch, it has queued the ones before
	close(wake)
	for seq, o := range p.all(1201) {
		want := broker.Stored
		switch {
		case seq == 1101:
			want = broker.Permanent
		case seq > 1101:
			want = broker.BlockedByKey
		}
		if o.class != want {
			t.Errorf("event %d is %s, want %s", seq, o.class, want)
		}
	}
	if ids, _ := stored(t, s); len(ids) != 701 {
		t.Errorf("%d events are stored, want 701", len(ids))
	}
}
