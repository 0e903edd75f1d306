package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/messages"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// Broker says whether an answer contains facts that only the broker knows.
type Broker struct {
	Asked bool   `json:"asked"`
	Fault string `json:"fault,omitempty"` // why the broker did not answer, or answered only in part
}

// BrokerView has the facts that the broker knows about a handler.
type BrokerView struct {
	FirstSeq uint64 `json:"first_seq"` // the first sequence in the stream
	LastSeq  uint64 `json:"last_seq"`

	// Consumer is the name of the handler's durable consumer. An ordered handler has none.
	Consumer string `json:"consumer,omitempty"`

	// Pending is how many messages for the handler are not delivered yet. AckPending is how many
	// messages are delivered and not acknowledged yet.
	Pending    uint64 `json:"pending"`
	AckPending uint64 `json:"ack_pending"`

	// PausedUntil is when the consumer's pause ends, if an operator has paused the consumer at the
	// broker. Otherwise it is zero.
	PausedUntil time.Time `json:"paused_until,omitzero"`

	// OldestAt is when the stream stored the oldest message that the handler has not decided.
	// LagSeconds is how long ago that was.
	OldestAt   time.Time `json:"oldest_at,omitzero"`
	LagSeconds float64   `json:"lag_seconds"`

	// Fault says which facts are missing here, and why.
	Fault string `json:"fault,omitempty"`

	missing Finding // set if the stream or the consumer does not exist
	floor   uint64  // the handler's position, if it has a consumer
}

// brokerPatience limits the time of all requests that handlerViews sends to the broker.
const brokerPatience = 5 * time.Second

// brokerClient asks the broker. If nc is nil, there is no broker to ask.
type brokerClient struct{ nc *nats.Conn }

// jetStream returns the broker's API, or an error if there is no connection to the broker.
func (o brokerClient) jetStream() (jetstream.JetStream, error) {
	if !o.nc.IsConnected() {
		return nil, errors.Join(nats.ErrDisconnected, o.nc.LastError())
	}
	return jetstream.New(o.nc)
}

// handlerViews asks the broker about handlers, and returns the answers by the handlers' names. If
// deep is true, it also creates temporary consumers, to find the age of each handler's oldest
// undecided message.
func (o brokerClient) handlerViews(ctx context.Context, b *Broker, subs []subscription, deep bool) map[string]*BrokerView {
	if o.nc == nil {
		return nil
	}
	b.Asked = true
	ctx, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	js, err := o.jetStream()
	if err != nil {
		b.Fault = faultOf(err)
		return nil
	}
	if len(subs) == 0 {
		b.Fault = jetStreamFault(ctx, js)
	}
	views := map[string]*BrokerView{}
	for _, sub := range subs {
		v := &BrokerView{}
		if err := v.ask(ctx, js, sub, deep); err != nil {
			b.Fault = fmt.Sprintf("handler %s, stream %s: %s", sub.Handler, sub.Stream, faultOf(err))
			break // a request for the next handler would probably take as long, and fail too
		}
		views[sub.Handler] = v
	}
	return views
}

// jetStreamFault returns why there is no JetStream, or "" if there is one. It also returns "" if
// the user has no permission to ask.
func jetStreamFault(ctx context.Context, js jetstream.JetStream) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := js.AccountInfo(ctx)
	return jsremedy.Do(err)
}

