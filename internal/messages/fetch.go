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

// Fetch requests n messages of a consumer and calls take for each as it comes. It returns nil if
// take returned false, if all messages have come, or if the broker ended the request. Otherwise it
// returns the error of take, of the broker or of ctx. ctx must have a deadline.
//
// The Fetch of the client library would end at a message without a body that has the header Status,
// because it takes such a message for a status of the broker. If a consumer delivers only headers,
// no message has a body, and another program may have set that header.
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
	defer func() { _ = sub.Unsubscribe() }() // fails on a closed connection only, which has no subscriptions
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

// statuses is room for statuses: more than come during a request.
const statuses = 64

// pullRequest is the body of a request. Times are in nanoseconds.
type pullRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires"`
}

// readStatus reports whether a status of the broker ends the request, and how.
func readStatus(msg *nats.Msg) (ended bool, err error) {
	switch status := msg.Header.Get("Status"); status {
	case "100": // a heartbeat
		return false, nil
	case "404", "408": // no more messages, or not in time
		return true, nil
	case "503":
		return true, nats.ErrNoResponders
	default:
		return true, fmt.Errorf("broker: %s %s", status, msg.Header.Get("Description"))
	}
}
