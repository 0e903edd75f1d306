package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/wire"
)

// errUndecided ends a round of Read: messages may be acknowledged that are not decided. The next
// call of ensure begins again at the recorded floor.
var errUndecided = errors.New("messages may be acknowledged that are not decided")

// noteFloor records the sequence up to which all messages are decided. The broker's floor only says
// up to which sequence all messages are acknowledged. A person or another program may have
// acknowledged some of them, and the database may have lost what a process decided. So noteFloor
// believes the broker only if this process decided the messages in this database, or if it finds
// their inbox rows. If a message is not decided, noteFloor returns errUndecided. If it can record
// nothing now, it returns nil.
func (s *DurableReader) noteFloor(ctx context.Context, stream jetstream.Stream, info *jetstream.ConsumerInfo) error {
	if s.stays {
		return nil
	}
	err := s.note(ctx, stream, info)
	if err == nil || errors.Is(err, errUndecided) {
		return err
	}
	if ctx.Err() == nil {
		s.Log.DebugContext(ctx, "floor not recorded, a later check records it", "error", err)
	}
	return nil
}

func (s *DurableReader) note(ctx context.Context, stream jetstream.Stream, info *jetstream.ConsumerInfo) error {
	at, err := s.records.Place(ctx, s.created(), s.FloorEvery/2)
	if err != nil {
		return err
	}
	//guard:a-process-forgets-with-the-server 1 false
	//guard:a-process-forgets-with-a-lower-floor 2 false
	if !at.Server.Equal(s.server) || at.Floor < s.recorded { // the database may have lost what this process decided
		s.own.forget()
	}
	first := s.server.IsZero()
	s.server, s.recorded = at.Server, at.Floor
	through := info.AckFloor.Stream
	floor, lost := max(through, at.Floor), false
	switch {
	case through <= at.Floor:
	//guard:a-floor-of-own-decisions-is-not-read-again false
	case s.own.are(info.AckFloor.Consumer, s.InFlight):
	case s.cannotTell(stream):
		if at.Moved && !s.blind {
			s.Log.WarnContext(ctx, "database server was restarted or replaced, reading again from the recorded floor", "stream", s.Stream, "from_seq", at.Floor+1)
			s.back = &at
			return errUndecided
		}
	//guard:a-process-looks-when-it-starts 3 true
	case at.Recent && !at.Moved && !first: // another process has just looked
		return nil
	default:
		if floor, lost, err = s.decidedThrough(ctx, stream, consumer.Filter(info.Config), at, through); err != nil {
			return err
		}
	}
	if floor > at.Floor || at.Moved {
		if err := s.records.Raise(ctx, s.created(), at, floor); err != nil {
			return err
		}
		s.recorded = floor
	}
	if lost {
		s.to.Lost(ctx, lostUndecided)
		s.Log.ErrorContext(ctx, "messages were acknowledged that are not decided, reading again from before them",
			"stream", s.Stream, "consumer", info.Name, "from_seq", floor+1, "acknowledged_through", through)
		at.Floor = floor
		s.back = &at
		return errUndecided
	}
	if floor >= through {
		s.own.verified(info.AckFloor.Consumer)
	}
	return nil
}

// cannotTell reports whether a message without an inbox row may be decided, or whether this process
// cannot read acknowledged messages again. Only a stream with limits retention still has them.
func (s *DurableReader) cannotTell(stream jetstream.Stream) bool {
	return s.OwnKeys || s.blind || stream.CachedInfo().Config.Retention != jetstream.LimitsPolicy
}

// mayRead describes an error of the broker, because of which this process cannot read messages again.
// If the user may not do that, mayRead notes it.
func (s *DurableReader) mayRead(ctx context.Context, err error) error {
	err = fmt.Errorf("read messages again: %w", err)
	switch {
	//guard:a-process-looks-again-when-the-broker-allows-it = s.isRefused(err)
	case s.isForbidden(err):
		s.blind = true
		s.Log.WarnContext(ctx, "cannot check whether acknowledged messages are decided: permission denied; grant $JS.API.CONSUMER.>",
			"stream", s.Stream, "error", err)
	case s.isRefused(err):
		s.Log.WarnContext(ctx, "cannot check whether acknowledged messages are decided, will try again", "stream", s.Stream, "error", err)
	}
	return err
}