// ask stores in v the facts that the broker knows about a handler. An error means that the broker
// did not answer.
func (v *BrokerView) ask(ctx context.Context, js jetstream.JetStream, sub subscription, deep bool) error {
	stream, err := js.Stream(ctx, sub.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		v.setMissing(FoundNoStream, sub.Handler, fmt.Sprintf("stream %s of %s does not exist", sub.Stream, sub.Handler),
			"make it with 'postroom stream ensure'; the log of the producers has its events, if they are not too old")
		return nil
	}
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	v.FirstSeq, v.LastSeq = info.State.FirstSeq, info.State.LastSeq
	if !info.Created.Truncate(time.Microsecond).Equal(sub.Created) {
		v.setMissing(FoundStreamRecreated, sub.Handler, fmt.Sprintf("stream %s of %s was deleted and created again at %s", sub.Stream, sub.Handler, info.Created.UTC().Format(time.RFC3339)),
			"a process that starts reads it from its start; the log of the producers has the events of the old stream")
		return nil
	}
	from, subjects := uint64(max(sub.AckFloor, 0))+1, sub.Subjects //nolint:gosec // not negative
	if !sub.Ordered {
		durable, err := stream.Consumer(ctx, identity.Consumer(sub.instance, sub.Handler))
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			v.setMissing(FoundNoConsumer, sub.Handler, fmt.Sprintf("the consumer of %s on stream %s is gone", sub.Handler, sub.Stream),
				"a process that runs the handler makes it again after the handler's floor; nothing is lost")
			return nil
		}
		if err != nil {
			return err
		}
		now := durable.CachedInfo()
		v.Consumer, v.Pending, v.AckPending = now.Name, now.NumPending, uint64(max(now.NumAckPending, 0)) //nolint:gosec // not negative
		v.PausedUntil, v.floor = consumer.PausedUntil(now), consumer.Floor(sub.AckFloor, now)
		from, subjects = now.AckFloor.Stream+1, consumer.Filter(now.Config)
		if v.Pending+v.AckPending == 0 {
			return nil
		}
	}
	if deep {
		v.measureLag(ctx, js.Conn(), stream, subjects, from, info.TimeStamp)
	}
	return nil
}

// streamFaults returns the faults of the streams that store the given subjects, as relays find them
// in their own checks. If a stream does not answer, it sets b.Fault.
func (o brokerClient) streamFaults(ctx context.Context, b *Broker, subjects []string) []error {
	//guard:status-examines-streams-as-relays-do true
	if o.nc == nil || b.Fault != "" || len(subjects) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	_, faults, err := natsjs.NewPublisher(o.nc).Inspect(ctx, nil, subjects)
	if err != nil {
		//guard:a-stream-that-is-down-is-not-well remove
		b.Fault = err.Error()
	}
	return faults
}

// checkStreams adds a finding for each fault with which a stream takes no events, and returns the
// other faults as notes: a relay may accept these risks, and status does not know its configuration.
func (l *findingList) checkStreams(faults []error) (risks []string) {
	for _, fault := range faults {
		var of *natsjs.StreamError
		var risk broker.Risk
		switch {
		case errors.As(fault, &risk) && slices.Contains(natsjs.Risks(), risk):
			risks = append(risks, fault.Error()+". A relay that starts does not become ready, unless it accepts that")
		case errors.As(fault, &of):
			l.add(FoundStreamRefuses, "", fmt.Sprintf("stream %s: %s", of.Stream, of.Problem), of.Remedy)
		case errors.Is(fault, broker.ErrNoStream):
			l.add(FoundStreamRefuses, "", fault.Error(), "until then, events of these subjects wait in the log")
		default:
			l.add(FoundStreamRefuses, "", fault.Error(), "until there is room, its events wait in the log; 'nats stream edit' changes the limits of a stream")
		}
	}
	return risks
}

func (v *BrokerView) setMissing(code, handler, text, do string) {
	v.Fault = text
	v.missing = Finding{Code: code, Handler: handler, Text: text, Remedy: do}
}

// measureLag finds the handler's first message from a sequence on, and stores the message's age.
func (v *BrokerView) measureLag(ctx context.Context, nc *nats.Conn, stream jetstream.Stream, subjects []string, from uint64, now time.Time) {
	r, err := messages.Open(ctx, nc, stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, FilterSubjects: wildcard.Union(nil, subjects),
	})
	if err != nil {
		v.Fault = "lag not known: " + faultOf(err)
		return
	}
	defer r.Close(ctx)
	if v.Consumer == "" {
		v.Pending = r.Pending()
	}
	first, err := r.Next(ctx, 1)
	if err != nil {
		v.Fault = "lag not known: " + faultOf(err)
	}
	if len(first) == 1 {
		v.OldestAt = first[0].Stored.UTC()
		v.LagSeconds = max(now.Sub(v.OldestAt).Seconds(), 0) // both times are by the broker's clock
	}
}

// faultOf describes an error of the broker for an operator.
func faultOf(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time: JetStream may have no leader, or this user may not ask it ($JS.API.>)"
	}
	if do := jsremedy.Do(err); do != "" {
		return do
	}
	return err.Error()
}
