package streamcmd

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestStreamWishCompare(t *testing.T) {
	now := jetstream.StreamConfig{Name: "SHOP", Replicas: 1, Discard: jetstream.DiscardNew}
	dropping := now
	dropping.Discard = jetstream.DiscardOld
	tests := []struct {
		name string
		wish settings
		now  jetstream.StreamConfig
		want string
	}{
		{"nothing asked", settings{}, now, ""},
		{"as asked", settings{replicas: 1}, now, ""},
		{"fewer replicas", settings{replicas: 3}, now, "has 1 replica, not 3"},
		{"kept for ever", settings{maxAge: time.Hour}, now, "keeps messages for ever, not 1h0m0s"},
		{"drops old messages", settings{}, dropping, "drops old messages at a limit"},
		{"several", settings{replicas: 3, maxAge: time.Hour}, now, "not 3, and keeps"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.wish.compare(tt.now)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("compare = %v, want %q", err, tt.want)
			}
		})
	}
}
