package natsjs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// leaseTable stands for the database: it knows who leads.
type leaseTable struct {
	mu     sync.Mutex
	epoch  int64
	asking func() // is called before Confirm answers
}

// claim begins a term.
func (o *leaseTable) claim() broker.LeaderToken {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.epoch++
	mine := o.epoch
	return broker.LeaderToken{Instance: "log", Epoch: mine, Confirm: func(context.Context) error {
		o.mu.Lock()
		leads, asking := o.epoch == mine, o.asking
		o.mu.Unlock()
		if asking != nil {
			asking() // whatever happens now, the answer was true when it was given
		}
		if !leads {
			return fmt.Errorf("look at lease: %w", eventlog.ErrLeaseLost)
		}
		return nil
	}}
}

// atomicTerm is a JetStreamPublisher at work in atomic batches.
type atomicTerm struct {
	publisher

	ended chan error
}

// begin begins a term in atomic batches.
func begin(t *testing.T, nc *nats.Conn, claim broker.LeaderToken) *atomicTerm {
	t.Helper()
	devtest.NeedsNATS(t, nc, 12)
	p := &atomicTerm{
		publisher: publisher{T: t, batches: make(chan []*broker.Message), outcomes: make(chan outcome, 5000)},
		ended:     make(chan error, 1),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ended <- natsjs.NewPublisher(nc).RunAtomic(ctx, claim, p.batches, func(f *broker.Message, o broker.Outcome) {
			p.outcomes <- outcome{f.Seq, o.Duplicate, o.Class, o.Stream, o.Err}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return p
}

// error returns why the term ended.
func (p *atomicTerm) error() error {
	p.Helper()
	return devtest.Receive(p, 30*time.Second, "the term to end", p.ended)
}

// all returns the outcomes of n events, by seq.
func (p *atomicTerm) all(n int) map[int64]outcome {
	p.Helper()
	got := map[int64]outcome{}
	for range n {
		o := p.next()
		if _, twice := got[o.seq]; twice {
			p.Errorf("event %d got two outcomes", o.seq)
		}
		got[o.seq] = o
	}
	return got
}

// store sends events until all are stored, as the relay does.
func (p *atomicTerm) store(events ...broker.Event) {
	p.Helper()
	for together := range slices.Chunk(events, 1000) {
		p.storeBatch(slices.Clone(together))
	}
}

func (p *atomicTerm) storeBatch(events []broker.Event) {
	p.Helper()
	devtest.Eventually(p, clusterPatience, "all events to be stored", func() bool {
		p.send(events...)
		got := p.all(len(events))
		events = slices.DeleteFunc(events, func(ev broker.Event) bool { return got[ev.Seq].class == broker.Stored })
		for _, ev := range events {
			if o := got[ev.Seq]; o.class != broker.Unknown && o.class != broker.Unavailable && o.class != broker.BlockedByKey {
				p.Fatalf("event %d: %s, %v", ev.Seq, o.class, o.err)
			}
		}
		return len(events) == 0
	})
}

// series returns events of some keys in turn, from seq 1.
func series(subject, id string, n, keys int) []broker.Event {
	all := make([]broker.Event, n)
	for i := range all {
		all[i] = event(int64(i+1), subject, fmt.Sprintf("%s-%d", id, i+1))
		all[i].Key = fmt.Sprint(i % keys)
	}
	return all
}

// atomicStream makes a stream for atomic batches.
func atomicStream(t *testing.T, nc *nats.Conn, name, subject string) jetstream.Stream {
	t.Helper()
	s := stream(t, nc, jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowAtomicPublish: true})
	remove(t, nc, name)
	return s
}

// remove deletes a stream at the test's end, so that the next run does not find it.
func remove(t *testing.T, nc *nats.Conn, name string) {
	js := devtest.JetStream(t, nc)
	t.Cleanup(func() { _ = js.DeleteStream(context.WithoutCancel(t.Context()), name) }) // its server may be gone
}

// stored returns the ids of the events in a stream, in its order, and how many
// messages of leases.
func stored(t *testing.T, s jetstream.Stream) (ids []string, leases int) {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			t.Fatal(err)
		case strings.HasPrefix(m.Subject, "postroom.lease."):
			leases++
		default:
			ids = append(ids, m.Header.Get("ce-id"))
		}
	}
	return ids, leases
}

func idsOf(events []broker.Event) []string {
	var ids []string
	for _, ev := range events {
		ids = append(ids, ev.ID)
	}
	return ids
}

// The events of a batch are stored in its order, even if many of them have one key. The next batch
// is stored after it.
func TestAtomicBatchesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := atomicStream(t, nc, "ATOMIC", "atomic.a")
	p := begin(t, nc, new(leaseTable).claim())
	events := series("atomic.a", "a", 2500, 3)
	first := map[int64]outcome{}
	for together := range slices.Chunk(events, 1000) {
		p.send(together...)
		maps.Copy(first, p.all(len(together)))
	}
	for seq := int64(1); seq <= 2500; seq++ {
		if o := first[seq]; o.class != broker.Stored || o.stream != "ATOMIC" || o.duplicate {
			t.Fatalf("outcome %+v, want stored in ATOMIC", o)
		}
	}
	ids, leases := stored(t, s)
	if !slices.Equal(ids, idsOf(events)) || leases != 2 {
		t.Errorf("%d events in the stream, not in their order, and %d messages of the lease, want 2500 and 2", len(ids), leases)
	}
}

