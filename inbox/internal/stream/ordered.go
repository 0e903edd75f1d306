package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/wildcard"
)

// standByEvery is how often a process tries to get the lease.
const standByEvery = 500 * time.Millisecond

// suspectTerms is how many readers in a row may end without giving up their lease while the floor
// does not move. If more readers end in this way, one of the next events may have ended their
// processes. So the next events run alone.
const suspectTerms = 3

// OrderedReader reads the stream in order while this process has the lease. A durable consumer is
// not suitable, because it repeats messages out of order, and delivers to two processes at the same
// time.
type OrderedReader struct {
	subscriber

	last     *term             // the term that Leave has to end; nil if there is none
	lastRead delivery.Position // the last position that this process read
}

// NewOrderedReader returns a reader for an ordered handler.
func NewOrderedReader(cfg Config, records Records, to Receiver) *OrderedReader {
	return &OrderedReader{subscriber: subscriber{Config: cfg, records: records, to: to}}
}

// Read waits until this process has the lease. Then it reads until life.Take ends,
// another process has the lease, or reading fails.
func (s *OrderedReader) Read(life delivery.Lifetime) error {
	err := s.read(life)
	s.revive(life.Take, err)
	return err
}

func (s *OrderedReader) read(life delivery.Lifetime) error {
	ctx := life.Take
	stream, _, again, err := s.look(ctx)
	if again {
		s.lastRead = delivery.Position{} // a position in the old stream means nothing in the new one
	}
	if err != nil {
		return err
	}
	s.Reads()
	t, err := s.standBy(ctx, stream)
	if t == nil {
		return err
	}
	if s.Pending != nil {
		s.Pending.current.Store(t)
	}
	keeping, cancel := context.WithCancel(life.Work)
	t.stopRenewing = cancel
	go t.keep(keeping) // the method leave ends it
	if err = s.to.Begin(ctx); err == nil {
		err = t.read(ctx)
	}
	if ctx.Err() != nil {
		s.last = t // Leave ends the term later, because deliveries in flight may still be decided
		return nil
	}
	t.end(cmp.Or(err, delivery.ErrTermOver))
	t.leave(life.Work)
	return err
}

// Beat does nothing: the consumer of an ordered reader expects no acknowledgements.
func (s *OrderedReader) Beat(context.Context) {}

// Leave gives up the lease, if this process has it.
func (s *OrderedReader) Leave(ctx context.Context) {
	if s.last != nil {
		s.last.leave(ctx)
		s.last = nil
	}
}

// standBy waits until this process has the lease. If ctx ends first, it returns nil.
func (s *OrderedReader) standBy(ctx context.Context, stream jetstream.Stream) (*term, error) {
	for ; ctx.Err() == nil; sleep.For(ctx, standByEvery) {
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
			lease: lease{epoch: lead.Epoch, taken: taken, noted: lead.Floor, over: make(chan struct{}), renewalEnded: make(chan struct{})},
		}
		t.floor.reset(lead.Floor)
		//guard:a-reader-learns-with-the-lease-which-backfill-is-exempt remove
		s.exempt(ctx, lead.Floor.Seq, lead.Backfill) // while this process waited, another reader may have begun again at a lower floor
		//guard:idle-readers-that-end-suspect-no-event 1 true
		if !t.pardons(ctx, lead) && lead.Takeovers > suspectTerms {
			t.left.Store(int32(s.InFlight.Most())) //nolint:gosec // Most counts messages in memory
			s.Log.ErrorContext(ctx, "several readers ended on the same events, which will run alone",
				"stream", s.Stream, "from_seq", lead.Floor.Seq+1, "takeovers", lead.Takeovers, "events", s.InFlight.Most())
		}
		return t, nil
	}
	return nil, nil //nolint:nilnil // no error: ctx ended
}

