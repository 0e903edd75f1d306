package natsjs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// A leader was replaced and does not know it. The broker refuses its batches and its single
// events, and its term ends.
func TestAStaleLeaderIsRefused(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"a batch": 10, "one event": 1, "a batch with an event that is stored": 11} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := devtest.NATS(t)
			stream := fmt.Sprint("STALE", n)
			s := atomicStream(t, nc, stream, stream+".a")
			var claims leaseTable
			old := begin(t, nc, claims.claim())
			old.store(series(stream+".a", "old", 10, 3)...)
			newer := begin(t, nc, claims.claim())
			newer.store(series(stream+".a", "young", 10, 3)...)

			late := series(stream+".a", "late", n, 3)
			if n == 11 { // it is sent event by event
				late[0].ID = "old-1"
			}
			old.send(late...)
			if err := old.error(); !errors.Is(err, eventlog.ErrLeaseLost) {
				t.Errorf("the old term ended with %v, want ErrLeaseLost", err)
			}
			newer.store(series(stream+".a", "more", 10, 3)...)
			ids, leases := stored(t, s)
			want := slices.Concat(idsOf(series("", "old", 10, 1)), idsOf(series("", "young", 10, 1)), idsOf(series("", "more", 10, 1)))
			if !slices.Equal(ids, want) || leases != 3 {
				t.Errorf("stored %v with %d leases, want no event of the old leader after the new one's fence", ids, leases)
			}
		})
	}
}

// A leader stalls while it takes the fence, after the database confirmed that it leads. It
// does not take the fence from the leader that replaced it.
func TestAPausedLeaderTakesNoFence(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"the new leader's lease is there", "it is gone again"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := devtest.NATS(t)
			stream := map[bool]string{true: "PAUSED", false: "PAUSEDGONE"}[name != "it is gone again"]
			s := openStream(t, nc, stream)
			var claims leaseTable
			paused, wake := make(chan struct{}), make(chan struct{})
			claims.asking = func() {
				claims.mu.Lock()
				first := claims.asking != nil
				claims.asking = nil
				claims.mu.Unlock()
				if first {
					close(paused)
					<-wake
				}
			}
			old := begin(t, nc, claims.claim())
			old.send(series(stream+".a", "old", 10, 3)...)
			<-paused
			newer := begin(t, nc, claims.claim())
			newer.store(series(stream+".a", "young", 10, 3)...)
			if stream == "PAUSEDGONE" {
				loseLeases(t, s)
			}
			close(wake)
			if err := old.error(); !errors.Is(err, eventlog.ErrLeaseLost) {
				t.Errorf("the old term ended with %v, want ErrLeaseLost", err)
			}
			newer.store(series(stream+".a", "more", 10, 3)...)
			ids, _ := stored(t, s)
			if want := slices.Concat(idsOf(series("", "young", 10, 1)), idsOf(series("", "more", 10, 1))); !slices.Equal(ids, want) {
				t.Errorf("stored %v, want no event of the old leader", ids)
			}
		})
	}
}

// openStream makes a stream for atomic batches that can be purged.
func openStream(t *testing.T, nc *nats.Conn, name string, more ...func(*jetstream.StreamConfig)) jetstream.Stream {
	t.Helper()
	devtest.NeedsNATS(t, nc, 12)
	cfg := jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".a", natsjs.LeaseSubjects(name)},
		AllowAtomicPublish: true, Discard: jetstream.DiscardNew,
	}
	for _, change := range more {
		change(&cfg)
	}
	s, err := devtest.JetStream(t, nc).CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	remove(t, nc, name)
	return s
}

// loseLeases removes the lease messages from a stream.
func loseLeases(t *testing.T, s jetstream.Stream) {
	t.Helper()
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject("postroom.lease.>")); err != nil {
		t.Fatal(err)
	}
}

