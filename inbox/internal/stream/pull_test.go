package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
)

// fakeConsumer is a consumer without a broker. The test answers its requests.
type fakeConsumer struct {
	jetstream.Consumer

	name string
}

func (c fakeConsumer) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{Stream: "NOBODYS", Name: c.name}
}

// A status says that a request has ended, and how many messages it brings. The messages may
// come after the status: a consumer with replicas sends them when its replicas know of them.
func TestMessagesMayComeAfterTheStatus(t *testing.T) {
	t.Parallel()
	const three = "3 messages"
	for name, tt := range map[string]struct {
		answers []string
		want    int
		err     error
	}{
		"all":                                 {[]string{three, three}, 6, nil},
		"all, behind the end":                 {[]string{three, "409 Batch Completed/0", three}, 6, nil},
		"some, behind the end":                {[]string{"409 Message Size Exceeds MaxBytes/3", three}, 3, nil},
		"some, behind a time-out":             {[]string{"408 Request Timeout/3", "100 Idle Heartbeat", three}, 3, nil},
		"none":                                {[]string{"404 No Messages/6"}, 0, nil},
		"some, and a new leader":              {[]string{three, "409 Leadership Change"}, 3, jetstream.ErrConsumerLeadershipChanged},
		"none of a consumer that was deleted": {[]string{"409 Consumer Deleted"}, 0, jetstream.ErrConsumerDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := devtest.NATS(t)
			from := fakeConsumer{name: nats.NewInbox()[len("_INBOX."):]}
			broker, err := nc.Subscribe(pullSubject+"NOBODYS."+from.name, func(request *nats.Msg) {
				if err := answerWith(nc, request.Reply, tt.answers); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = broker.Unsubscribe() }()
			p, err := newPull(nc, from, 6, 1000)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			err = p.messages(t.Context(), nil, func(msg jetstream.Msg) error {
				got = append(got, string(msg.Data()))
				return nil
			})
			if !errors.Is(err, tt.err) {
				t.Errorf("messages = %v, want %v", err, tt.err)
			}
			if len(got) != tt.want || len(slices.Compact(slices.Sorted(slices.Values(got)))) != tt.want {
				t.Errorf("%d messages arrived, want %d: %q", len(got), tt.want, got)
			}
		})
	}
}

// answerWith publishes the answers to a subject: messages, or a status with the number of
// messages that will not come.
func answerWith(nc *nats.Conn, reply string, answers []string) error {
	for i, answer := range answers {
		if first, isMessages := strings.CutSuffix(answer, " messages"); isMessages {
			n, err := strconv.Atoi(first)
			if err != nil {
				return err
			}
			for j := range n {
				if err := nc.Publish(reply, fmt.Appendf(nil, "%d.%d", i, j)); err != nil {
					return err
				}
			}
			continue
		}
		msg := nats.NewMsg(reply)
		answer, left, counted := strings.Cut(answer, "/")
		status, text, _ := strings.Cut(answer, " ")
		msg.Header.Set("Status", status)
		msg.Header.Set("Description", text)
		if counted {
			msg.Header.Set("Nats-Pending-Messages", left)
		}
		if err := nc.PublishMsg(msg); err != nil {
			return err
		}
	}
	return nil
}

// Messages that have come when a process stops are passed on, so that they can be handed back.
func TestStopPassesOnMessagesThatHaveCome(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	from := fakeConsumer{name: nats.NewInbox()[len("_INBOX."):]}
	p, err := newPull(nc, from, 6, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		p.came <- &nats.Msg{Data: []byte{byte(i)}}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	taken := 0
	began := time.Now()
	err = p.messages(ctx, nil, func(jetstream.Msg) error { taken++; return nil })
	if err != nil || taken != 3 {
		t.Errorf("%d messages were taken, %v; want 3 (after %s)", taken, err, time.Since(began))
	}
}