// pardons reports whether no event can have ended the readers before this one, because the stream has
// none for the handler. If so, it records that.
func (t *term) pardons(ctx context.Context, lead *delivery.Lead) bool {
	if lead.Takeovers == 0 {
		return true
	}
	has, err := t.has(ctx, lead.Floor.Seq+1, math.MaxUint64)
	if err == nil && !has {
		err = t.reader.records.Pardon(ctx, lead.Epoch)
	}
	if err != nil {
		t.reader.Log.DebugContext(ctx, "cannot tell whether an event ended the readers before", "error", err)
	}
	return err == nil && !has
}

// A term is the time in which this process reads with one lease. It implements delivery.Source for
// the deliveries that the process reads in that time.
type term struct {
	lease

	reader *OrderedReader
	base   int64 // a stream sequence plus base is the event's position in the order of its key
	high   int64 // the highest position of a held event when the term began
	stream jetstream.Stream

	subjects []string // all subjects that any process had asked for when the term began

	floor floor
	left  atomic.Int32 // how many more events are suspects: each may be the event that ended processes
}

// Suspects reports whether an event that is read now may be the one that ended processes.
func (t *term) Suspects() bool { return t.left.Load() > 0 }

// Ack notes that a delivery need not be read again.
func (t *term) Ack(_ context.Context, d *delivery.Delivery) {
	t.floor.decided(d.Place.Seq)
	t.reader.InFlight.drop(d.Msg)
}

// HandBack ends the term. An ordered reader cannot give back a single message, so the next term
// reads everything above the floor again.
func (t *term) HandBack(_ context.Context, d *delivery.Delivery) {
	t.end(errHandedBack)
	t.reader.InFlight.drop(d.Msg)
}

var errHandedBack = errors.New("event handed back, reading again from before it")

// Delay ends the term, as HandBack does.
func (t *term) Delay(_ context.Context, d *delivery.Delivery, err error) {
	t.end(err)
	t.reader.InFlight.drop(d.Msg)
}

// Held notes that a suspect event is held as solitary, so that it will run alone. After the last
// suspect, events run as usual again.
func (t *term) Held(h delivery.Holding) {
	if h.Solitary && t.left.Add(-1) == 0 {
		t.reader.Log.Info("suspect events held, reading goes on", "stream", t.reader.Stream) //nolint:sloglint // no context says more
	}
}

// read reads the stream until ctx or the term ends, or reading fails.
func (t *term) read(ctx context.Context) error {
	reconnects := t.reader.Conn.Stats().Reconnects
	if err := t.check(ctx); err != nil {
		return err
	}
	from := t.floor.now()
	consumer, err := t.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Description:    "Postroom ordered handler " + t.reader.Handler,
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    from.Seq + 1,
		AckPolicy:      jetstream.AckNonePolicy,
		FilterSubjects: wildcard.Union(nil, t.subjects),
		//guard:the-readers-threshold-is-within-the-streams-limit = max(@2, @)
		InactiveThreshold: consumer.Threshold(t.stream.CachedInfo().Config, readerThreshold),
		MemoryStorage:     true,
		Replicas:          1,
		Metadata:          map[string]string{identity.InstanceKey: t.reader.Instance(), identity.HandlerKey: t.reader.Handler},
	})
	if err != nil {
		return t.reader.refuseClosed(fmt.Errorf("read stream %s: %w", t.reader.Stream, err))
	}
	defer t.forget(consumer)
	r := &pass{term: t, consumer: consumer, made: consumer.CachedInfo().Config, reconnects: reconnects, gap: make(chan struct{}), sound: from}
	r.last.Store(from.Seq)
	watching, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(watching)
	}()
	err = r.pull(ctx)
	cancel()
	<-watched
	//guard:an-ordered-reader-goes-back-after-drift false
	if errors.Is(err, errDrifted) {
		if back := t.beginAt(ctx, r.sound, r.last.Load()); back != nil {
			return back
		}
	}
	return err
}

// forget removes the consumer. If that fails, the broker removes the consumer after
// readerThreshold.
func (t *term) forget(consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := t.stream.DeleteConsumer(ctx, consumer.CachedInfo().Name); err != nil {
		t.reader.Log.DebugContext(ctx, "reader's consumer not removed, the broker will remove it", "error", err)
	}
}