// goBack creates the consumer again at the recorded floor, if messages may be acknowledged that are
// not decided. It then records that the floor is valid for the database server as it is now.
func (s *DurableReader) goBack(ctx context.Context, stream jetstream.Stream, durable jetstream.Consumer, row delivery.Subscription) (jetstream.Consumer, error) {
	if s.back == nil {
		return durable, nil
	}
	by, err := s.beginAtFloor(ctx, stream, durable.CachedInfo().Config, row)
	if s.isRefused(err) {
		s.back = nil // the next check finds what is not decided
		if s.isForbidden(err) {
			//guard:a-floor-waits-for-the-right-to-begin-again do s.blind = true
			s.stays = true // the next process that may begin again finds it
		}
		s.Log.ErrorContext(ctx, "cannot begin again before messages that are not decided", "stream", s.Stream, "consumer", durable.CachedInfo().Name, "from_seq", row.Floor+1,
			"error", err, "advice", s.advice(err))
		return durable, nil
	}
	if err == nil {
		err = s.records.Raise(ctx, s.created(), *s.back, row.Floor)
	}
	if err != nil {
		return nil, err
	}
	s.back = nil
	return by, nil
}

const (
	// A page has the messages for which one statement looks for inbox rows.
	pageMessages = 500
	pageBytes    = 4 << 20

	// mostRead is about how many messages a process reads again at one check.
	mostRead = 100_000
)

// errBodies says that the attributes of an event may be in the body of its message.
var errBodies = errors.New("the next check reads the bodies of messages, too")

// decidedThrough reads the messages above the recorded floor again, and looks for their inbox rows.
// It returns the sequence up to which all messages are decided: the parameter through, or less if
// there are very many messages. If lost is true, the next message is not decided.
func (s *DurableReader) decidedThrough(ctx context.Context, stream jetstream.Stream, filter []string, at delivery.Recorded, through uint64) (floor uint64, lost bool, err error) {
	floor = max(at.Floor, min(at.Skipped, through))
	reader, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Description:       "Postroom looks for events of handler " + s.Handler + " that are not decided",
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       floor + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubjects:    filter,
		HeadersOnly:       !s.bodies,
		InactiveThreshold: consumer.Threshold(stream.CachedInfo().Config, readerThreshold),
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return 0, false, s.mayRead(ctx, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = stream.DeleteConsumer(ctx, reader.CachedInfo().Name) // if it fails, the broker removes the consumer after its threshold
	}()
	pages := pages{conn: s.Conn, consumer: reader, origin: s.origin, pending: reader.CachedInfo().NumPending}
	for pages.pending > 0 && pages.read < mostRead {
		page, err := pages.next(ctx)
		if err != nil {
			return 0, false, s.mayRead(ctx, err)
		}
		if i := slices.IndexFunc(page, func(d *delivery.Delivery) bool { return d.Place.Seq > through }); i >= 0 {
			page, pages.pending = page[:i], 0
		}
		//guard:a-lease-message-is-not-missing = slices.DeleteFunc(slices.Clone(page), func(*delivery.Delivery) bool { return wire.IsLease("") })
		events := slices.DeleteFunc(slices.Clone(page), func(d *delivery.Delivery) bool { return wire.IsLease(d.Msg.Subject()) })
		if !s.bodies && slices.ContainsFunc(events, func(d *delivery.Delivery) bool { return d.Fault != nil }) {
			s.bodies = true
			return 0, false, errBodies
		}
		first, err := s.to.Undecided(ctx, events)
		switch {
		case err != nil:
			return 0, false, err
		case first != nil:
			return first.Place.Seq - 1, true, nil
		case len(page) > 0:
			floor = page[len(page)-1].Place.Seq
		}
	}
	if pages.pending == 0 {
		floor = through
	}
	return floor, false, nil
}

