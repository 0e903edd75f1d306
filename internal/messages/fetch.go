package messages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Fetch requests n messages from a consumer, and calls f with each message that arrives. It returns
// nil if f returned false without an error, if all n messages have arrived, or if the broker says
// that there are no more messages or that the time of the request is over. Otherwise it returns the
// error that came from f, from the broker or from ctx. ctx must have a deadline.
//
// Fetch replaces the Fetch of the client library, which mistakes a message without a body for a
// status message of the broker if the message has the header Status, and then ends too early. Some
// consumers deliver only headers and no bodies, and any program may have set the header Status.
func Fetch(ctx context.Context, nc *nats.Conn, from jetstream.Consumer, n int, f func(msg *nats.Msg, meta *nats.MsgMetadata) (more bool, err error)) error {
	end, ok := ctx.Deadline()
	if !ok {
		return errors.New("a request for messages needs a deadline")
	}
	came := make(chan *nats.Msg, n+statuses)
	reply := nc.NewInbox()
	sub, err := nc.ChanSubscribe(reply, came)
	if err != nil {
		return fmt.Errorf("subscribe to the answer: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // Unsubscribe fails only if the connection is closed, which also ends the subscription
	info := from.CachedInfo()
	request, err := json.Marshal(pullRequest{Batch: n, Expires: max(time.Until(end), time.Millisecond)})
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+info.Stream+"."+info.Name, reply, request); err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	for n > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case msg := <-came:
			//guard:a-message-is-no-status-for-the-relay = @1.1.Header.Get("Status") != ""
			if msg.Reply == "" { // a status message of the broker
				if ended, err := readStatus(msg); ended || err != nil {
					return err
				}
				continue
			}
			meta, err := msg.Metadata()
			if err != nil {
				return err
			}
			if more, err := f(msg, meta); err != nil || !more {
				return err
			}
			n--
		}
	}
	return nil
}

// statuses is the room in the channel for status messages. One request gets fewer than these 64.
const statuses = 64

// pullRequest is the body of a request. Times are in nanoseconds.
type pullRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires"`
}

// readStatus reports whether a status message of the broker ends the request. It returns an error
// if the request failed.
func readStatus(msg *nats.Msg) (ended bool, err error) {
	switch status := msg.Header.Get("Status"); status {
	case "100": // a heartbeat
		return false, nil
	case "404", "408": // there are no more messages, or the time is over
		return true, nil
	case "503":
		return true, nats.ErrNoResponders
	default:
		return true, fmt.Errorf("broker: %s %s", status, msg.Header.Get("Description"))
	}
}
