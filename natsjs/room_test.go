package natsjs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// wantFull checks that an error says that there is no room, and contains the given words. If words
// is empty, there must be no error.
func wantFull(t *testing.T, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("Check = %v, want nil", err)
	case words != "" && (!errors.Is(err, broker.ErrFull) || errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), words)):
		t.Errorf("Check = %v, want ErrFull, no refusal, and %q in it", err, words)
	}
}

// Check reports a stream that refuses new messages because it has reached a limit, and a
// stream that has room only for small events.
func TestCheckFindsStreamsThatAreFull(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	tests := []struct {
		name string
		cfg  jetstream.StreamConfig
		full string // of two events; empty: there is room
	}{
		{"messages", jetstream.StreamConfig{MaxMsgs: 2}, "2 of 2 messages:"},
		{"messages-left", jetstream.StreamConfig{MaxMsgs: 3}, ""},
		{"bytes", jetstream.StreamConfig{MaxBytes: 1 << 20}, "of 1048576 bytes are used"},
		{"bytes-left", jetstream.StreamConfig{MaxBytes: 2 << 20}, ""},
		{"subject", jetstream.StreamConfig{MaxMsgsPerSubject: 2, DiscardNewPerSubject: true}, "2 of 2 messages of the subject limits.subject"},
		{"subject-left", jetstream.StreamConfig{MaxMsgsPerSubject: 3, DiscardNewPerSubject: true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := tt.cfg
			cfg.Name, cfg.Subjects, cfg.Discard = "LIMITS-"+tt.name, []string{"limits." + tt.name}, jetstream.DiscardNew
			create(t, nc, cfg)
			check := func() error {
				return relayOver(using("limits."+tt.name, "elsewhere.a"), natsjs.NewPublisher(nc), relay.Config{Streams: []string{cfg.Name}}).Check(t.Context())
			}
			if err := check(); errors.Is(err, broker.ErrFull) {
				t.Errorf("Check = %v of an empty stream", err)
			}
			for range 2 {
				if _, err := devtest.JetStream(t, nc).Publish(t.Context(), "limits."+tt.name, nil); err != nil {
					t.Fatal(err)
				}
			}
			err := check()
			if tt.full == "" {
				if errors.Is(err, broker.ErrFull) {
					t.Errorf("Check = %v, and there is room", err)
				}
				return
			}
			wantFull(t, err, tt.full)
		})
	}
}

func TestCheckFindsAccountsThatAreFull(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: `accounts {
		small: { jetstream: { max_file: 100000, max_memory: 100000 }, users: [ { user: small, password: a } ] },
		large: { jetstream: { max_file: 100000000, max_memory: 100000000 }, users: [ { user: large, password: a } ] }
	}`})
	for _, tt := range []struct {
		user    string
		storage jetstream.StorageType
		want    string
	}{
		{"small", jetstream.FileStorage, "of 100000 bytes of storage are used"},
		{"small", jetstream.MemoryStorage, "of 100000 bytes of memory are used"},
		{"large", jetstream.FileStorage, ""},
		{"large", jetstream.MemoryStorage, ""},
	} {
		nc := connect(t, server.URL(), nats.UserInfo(tt.user, "a"))
		name := "ACCOUNT-" + tt.storage.String()
		create(t, nc, jetstream.StreamConfig{Name: name, Subjects: []string{"account." + name}, Storage: tt.storage})
		wantFull(t, relayOver(using("account."+name), natsjs.NewPublisher(nc), relay.Config{AcceptRisks: []broker.Risk{natsjs.MemoryStorage}}).Check(t.Context()), tt.want)
	}
}

// A relay starts although a stream is full. It waits for room, and says so.
func TestARelayWaitsForRoom(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	cfg := jetstream.StreamConfig{Name: "ROOM", Subjects: []string{"room.a"}, MaxMsgs: 1, Discard: jetstream.DiscardNew}
	create(t, nc, cfg)
	if _, err := devtest.JetStream(t, nc).Publish(t.Context(), "room.a", nil); err != nil {
		t.Fatal(err)
	}
	src := using("room.a")
	src.Set(func() { src.Events = append(src.Events, event(1, "room.a", "a")) })
	r := relayOver(src, natsjs.NewPublisher(nc), relay.Config{CheckEvery: time.Second})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	devtest.Eventually(t, 20*time.Second, "a relay that leads, is ready and reports the full stream", func() bool {
		h := r.Health()
		return h.State == relay.Leading && h.Ready() == nil && len(h.Faults) == 1 && errors.Is(h.Faults[0], broker.ErrFull)
	})
	if n := len(src.PublishedSeqs()); n != 0 {
		t.Errorf("%d events are published to a full stream", n)
	}
	cfg.MaxMsgs = 10
	if _, err := devtest.JetStream(t, nc).UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 30*time.Second, "the event and the end of the fault", func() bool {
		return len(src.PublishedSeqs()) == 1 && len(r.Health().Faults) == 0
	})
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}
