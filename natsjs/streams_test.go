package natsjs_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest/fakelog"
)

func management(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// create makes a stream as an operator would who knows nothing of Postroom.
func create(t *testing.T, nc *nats.Conn, cfg jetstream.StreamConfig) {
	t.Helper()
	if _, err := management(t, nc).CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// using returns a log whose events have the given subjects.
func using(subjects ...string) *fakelog.Log { return fakelog.New(subjects...) }