// pages reads the messages of a consumer page by page.
type pages struct {
	conn     *nats.Conn
	consumer jetstream.Consumer
	origin   delivery.Origin
	pending  uint64 // how many messages the consumer has not sent
	read     uint64 // how many messages it has sent
}

// next returns the next messages. If the next message is larger than a page, it comes alone.
func (p *pages) next(ctx context.Context) (page []*delivery.Delivery, err error) {
	take := func(msg jetstream.Msg) error {
		d, err := delivery.Decode(msg, p.origin)
		if err != nil {
			return err
		}
		if d.Place.Number != p.read+1 {
			return errGap
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		p.read, p.pending = d.Place.Number, meta.NumPending
		page = append(page, d)
		return nil
	}
	for _, size := range [][2]int{{int(min(p.pending, pageMessages)), pageBytes}, {1, 0}} { //nolint:gosec // a page
		request, err := newPull(p.conn, p.consumer, size[0], size[1])
		if err != nil {
			return nil, err
		}
		if err := request.messages(ctx, nil, take); err != nil {
			return nil, err
		}
		if len(page) > 0 {
			return page, nil
		}
	}
	return nil, errors.New("the broker sends no messages")
}

// ownDeliveries says which deliveries of the consumer came to this process. The consumer numbers
// its deliveries. If a number is missing, the message went to another process, to another program,
// or was lost on its way.
type ownDeliveries struct {
	mu   sync.Mutex
	made time.Time // when the consumer was created
	last uint64    // the last delivery that came
	gap  uint64    // the last delivery that did not come, or that this process gave back; or that it decided in another database server; at least 1, so that each process looks once
	upTo uint64    // the messages of all deliveries up to this one are decided
}

// came notes a delivery.
func (o *ownDeliveries) came(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	//guard:a-delivery-to-another-program-is-noticed false
	if number > o.last+1 {
		o.gap = number - 1
	}
	//guard:a-consumer-that-counts-again-is-looked-at false
	if number <= o.last { // an operator has reset the consumer, and it counts again: it may have passed over messages
		o.last, o.gap, o.upTo = 0, number, 0
	}
	o.last = max(o.last, number)
}

// left notes that this process gives a delivery back.
func (o *ownDeliveries) left(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gap = max(o.gap, number)
}

// forget makes the object count no earlier delivery as decided.
func (o *ownDeliveries) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gap, o.upTo = max(o.gap, o.last), 0
}

// from sets when the current consumer was created. If it is another consumer than before, its
// deliveries have new numbers.
func (o *ownDeliveries) from(made time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.made.Equal(made) {
		//guard:a-process-looks-at-a-consumer-once 3 = 0
		o.made, o.last, o.gap, o.upTo = made, 0, 1, 0
	}
}

// verified notes that the messages of all deliveries up to a number are decided.
func (o *ownDeliveries) verified(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.upTo = max(o.upTo, number)
}

// are reports whether this process decided the messages of all deliveries up to a number, as far as
// these messages were not known to be decided before. A message in flight is not decided.
func (o *ownDeliveries) are(number uint64, inFlight *InFlight) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	//guard:a-floor-that-was-reset-is-looked-at false
	if number < o.upTo { // an operator has reset the consumer
		o.gap, o.upTo = max(o.gap, o.last), 0
	}
	return o.gap <= o.upTo && number <= o.last &&
		!slices.ContainsFunc(inFlight.messages(), func(msg jetstream.Msg) bool { return deliveryOf(msg) <= number })
}

// deliveryOf returns the number that the consumer gave a delivery, or 0 if the message is from no
// consumer.
func deliveryOf(msg jetstream.Msg) uint64 {
	meta, err := msg.Metadata()
	if err != nil {
		return 0
	}
	return meta.Sequence.Consumer
}