// An outcome names the sequence of the event in its stream.
func TestAtomicOutcomesNameTheSequence(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := atomicStream(t, nc, "ATSEQ", "atseq.a")
	sequences := make(chan broker.Outcome, 20)
	batches := make(chan []*broker.Message, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	events := series("atseq.a", "s", 10, 10)
	large := event(11, "atseq.a", "large")
	large.Data = make([]byte, 2<<20)
	events = slices.Insert(events, 5, large)
	go func() {
		ended <- natsjs.NewPublisher(nc).RunAtomic(ctx, new(leaseTable).claim(), batches, func(f *broker.Message, o broker.Outcome) {
			if f.ID != "large" {
				o.Err = errors.New(f.ID)
			}
			sequences <- o
		})
	}()
	batches <- asMessages(events[:3]...)
	batches <- asMessages(events[3:]...)
	for range events {
		o := <-sequences
		if o.Class == broker.Permanent {
			continue
		}
		m, err := s.GetMsg(t.Context(), o.Sequence)
		if err != nil || m.Header.Get("ce-id") != o.Err.Error() {
			t.Errorf("message %d (%v) is not that of event %v", o.Sequence, err, o.Err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("RunAtomic = %v after its context ended", err)
	}
}

// If the broker or the client will never take one event of a thousand, only that event is
// dead. The events behind it in its key are reported before it.
func TestAtomicOneBadEventAmongAThousand(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	for _, tt := range []struct {
		name   string
		larger int // bytes: more than the stream or the client allows
		want   error
	}{
		{"refused by the stream", 64 << 10, nil},
		{"refused by the client", 2 << 20, nats.ErrMaxPayload},
	} {
		for place, bad := range map[string]int64{"first": 1, "in the middle": 500, "last": 1000} {
			t.Run(tt.name+", "+place, func(t *testing.T) {
				name := fmt.Sprintf("BAD%d-%d", tt.larger, bad)
				s := stream(t, nc, jetstream.StreamConfig{
					Name: name, Subjects: []string{name + ".a"}, AllowAtomicPublish: true, MaxMsgSize: 32 << 10,
				})
				p := begin(t, nc, new(leaseTable).claim())
				events := series(name+".a", "b", 1000, 250)
				events[bad-1].Data = make([]byte, tt.larger)
				p.send(events...)
				behind := map[int64]bool{}
				for range events {
					o := p.next()
					switch {
					case o.class == broker.BlockedByKey && (o.seq-bad)%250 == 0 && o.seq > bad:
						behind[o.seq] = true
					case o.class == broker.Permanent && o.seq == bad:
						if want := (1000 - bad) / 250; int64(len(behind)) != want {
							t.Errorf("%d of its key were reported before it, want %d", len(behind), want)
						}
						if tt.want != nil && !errors.Is(o.err, tt.want) {
							t.Errorf("it is dead of %v, want %v", o.err, tt.want)
						}
					case o.class != broker.Stored:
						t.Errorf("event %d: %s, %v", o.seq, o.class, o.err)
					}
				}
				ids, _ := stored(t, s)
				var want []string
				for _, ev := range events {
					if ev.Seq != bad && !behind[ev.Seq] {
						want = append(want, ev.ID)
					}
				}
				if !slices.Equal(ids, want) {
					t.Errorf("%d events are stored, want %d in their order", len(ids), len(want))
				}
			})
		}
	}
}

// No batch spans two streams. If the events of a key go to different streams, each waits until
// the one before it is stored. The waiting ones are reported first.
func TestAtomicKeysWithEventsOfTwoStreams(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	one, two := atomicStream(t, nc, "ONE", "one.a"), atomicStream(t, nc, "TWO", "two.a")
	p := begin(t, nc, new(leaseTable).claim())
	p.store(event(100, "one.a", "first")) // its stream is known, the other is not
	for range 2 {
		id := nats.NewInbox()
		events := series("one.a", id, 4, 1)
		events[1].Subject, events[1].Type = "two.a", "two.a"
		p.send(events...)
		got := []outcome{p.next(), p.next(), p.next(), p.next()}
		for i, seq := range []int64{4, 3, 2, 1} {
			class := broker.BlockedByKey
			if seq == 1 {
				class = broker.Stored
			}
			if got[i].seq != seq || got[i].class != class {
				t.Errorf("outcome %d is %+v, want that %d is %s", i, got[i], seq, class)
			}
		}
		for _, ev := range events[1:] { // as the relay does
			p.store(ev)
		}
	}
	inOne, _ := stored(t, one)
	inTwo, _ := stored(t, two)
	if len(inOne) != 7 || len(inTwo) != 2 {
		t.Errorf("%d and %d events are stored, want 7 and 2", len(inOne), len(inTwo))
	}
}
