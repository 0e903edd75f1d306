package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// message is a message that the broker sent in answer to a [pull]. It implements jetstream.Msg,
// like the messages that the client library returns.
type message struct{ msg *nats.Msg }

// Metadata returns the data of the broker about the message, such as its sequence in the stream.
func (m *message) Metadata() (*jetstream.MsgMetadata, error) {
	meta, err := m.msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", jetstream.ErrNotJSMessage, err)
	}
	return &jetstream.MsgMetadata{
		Sequence:     jetstream.SequencePair{Consumer: meta.Sequence.Consumer, Stream: meta.Sequence.Stream},
		NumDelivered: meta.NumDelivered,
		NumPending:   meta.NumPending,
		Timestamp:    meta.Timestamp,
		Stream:       meta.Stream,
		Consumer:     meta.Consumer,
		Domain:       meta.Domain,
	}, nil
}

// Data returns the body.
func (m *message) Data() []byte { return m.msg.Data }

// Headers returns the headers.
func (m *message) Headers() nats.Header { return m.msg.Header }

// Subject returns the subject to which the message was published.
func (m *message) Subject() string { return m.msg.Subject }

// Reply returns the subject to which answers are sent.
func (m *message) Reply() string { return m.msg.Reply }

// Ack acknowledges the message.
func (m *message) Ack() error { return answered(m.msg.Ack()) }

// DoubleAck acknowledges the message, and waits until the broker confirms that.
func (m *message) DoubleAck(ctx context.Context) error {
	return answered(m.msg.AckSync(nats.Context(ctx)))
}

// Nak asks the broker to deliver the message again.
func (m *message) Nak() error { return answered(m.msg.Nak()) }

// NakWithDelay asks the broker to deliver the message again after a delay.
func (m *message) NakWithDelay(delay time.Duration) error {
	return answered(m.msg.NakWithDelay(delay))
}

// InProgress is a sign of life: the broker waits one more AckWait before it delivers again.
func (m *message) InProgress() error { return answered(m.msg.InProgress()) }

// Term asks the broker never to deliver the message again.
func (m *message) Term() error { return answered(m.msg.Term()) }

// TermWithReason does the same as Term. It does not send the reason.
func (m *message) TermWithReason(string) error { return m.Term() }

// answered converts an error to the error that a message of package jetstream would
// return.
func answered(err error) error {
	if errors.Is(err, nats.ErrMsgAlreadyAckd) {
		return jetstream.ErrMsgAlreadyAckd
	}
	return err
}
