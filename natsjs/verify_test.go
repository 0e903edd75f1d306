package natsjs_test

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// filled returns a stream with n events, e1 first, and a publisher to it.
func filled(t *testing.T, name string, n int, cfg jetstream.StreamConfig) (jetstream.JetStream, jetstream.Stream, broker.Publisher) {
	t.Helper()
	nc := connect(t, devtest.NATSURL(t))
	cfg.Name, cfg.Subjects = name, []string{name + ".>"}
	js := devtest.JetStream(t, nc)
	s, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = js.DeleteStream(t.Context(), name) }) // one test deletes it
	for i := range n {
		store(t, js, name, fmt.Sprint("e", i+1))
	}
	return js, s, natsjs.NewPublisher(nc)
}

func store(t *testing.T, js jetstream.JetStream, name, id string) {
	t.Helper()
	ev := postroom.Event{ID: id, Source: "/shop", Type: name + ".a", Time: time.Now(), LoggedAt: time.Now()}
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: ev.Type, Header: nats.Header(wire.Encode(ev)), Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
}

// storeUnreadable stores a message with headers that the client library would not send, and cannot read.
func storeUnreadable(t *testing.T, nc *nats.Conn, subject string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(nc.ConnectedUrl(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the server has answered by then
	const block = "NATS/1.0\r\nno colon\r\n\r\n"
	if _, err := fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB %s %d %d\r\n%sbody\r\nPING\r\n", subject, len(block), len(block)+len("body"), block); err != nil {
		t.Fatal(err)
	}
	for answers := bufio.NewScanner(conn); answers.Scan() && answers.Text() != "PONG"; {
		if strings.HasPrefix(answers.Text(), "-ERR") {
			t.Fatal(answers.Text())
		}
	}
}

// A message of another program whose headers cannot be read is not an event. It stops no relay.
func TestCompareWithMessagesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	js, s, p := filled(t, "UNREADABLE", 3, jetstream.StreamConfig{})
	storeUnreadable(t, js.Conn(), "UNREADABLE.a")
	devtest.Eventually(t, time.Minute, "the message to be stored", func() bool {
		info, err := s.Info(t.Context())
		return err == nil && info.State.LastSeq == 4
	})
	for at, want := range map[broker.StreamPosition]broker.Verdict{
		{Stream: "UNREADABLE", Seq: 3, MessageID: "/shop#e3"}: broker.Intact,
		{Stream: "UNREADABLE", Seq: 4}:                        broker.Intact,
		{Stream: "UNREADABLE", Seq: 4, MessageID: "/shop#e4"}: broker.LostTail,
	} {
		state, err := p.Compare(t.Context(), at)
		if err != nil || state.Verdict != want || state.Last.Seq != 4 || state.Last.MessageID != "" {
			t.Errorf("Compare with %+v = %+v, %v, want %s", at, state, err, want)
		}
	}
	if digest, err := p.StoredDigest(t.Context(), "UNREADABLE", 4, "UNREADABLE.a"); digest != nil || err != nil {
		t.Errorf("StoredDigest = %x, %v, want nil", digest, err)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for i, tt := range []struct {
		name  string
		place broker.StreamPosition
		then  func(t *testing.T, js jetstream.JetStream, s jetstream.Stream, name string)
		want  broker.Verdict
		last  string // message id at the end
	}{
		{"the last message", broker.StreamPosition{Seq: 5, MessageID: "/shop#e5"}, nil, broker.Intact, "/shop#e5"},
		{"one before it", broker.StreamPosition{Seq: 3, MessageID: "/shop#e3"}, nil, broker.Intact, "/shop#e5"},
		{"none was noted", broker.StreamPosition{Seq: 3}, nil, broker.Intact, "/shop#e5"},
		{"another message there", broker.StreamPosition{Seq: 3, MessageID: "/shop#x"}, nil, broker.LostTail, "/shop#e5"},
		{"it ends before", broker.StreamPosition{Seq: 6, MessageID: "/shop#e6"}, nil, broker.LostTail, "/shop#e5"},
		{"it was created at another time", broker.StreamPosition{Seq: 5, MessageID: "/shop#e5", Created: time.Unix(7, 0)}, nil, broker.Recreated, "/shop#e5"},
		{"the message was dropped for its age", broker.StreamPosition{Seq: 2, MessageID: "/shop#e2"}, func(t *testing.T, _ jetstream.JetStream, s jetstream.Stream, _ string) {
			if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(4)); err != nil {
				t.Fatal(err)
			}
		}, broker.Intact, "/shop#e5"},
		{"the message was removed", broker.StreamPosition{Seq: 3, MessageID: "/shop#e3"}, func(t *testing.T, _ jetstream.JetStream, s jetstream.Stream, _ string) {
			if err := s.DeleteMsg(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
		}, broker.LostTail, "/shop#e5"},
		{"there is no stream", broker.StreamPosition{Seq: 3, MessageID: "/shop#e3"}, func(t *testing.T, js jetstream.JetStream, _ jetstream.Stream, name string) {
			if err := js.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}, broker.Missing, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("STANDS", i)
			js, s, p := filled(t, name, 5, jetstream.StreamConfig{AllowDirect: i%2 == 0})
			if tt.then != nil {
				tt.then(t, js, s, name)
			}
			tt.place.Stream = name
			if tt.place.Created.IsZero() {
				tt.place.Created = s.CachedInfo().Created
			}
			got, err := p.Compare(t.Context(), tt.place)
			if err != nil || got.Verdict != tt.want || got.Last.MessageID != tt.last {
				t.Errorf("Compare = %+v, %v, want %s with %s at the end", got, err, tt.want, tt.last)
			}
		})
	}
}

