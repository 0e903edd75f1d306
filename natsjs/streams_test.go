package natsjs_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/devtest/fakelog"
)

// create makes a stream as an operator would who does not know Postroom.
func create(t *testing.T, nc *nats.Conn, cfg jetstream.StreamConfig) {
	t.Helper()
	if _, err := devtest.JetStream(t, nc).CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// using returns a log whose events have the given subjects.
func using(subjects ...string) *fakelog.Log { return fakelog.New(subjects...) }
