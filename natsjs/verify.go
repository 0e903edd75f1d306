package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs/internal/contents"
	"github.com/postroom/postroom/relay/broker"
)

// lookTimeout is the time limit of a request about a stream.
const lookTimeout = 2 * ackTimeout

// Compare compares a stream with a position, as [broker.Publisher] describes. A missing message at
// the position counts as lost, even if it was deleted: a stream that [EnsureStream] created does
// not allow deletes. But it does not count as lost if the stream now begins after the position, or
// if the stream's configuration lets it remove messages before their maximum age (see mayDrop).
func (p *publisher) Compare(ctx context.Context, at broker.StreamPosition) (broker.StreamState, error) {
	state, err := p.compare(ctx, at)
	return state, p.unanswered(ctx, err)
}

func (p *publisher) compare(ctx context.Context, at broker.StreamPosition) (broker.StreamState, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	js, err := jetstream.New(p.nc)
	if err != nil {
		return broker.StreamState{}, fmt.Errorf("jetstream: %w", err)
	}
	stream, err := js.Stream(ctx, at.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return broker.StreamState{Verdict: broker.Missing}, nil
	}
	if err != nil {
		return broker.StreamState{}, explain("look at stream "+at.Stream, err)
	}
	info := stream.CachedInfo()
	s := broker.StreamState{
		Verdict: broker.Intact, First: info.State.FirstSeq, FirstTime: info.State.FirstTime, Subjects: info.Config.Subjects,
		Limits: info.Config.Retention == jetstream.LimitsPolicy, Replaces: replaces(info.Config), Transforms: info.Config.SubjectTransform != nil,
		Last: broker.StreamPosition{Stream: at.Stream, Created: info.Created, Seq: info.State.LastSeq},
	}
	if info.State.Msgs == 0 {
		s.FirstTime = time.Time{}
	}
	last, err := p.messageAt(ctx, at.Stream, s.Last.Seq)
	if err != nil {
		return broker.StreamState{}, err
	}
	s.Last.MessageID = last.id()
	switch {
	case !at.Created.IsZero() && !at.Created.Equal(info.Created):
		s.Verdict = broker.Recreated
	case at.Seq > s.Last.Seq:
		s.Verdict = broker.LostTail
	case at.Seq < s.First || at.MessageID == "": // the stream removed its oldest messages up to this message, or no message id was recorded
	default:
		there, err := p.messageAt(ctx, at.Stream, at.Seq)
		if err != nil {
			return broker.StreamState{}, err
		}
		id := there.id()
		//guard:removed-messages-are-not-lost 2 true
		if id != at.MessageID && (id != "" || !mayDrop(info.Config)) {
			s.Verdict = broker.LostTail
		}
	}
	return s, nil
}

// noMessage is the error code for a message that does not exist.
const noMessage = 10037

// storedMessage is a message of a stream. If the stream does not have the message, header is nil.
type storedMessage struct {
	header nats.Header
	data   []byte
}

// id returns the message id, or "" if the message does not exist or has no id.
func (m storedMessage) id() string { return m.header.Get(wire.MsgID) }

// digest returns the digest of an event with the content of the message and the given subject. The
// subject of the message does not count, because a stream may change it. If the message is not an
// event, the result is nil.
func (m storedMessage) digest(subject string) []byte {
	if m.header == nil {
		return nil
	}
	ev, err := wire.Decode(subject, m.header, m.data)
	if err != nil {
		return nil
	}
	return wire.Digest(ev)
}

// StoredDigest returns the digest of a message, as [broker.Publisher] describes.
func (p *publisher) StoredDigest(ctx context.Context, stream string, seq uint64, subject string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	message, err := p.messageAt(ctx, stream, seq)
	if err != nil {
		return nil, err
	}
	return message.digest(subject), nil
}

// messageAt returns a message of a stream. It asks the stream's leader: the client's GetMsg may ask a
// replica, which can lack the newest messages for a moment.
func (p *publisher) messageAt(ctx context.Context, stream string, seq uint64) (storedMessage, error) {
	if seq == 0 {
		return storedMessage{}, nil
	}
	reply, err := p.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, fmt.Appendf(nil, `{"seq":%d}`, seq))
	if errors.Is(err, context.DeadlineExceeded) {
		return storedMessage{}, fmt.Errorf("look up message %d of stream %s: %w (may this user publish to $JS.API.STREAM.MSG.GET.*?)", seq, stream, err)
	}
	if err != nil {
		return storedMessage{}, fmt.Errorf("look up message %d of stream %s: %w", seq, stream, err)
	}
	var answer struct {
		Message *struct {
			Headers []byte `json:"hdrs"`
			Data    []byte `json:"data"`
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
		return storedMessage{}, fmt.Errorf("look up message %d of stream %s: %w", seq, stream, errUnreadable)
	case answer.Error != nil && answer.Error.Code == noMessage:
		return storedMessage{}, nil
	case answer.Error != nil:
		return storedMessage{}, fmt.Errorf("look up message %d of stream %s: %w", seq, stream,
			&BrokerError{Code: answer.Error.Code, Status: answer.Error.Status, Description: answer.Error.Description})
	case len(answer.Message.Headers) == 0:
		return storedMessage{}, nil
	}
	header, err := nats.DecodeHeadersMsg(answer.Message.Headers)
	if err != nil { // another program wrote the message; it is there, but it is no event
		//guard:a-message-with-unreadable-headers-stops-no-relay do return storedMessage{}, errUnreadable
		header = nats.Header{wire.Unreadable: {"true"}}
	}
	return storedMessage{header: header, data: answer.Message.Data}, nil
}

var errUnreadable = errors.New("the answer cannot be read")

// ReadStored reads the headers of a stream's messages, as [broker.Publisher] describes. It creates a
// consumer. Call the function stop to remove this consumer.
func (p *publisher) ReadStored(ctx context.Context, stream string, span broker.SeqRange) (next func(ctx context.Context) ([]broker.StoredMessage, error), stop func(), err error) {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, nil, fmt.Errorf("jetstream: %w", err)
	}
	return contents.Read(ctx, js, stream, span)
}
