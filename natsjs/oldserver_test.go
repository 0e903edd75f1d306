package natsjs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// A server that is too old gets no stream, and a relay refuses it. Both name its version.
func TestServersThatAreTooOld(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect(devtest.NATSOfVersion(t, "2.10.26"), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	stream := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: "TOO_OLD", Subjects: []string{"too.old"}})
	check := relay.New(devtest.Pool(t), natsjs.NewPublisher(nc), relay.Config{Streams: []string{"TOO_OLD"}}).Check(t.Context())
	for what, err := range map[string]error{"EnsureStream": stream, "Check": check} {
		if err == nil || !strings.Contains(err.Error(), "has version 2.10.26, on which handlers can stop") || !strings.Contains(err.Error(), "use NATS 2.10.27 or later") {
			t.Errorf("%s = %v, want that the server is too old", what, err)
		}
	}
	if !errors.Is(check, postroom.ErrUnrecoverable) {
		t.Errorf("Check = %v, want an error that matches ErrUnrecoverable", check)
	}
	if _, err := devtest.JetStream(t, nc).Stream(t.Context(), "TOO_OLD"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("Stream = %v, want that there is none", err)
	}
}