// If its lease message is gone from the stream, a term is refused. If it still leads, it takes the
// fence again and sends again. Otherwise it ends.
func TestLostFenceIsTakenAgain(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := openStream(t, nc, "GONE")
	var claims leaseTable
	p := begin(t, nc, claims.claim())
	p.store(series("GONE.a", "a", 10, 3)...)
	loseLeases(t, s)
	p.store(series("GONE.a", "b", 10, 3)...)
	loseLeases(t, s)
	p.store(series("GONE.a", "c", 1, 1)...)
	ids, _ := stored(t, s)
	want := slices.Concat(idsOf(series("", "a", 10, 1)), idsOf(series("", "b", 10, 1)), idsOf(series("", "c", 1, 1)))
	if !slices.Equal(ids, want) {
		t.Errorf("stored %v", ids)
	}

	loseLeases(t, s)
	claims.claim() // another term begins and has not published yet
	p.send(series("GONE.a", "late", 10, 3)...)
	if err := p.error(); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("the old term ended with %v, want ErrLeaseLost", err)
	}
	if now, _ := stored(t, s); len(now) != len(ids) {
		t.Errorf("the old leader stored %v, although no leader had a fence", now[len(ids):])
	}
}

// The limits of a stream may remove the lease message again and again. No event is lost,
// refused for good, or out of order.
func TestEvictedFenceIsTakenAgain(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*jetstream.StreamConfig){
		"AGE": func(cfg *jetstream.StreamConfig) {
			cfg.MaxAge, cfg.Duplicates = 200*time.Millisecond, 200*time.Millisecond
		},
		"OLD": func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs, cfg.Discard = 100, jetstream.DiscardOld },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := devtest.NATS(t)
			s := openStream(t, nc, "EVICTED"+name, limit)
			p := begin(t, nc, new(leaseTable).claim())
			sent := 0
			devtest.Eventually(t, time.Minute, "the lease to be evicted and taken anew five times", func() bool {
				p.store(series("EVICTED"+name+".a", fmt.Sprint(sent), 40, 3)...)
				sent += 40
				info, err := s.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return info.State.LastSeq-uint64(sent) >= 6 // that many messages of the lease
			})
		})
	}
}

// If a stream is deleted and made again, the term ends, whatever the new stream has.
func TestAStreamThatIsMadeAgainEndsTheTerm(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	js := devtest.JetStream(t, nc)
	openStream(t, nc, "AGAIN")
	var claims leaseTable
	claim := claims.claim()
	p := begin(t, nc, claim)
	p.store(series("AGAIN.a", "a", 10, 3)...)
	if err := js.DeleteStream(t.Context(), "AGAIN"); err != nil {
		t.Fatal(err)
	}
	s := openStream(t, nc, "AGAIN")
	p.send(series("AGAIN.a", "b", 10, 3)...)
	if err := p.error(); !errors.Is(err, natsjs.ErrStreamReplaced) {
		t.Errorf("the term ended with %v, want ErrStreamReplaced", err)
	}
	if ids, _ := stored(t, s); len(ids) > 0 {
		t.Errorf("stored %v in the new stream", ids)
	}
}

// Sequences begin anew in a stream that was made again. The fence of a leader that was replaced
// before does not hold there, even if it has the same number as the fence of the new leader.
func TestAStaleLeaderIsRefusedInAStreamThatWasMadeAgain(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	js := devtest.JetStream(t, nc)
	openStream(t, nc, "TWIN")
	var claims leaseTable
	old := begin(t, nc, claims.claim())
	old.store(series("TWIN.a", "old", 10, 3)...)
	if err := js.DeleteStream(t.Context(), "TWIN"); err != nil {
		t.Fatal(err)
	}
	s := openStream(t, nc, "TWIN")
	newer := begin(t, nc, claims.claim())
	newer.store(series("TWIN.a", "young", 10, 3)...)
	old.send(series("TWIN.a", "late", 10, 3)...)
	if err := old.error(); err == nil {
		t.Error("the old term still runs")
	}
	if ids, _ := stored(t, s); !slices.Equal(ids, idsOf(series("", "young", 10, 1))) {
		t.Errorf("stored %v, want no event of the old leader", ids)
	}
}

