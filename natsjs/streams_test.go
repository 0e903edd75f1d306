package natsjs_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/anylog"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/devtest/fakelog"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// create makes a stream as an operator would who does not know Postroom.
func create(t *testing.T, nc *nats.Conn, cfg jetstream.StreamConfig) {
	t.Helper()
	if _, err := devtest.JetStream(t, nc).CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// relayOver returns a relay over a log in memory.
func relayOver(log eventlog.Source, pub broker.Publisher, cfg relay.Config) *relay.Relay {
	return anylog.Relay[*relay.Relay](log, pub, cfg)
}

// using returns a log whose events have the given subjects.
func using(subjects ...string) *fakelog.Log { return fakelog.New(subjects...) }
