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

// Fetch requests n messages of a consumer and calls take for each message when it comes. It returns
// nil if take returned false, or if all n messages have come. It also returns nil if the broker
// says that there are no more messages, or that the time is over. Otherwise it returns the error of
// take, of the broker or of ctx. ctx must have a deadline.
//
// The Fetch of the client library ends too early if a message has no body and has the header
// Status: it takes the message for a status of the broker. This can happen if a consumer delivers
// only headers: then no message has a body, and another program may have set that header.
func Fetch(ctx context.Context, nc *nats.Conn, from jetstream.Consumer, n int, take func(msg *nats.Msg, meta *nats.MsgMetadata) (more bool, err error)) error {
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
	defer func() { _ = sub.Unsubscribe() }() // fails only if the connection is closed; then the subscription has ended
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
			if msg.Reply == "" { // a status
				if ended, err := readStatus(msg); ended || err != nil {
					return err
				}
				continue
			}
			meta, err := msg.Metadata()
			if err != nil {
				return err
			}
			if more, err := take(msg, meta); err != nil || !more {
				return err
			}
			n--
		}
	}
	return nil
}

// statuses is the room for statuses in the channel. The broker sends fewer during one request.
const statuses = 64

// pullRequest is the body of a request. Times are in nanoseconds.
type pullRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires"`
}

// readStatus reports whether a status of the broker ends the request. It returns an error if the
// request failed.
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
