package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/pause"
	"github.com/postroom/postroom/internal/wildcard"
)

// standByEvery is how often a process looks whether it may read.
const standByEvery = 500 * time.Millisecond

// suspectTerms is how many readers in a row may end without a word, and without the
// floor having moved, before what they read runs alone.
const suspectTerms = 3

// Ordered reads the stream in its order, for as long as this is the process that does so.
// A durable consumer would not do: it delivers again out of order, and to two processes at
// a time.
type Ordered struct {
	subscriber

	last     *term             // in which it read when it was to end
	lastRead delivery.Position // by this process
}

// NewOrdered returns what reads for an ordered handler.
func NewOrdered(cfg Config, records Records, to Receiver) *Ordered {
	return &Ordered{subscriber: subscriber{Config: cfg, records: records, to: to}}
}

// Read waits until this process may read, and does so until nothing more is to be taken,
// another process reads, or reading fails.
func (s *Ordered) Read(life delivery.Lifetime) error {
	ctx := life.Take
	stream, _, again, err := s.look(ctx)
	if again {
		s.lastRead = delivery.Position{} // of the other stream
	}
	if err != nil {
		return err
	}
	t, err := s.standBy(ctx, stream)
	if t == nil {
		return err
	}
	if s.Pending != nil {
		s.Pending.current.Store(t)
	}
	keeping, cancel := context.WithCancel(life.Work)
	t.unkeep = cancel
	go t.keep(keeping) // until leave
	if err = s.to.Begin(ctx); err == nil {
		err = t.read(ctx)
	}
	if ctx.Err() != nil {
		s.last = t // what is in hand may still be decided
		return nil
	}
	t.end(cmp.Or(err, delivery.ErrTermOver))
	t.leave(life.Work)
	return err
}

// Beat does nothing: what is in hand was not delivered to this process alone.
func (s *Ordered) Beat(context.Context) {}

// Leave gives the lease up, if this process has it.
func (s *Ordered) Leave(ctx context.Context) {
	if s.last != nil {
		s.last.leave(ctx)
		s.last = nil
	}
}

// standBy waits until this process may read. It returns nil where ctx ends before.
func (s *Ordered) standBy(ctx context.Context, stream jetstream.Stream) (*term, error) {
	for ; ctx.Err() == nil; pause.For(ctx, standByEvery) {
		taken := time.Now()
		lead, err := s.records.Lead(ctx, s.AckWait)
		if err != nil {
			return nil, err
		}
		if lead == nil {
			continue
		}
		t := &term{
			reader: s, stream: stream, base: lead.Base, high: lead.High, subjects: lead.Subjects,
			lease: lease{epoch: lead.Epoch, taken: taken, noted: lead.Floor, over: make(chan struct{}), kept: make(chan struct{})},
		}
		t.floor.reset(lead.Floor)
		if lead.Takeovers > suspectTerms {
			t.left.Store(int32(s.InFlight.Most())) //nolint:gosec // a number of messages in memory
			s.Log.ErrorContext(ctx, "readers ended without a word, and each had read the same events: these are held and run alone",
				"stream", s.Stream, "from_seq", lead.Floor.Seq+1, "takeovers", lead.Takeovers, "events", s.InFlight.Most())
		}
		return t, nil
	}
	return nil, nil //nolint:nilnil // there is no term
}

// term is the time for which this process reads under one lease. It is the source of what
// it reads.
type term struct {
	lease

	reader *Ordered
	base   int64 // what is added to a sequence for its place in a key
	high   int64 // the last place of a key in which an event was held at the beginning
	stream jetstream.Stream

	subjects []string // every one that any process asked for until the term began

	floor floor
	left  atomic.Int32 // how many events that it reads are suspects
}

// Suspects reports whether what is read now may be what ends processes.
func (t *term) Suspects() bool { return t.left.Load() > 0 }

// Ack notes that a delivery needs no more reading.
func (t *term) Ack(_ context.Context, d *delivery.Delivery) {
	t.floor.decided(d.Place.Seq)
	t.reader.InFlight.drop(d.Msg)
}

// HandBack ends the term: a reader cannot return a message, and what it read is read again.
func (t *term) HandBack(_ context.Context, d *delivery.Delivery) {
	t.end(errHandedBack)
	t.reader.InFlight.drop(d.Msg)
}

var errHandedBack = errors.New("an event was handed back; reading begins again before it")

// Delay ends the term, as HandBack does.
func (t *term) Delay(_ context.Context, d *delivery.Delivery, err error) {
	t.end(err)
	t.reader.InFlight.drop(d.Msg)
}

// Held notes that a suspect is held: from there it runs alone.
func (t *term) Held(h delivery.Holding) {
	if h.Solitary && t.left.Add(-1) == 0 {
		t.reader.Log.Info("the events that were read when readers ended are held, reading goes on", "stream", t.reader.Stream) //nolint:sloglint // no context says more
	}
}

// read reads the stream until ctx or the term ends, or reading fails.
func (t *term) read(ctx context.Context) error {
	reconnects := t.reader.Conn.Stats().Reconnects
	if err := t.check(ctx); err != nil {
		return err
	}
	from := t.floor.now().Seq
	consumer, err := t.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Description:       "Postroom ordered handler " + t.reader.Handler,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubjects:    wildcard.Union(nil, t.subjects),
		InactiveThreshold: consumer.Threshold(t.stream.CachedInfo().Config, readerThreshold),
		MemoryStorage:     true,
		Replicas:          1,
		Metadata:          map[string]string{identity.InstanceKey: t.reader.Instance(), identity.HandlerKey: t.reader.Handler},
	})
	if err != nil {
		return t.reader.refuseClosed(fmt.Errorf("read stream %s: %w", t.reader.Stream, err))
	}
	defer t.forget(consumer)
	r := &reading{term: t, consumer: consumer, reconnects: reconnects, gap: make(chan struct{})}
	r.last.Store(from)
	watching, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(watching)
	}()
	err = r.pull(ctx)
	cancel()
	<-watched
	return err
}

// forget removes the consumer, which otherwise goes by itself after readerThreshold.
func (t *term) forget(consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := t.stream.DeleteConsumer(ctx, consumer.CachedInfo().Name); err != nil {
		t.reader.Log.DebugContext(ctx, "reader's consumer not removed; it goes by itself", "error", err)
	}
}