// A stream whose configuration removes messages that are not the oldest has lost nothing if it
// does not have the message at the position. If it has another message there, it has lost some.
func TestCompareAStreamThatRemovesMessages(t *testing.T) {
	t.Parallel()
	consumed := func(t *testing.T, js jetstream.JetStream, name string) {
		t.Helper()
		consumer, err := js.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"e1", "e2", "e3"} {
			store(t, js, name, id)
			msg, err := consumer.Next()
			if err == nil && id == "e2" {
				err = msg.DoubleAck(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	replaced := func(t *testing.T, js jetstream.JetStream, name string) {
		t.Helper()
		store(t, js, name, "e1")
		for range 2 {
			if _, err := js.Publish(t.Context(), name+".b", nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		cfg  jetstream.StreamConfig
		then func(t *testing.T, js jetstream.JetStream, name string)
	}{
		"QUEUE":    {jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, consumed},
		"INTEREST": {jetstream.StreamConfig{Retention: jetstream.InterestPolicy}, consumed},
		"NEWEST":   {jetstream.StreamConfig{MaxMsgsPerSubject: 1}, replaced},
		"LIMITED":  {jetstream.StreamConfig{MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew}, replaced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js, _, p := filled(t, "REMOVES"+name, 0, tt.cfg)
			tt.then(t, js, "REMOVES"+name)
			for at, want := range map[broker.StreamPosition]broker.Verdict{
				{Seq: 2, MessageID: "/shop#e2"}: broker.Intact,
				{Seq: 1, MessageID: "/shop#e1"}: broker.Intact,
				{Seq: 1, MessageID: "/shop#e2"}: broker.LostTail,
				{Seq: 4, MessageID: "/shop#e4"}: broker.LostTail,
			} {
				at.Stream = "REMOVES" + name
				if got, err := p.Compare(t.Context(), at); err != nil || got.Verdict != want || got.Replaces != (tt.cfg.MaxMsgsPerSubject > 0) {
					t.Errorf("Compare with %+v = %+v, %v, want %s", at, got, err, want)
				}
			}
		})
	}
}

// ReadStored reads all messages of a part of a stream, and no others, even if messages arrive
// meanwhile.
func TestStored(t *testing.T) {
	t.Parallel()
	js, s, p := filled(t, "STORED", 20, jetstream.StreamConfig{})
	if _, err := js.Publish(t.Context(), "STORED.raw", []byte("no event")); err != nil {
		t.Fatal(err)
	}
	odd := &nats.Msg{Subject: "STORED.raw", Header: nats.Header{"Status": {"shipped"}}} // another program's, and no status of the broker
	if _, err := js.PublishMsg(t.Context(), odd); err != nil {
		t.Fatal(err)
	}
	store(t, js, "STORED", "e23")
	middle, err := s.GetMsg(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name        string
		span        broker.SeqRange
		first, last uint64
	}{
		{"all", broker.SeqRange{To: 23}, 1, 23},
		{"from a sequence", broker.SeqRange{From: 7, To: 23}, 7, 23},
		{"to a sequence", broker.SeqRange{From: 7, To: 9}, 7, 9},
		{"since a time", broker.SeqRange{Since: middle.Time, To: 23}, 8, 23},
		{"since a time after all", broker.SeqRange{Since: time.Now().Add(time.Hour), To: 23}, 1, 0},
		{"behind the end", broker.SeqRange{From: 30, To: 23}, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next, stop, err := p.ReadStored(t.Context(), "STORED", tt.span)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			var got, want []broker.StoredMessage
			for {
				page, err := next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				for _, m := range page {
					if (m.ID != "") != (time.Since(m.LoggedAt) < time.Hour) {
						t.Errorf("message %d was logged at %s", m.Seq, m.LoggedAt)
					}
					if since := time.Since(m.StoredAt); since < 0 || since > time.Hour {
						t.Errorf("message %d was stored at %s", m.Seq, m.StoredAt)
					}
					m.LoggedAt, m.StoredAt = time.Time{}, time.Time{}
					got = append(got, m)
				}
			}
			for seq := tt.first; seq <= tt.last; seq++ {
				m := broker.StoredMessage{Seq: seq, Source: "/shop", ID: fmt.Sprint("e", seq), Subject: "STORED.a"}
				if seq == 21 || seq == 22 {
					m = broker.StoredMessage{Seq: seq, Subject: "STORED.raw"}
				}
				want = append(want, m)
			}
			if !slices.Equal(got, want) {
				t.Errorf("read %v, want %v", got, want)
			}
		})
	}
	consumers := s.ListConsumers(t.Context())
	for c := range consumers.Info() {
		t.Errorf("consumer %s is left", c.Name)
	}
}

// A work queue cannot be read beside its consumers. That is no error: the result is that none of
// its messages are known.
func TestStoredInAWorkQueue(t *testing.T) {
	t.Parallel()
	_, _, p := filled(t, "STOREDQUEUE", 3, jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy})
	next, stop, err := p.ReadStored(t.Context(), "STOREDQUEUE", broker.SeqRange{To: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if page, err := next(t.Context()); err != nil || len(page) > 0 {
		t.Errorf("read %v, %v, want none", page, err)
	}
}