// If a stream is not set up for atomic batches, it takes no events from such a relay until an
// operator changes it. Events of other streams go on.
func TestAStreamThatTakesNoBatchesWaits(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	stream(t, nc, jetstream.StreamConfig{Name: "PLAIN", Subjects: []string{"plain.a"}})
	remove(t, nc, "PLAIN")
	atomicStream(t, nc, "READY", "ready.a")
	p := begin(t, nc, new(leaseTable).claim())
	ready := series("ready.a", "r", 5, 5)
	for i := range ready {
		ready[i].Seq += 100
		ready[i].Key = ""
	}
	p.send(append(series("plain.a", "p", 5, 5), ready...)...)
	for seq, o := range p.all(10) {
		switch {
		case seq > 100 && o.class != broker.Stored:
			t.Errorf("event of the stream that is ready: %s, %v", o.class, o.err)
		case seq < 100 && (o.class != broker.Unavailable || !errors.Is(o.err, natsjs.ErrNotAtomic) || o.stream != "PLAIN"):
			t.Errorf("event of the other stream: %+v, want ErrNotAtomic", o)
		}
	}
	if err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: "PLAIN", AllowAtomicPublish: true}); err != nil {
		t.Fatal(err)
	}
	p.store(series("plain.a", "p", 5, 5)...)
}

// A batch is stored, and its answer is lost. The publisher sends it again and finds it stored.
// No event is stored twice, and the events that were not in the batch are stored in their
// order.
func TestALostAnswerToABatch(t *testing.T) {
	t.Parallel()
	direct := devtest.NATS(t)
	s := atomicStream(t, direct, "LOSTBATCH", "lostbatch.a")
	between := startProxy(t, devtest.NATSURL(t))
	p := begin(t, connect(t, between.url()), new(leaseTable).claim())
	p.store(series("lostbatch.a", "before", 10, 3)...)
	events := series("lostbatch.a", "it", 100, 3)
	between.losing.Store(true)
	p.send(events[:60]...)
	behind := 0
	for _, o := range p.all(60) {
		switch {
		case o.class == broker.BlockedByKey:
			behind++
		case o.class != broker.Unknown || !errors.Is(o.err, broker.ErrUnacknowledged):
			t.Errorf("outcome %+v, want unknown", o)
		}
	}
	if between.lost.Load() == 0 || behind != 57 {
		t.Errorf("%d bytes were lost, and %d events wait behind others; want some, and 57", between.lost.Load(), behind)
	}
	if info, err := s.Info(t.Context()); err != nil || info.State.Msgs != 10+60+2 {
		t.Fatalf("inconclusive: the stream has %d messages (%v), want the whole batch", info.State.Msgs, err)
	}
	between.losing.Store(false)
	p.store(events...)
	ids, _ := stored(t, s)
	if want := slices.Concat(idsOf(series("", "before", 10, 1)), idsOf(events)); !slices.Equal(ids, want) {
		t.Errorf("%d events are stored, want %d, each once: %v", len(ids), len(want), ids)
	}
}

// If the connection breaks, the term ends, because messages of the old connection may still be
// on their way.
func TestAnotherConnectionEndsTheTerm(t *testing.T) {
	t.Parallel()
	server := devtest.OwnNATS(t)
	nc := connect(t, server.URL())
	atomicStream(t, nc, "RECONNECT", "reconnect.a")
	p := begin(t, nc, new(leaseTable).claim())
	p.store(series("reconnect.a", "a", 10, 3)...)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.error(); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("the term ended with %v, want an error that says why", err)
	}
}

// If a user may not publish to the lease subject, the outcome says so, and the events wait.
func TestForbiddenLeaseSubjectIsReported(t *testing.T) {
	t.Parallel()
	server := devtest.OwnNATS(t)
	atomicStream(t, connect(t, server.URL()), "DENIED", "denied.a")
	err := server.Reload(`authorization { users: [ { user: relay, password: relay, permissions: { publish: { deny: "postroom.lease.>" } } } ] }`)
	if err != nil {
		t.Fatal(err)
	}
	p := begin(t, connect(t, server.URL(), nats.UserInfo("relay", "relay")), new(leaseTable).claim())
	p.send(series("denied.a", "d", 2, 2)...)
	for _, o := range p.all(2) {
		if o.class != broker.Unavailable || !errors.Is(o.err, broker.ErrNotAllowed) {
			t.Errorf("outcome %+v, want unavailable, not allowed", o)
		}
	}
}
