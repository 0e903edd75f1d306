package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/repeat"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// The relay reports a broker or an account without JetStream in the same words as the inbox.
func TestABrokerWithoutJetStream(t *testing.T) {
	t.Parallel()
	const accounts = `accounts { none { users: [{user: none, password: x}] }, some { jetstream: enabled, users: [{user: some, password: x}] } }`
	tests := []struct {
		name    string
		nc      *nats.Conn
		refused bool
		wants   string
	}{
		{"at all", devtest.PlainNATS(t, "jetstream: disabled", natsjs.ConnectOptions()...), false, "start nats-server with -js"},
		{"in this account", devtest.PlainNATS(t, accounts, append(natsjs.ConnectOptions(), nats.UserInfo("none", "x"))...), true, "the account of this user has no JetStream"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := &logged{}
			r := relay.Over(using("a"), natsjs.NewPublisher(tt.nc), relay.Config{Logger: log.logger()})
			err := r.Check(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.wants) || errors.Is(err, postroom.ErrUnrecoverable) != tt.refused {
				t.Errorf("Check = %v, want %q, refused %t", err, tt.wants, tt.refused)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began, done := time.Now(), make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			if !tt.refused {
				devtest.Eventually(t, 30*time.Second, "several tries", func() bool { return r.Health().ErrAt.Sub(began) > 2*time.Second })
				cancel()
			}
			if err := <-done; (err != nil) != tt.refused || err != nil && !strings.Contains(err.Error(), tt.wants) {
				t.Errorf("Run = %v, want an error: %t", err, tt.refused)
			}
			if n, most := log.count(tt.wants), 1+int(time.Since(began)/repeat.Every); !tt.refused && (n < 1 || n > most) {
				t.Errorf("%d lines say %q, want 1 to %d", n, tt.wants, most)
			}
		})
	}
}
