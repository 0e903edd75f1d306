package natsjs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/wire"
)

// lookTimeout bounds a question about a stream.
const lookTimeout = 2 * ackTimeout

// Compare looks at the message of the place, as [broker.Verifier] describes. A message that is
// not there any more is a loss too: nobody deletes from a stream that [EnsureStream]
// made.
func (p *Publisher) Compare(ctx context.Context, at eventlog.Place) (broker.Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	js, err := jetstream.New(p.nc)
	if err != nil {
		return broker.Standing{}, fmt.Errorf("jetstream: %w", err)
	}
	stream, err := js.Stream(ctx, at.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return broker.Standing{Verdict: broker.Absent}, nil
	}
	if err != nil {
		return broker.Standing{}, explain("look at stream "+at.Stream, err)
	}
	info := stream.CachedInfo()
	s := broker.Standing{
		Verdict: broker.Kept, First: info.State.FirstSeq, FirstTime: info.State.FirstTime, Subjects: info.Config.Subjects,
		Limits: info.Config.Retention == jetstream.LimitsPolicy,
		Last:   eventlog.Place{Stream: at.Stream, Created: info.Created, Seq: info.State.LastSeq},
	}
	if info.State.Msgs == 0 {
		s.FirstTime = time.Time{}
	}
	if s.Last.MessageID, err = p.messageAt(ctx, at.Stream, s.Last.Seq); err != nil {
		return broker.Standing{}, err
	}
	switch {
	case !at.Created.IsZero() && !at.Created.Equal(info.Created):
		s.Verdict = broker.Recreated
	case at.Seq > s.Last.Seq:
		s.Verdict = broker.LostTail
	case at.Seq < s.First || at.MessageID == "": // it was dropped for its age, or none was noted
	default:
		id, err := p.messageAt(ctx, at.Stream, at.Seq)
		if err != nil {
			return broker.Standing{}, err
		}
		if id != at.MessageID {
			s.Verdict = broker.LostTail
		}
	}
	return s, nil
}

// noMessage is the code of the answer that there is no such message.
const noMessage = 10037

// messageAt returns the message id of a message, empty where there is none. It asks the
// stream's leader: the client's own way may ask a replica, which lacks the newest ones
// for a moment.
func (p *Publisher) messageAt(ctx context.Context, stream string, seq uint64) (string, error) {
	if seq == 0 {
		return "", nil
	}
	reply, err := p.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, fmt.Appendf(nil, `{"seq":%d}`, seq))
	if errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("look up message %d of stream %s: %w (may this user publish to $JS.API.STREAM.MSG.GET.*?)", seq, stream, err)
	}
	if err != nil {
		return "", fmt.Errorf("look up message %d of stream %s: %w", seq, stream, err)
	}
	var answer struct {
		Message *struct {
			Headers []byte `json:"hdrs"`
		} `json:"message"`
		Error *struct {
			Code        int    `json:"err_code"`
			Status      int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	err = json.Unmarshal(reply.Data, &answer)
	switch {
	case err != nil || answer.Message == nil && answer.Error == nil:
		return "", fmt.Errorf("look up message %d of stream %s: %w", seq, stream, errUnreadable)
	case answer.Error != nil && answer.Error.Code == noMessage:
		return "", nil
	case answer.Error != nil:
		return "", fmt.Errorf("look up message %d of stream %s: %w", seq, stream,
			&BrokerError{Code: answer.Error.Code, Status: answer.Error.Status, Description: answer.Error.Description})
	case len(answer.Message.Headers) == 0:
		return "", nil
	}
	header, err := nats.DecodeHeadersMsg(answer.Message.Headers)
	if err != nil {
		return "", fmt.Errorf("look up message %d of stream %s: %w", seq, stream, errUnreadable)
	}
	return header.Get(wire.MsgID), nil
}

var errUnreadable = errors.New("the answer cannot be read")

const (
	// storedPage is how many messages are asked for at once, of which one page of
	// Stored is made, and storedWait how long the broker may be silent.
	storedPage = 5000
	storedWait = 30 * time.Second
)

// errGap says that messages did not arrive on their way from the broker.
var errGap = errors.New("messages were lost on their way from the broker")

// Stored reads the headers of a stream's messages, as [broker.Verifier] describes, with a
// consumer of its own that leaves nothing behind.
func (p *Publisher) Stored(ctx context.Context, stream string, span broker.Span) (next func(ctx context.Context) ([]broker.StoredMessage, error), stop func(), err error) {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, nil, fmt.Errorf("jetstream: %w", err)
	}
	cfg := jetstream.ConsumerConfig{
		Description: "postroom relay: what the stream has", AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: 2 * storedWait,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(span.From, 1),
	}
	if !span.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &span.Since
	}
	within, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	consumer, err := js.CreateConsumer(within, stream, cfg)
	if err != nil {
		return nil, nil, explainReading(stream, err)
	}
	r := &storedReader{consumer: consumer, to: span.To, pending: consumer.CachedInfo().NumPending}
	stop = func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
		defer cancel()
		_ = js.DeleteConsumer(within, stream, consumer.CachedInfo().Name) // it goes by itself after a minute
	}
	return r.next, stop, nil
}

// explainReading says what may be missing where a stream cannot be read.
func explainReading(stream string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("read stream %s: %w (may this user publish to $JS.API.CONSUMER.>?)", stream, err)
	}
	return fmt.Errorf("read stream %s: %w", stream, err)
}

// storedReader reads a consumer.
type storedReader struct {
	consumer jetstream.Consumer
	to       uint64
	pending  uint64 // messages that it has not sent
	got      uint64 // the number of the last message at this consumer
}

func (r *storedReader) next(ctx context.Context) ([]broker.StoredMessage, error) {
	if r.pending == 0 {
		return nil, nil
	}
	page, err := r.fetch(ctx, int(min(r.pending, storedPage))) //nolint:gosec // a page
	if err != nil {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	return page, nil
}

// fetch reads as many messages as the consumer is known to have.
func (r *storedReader) fetch(ctx context.Context, n int) ([]broker.StoredMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, storedWait)
	defer cancel()
	batch, err := r.consumer.Fetch(n, jetstream.FetchContext(ctx))
	if err != nil {
		return nil, err
	}
	page := make([]broker.StoredMessage, 0, n)
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		if meta.Sequence.Consumer != r.got+1 {
			return nil, errGap
		}
		r.got++
		if r.pending = meta.NumPending; meta.Sequence.Stream >= r.to {
			r.pending = 0
		}
		if meta.Sequence.Stream <= r.to {
			source, id := wire.Identity(msg.Headers())
			page = append(page, broker.StoredMessage{Seq: meta.Sequence.Stream, Source: source, ID: id})
		}
		if n--; n == 0 || r.pending == 0 {
			return page, nil
		}
	}
	if err := cmp.Or(batch.Error(), ctx.Err()); err != nil {
		return nil, err
	}
	return nil, errGap // it had more, and did not send it
}
