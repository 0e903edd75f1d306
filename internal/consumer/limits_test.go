package consumer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/consumer"
)

func TestThreshold(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	for _, tt := range []struct{ most, wish, want time.Duration }{
		{0, 0, 0}, {0, minute, minute}, {2 * minute, minute, minute}, {minute, 2 * minute, minute}, {minute, 0, minute},
	} {
		stream := jetstream.StreamConfig{ConsumerLimits: jetstream.StreamConsumerLimits{InactiveThreshold: tt.most}}
		if got := consumer.Threshold(stream, tt.wish); got != tt.want {
			t.Errorf("of a stream that allows %s, a wish for %s becomes %s, want %s", tt.most, tt.wish, got, tt.want)
		}
	}
}

// If a stream removes the consumer of a handler that does not run, the handler loses events. Two
// cases are safe: the stream has limits retention, or the handler is ordered and needs no durable
// consumer.
func TestStreamsThatRemoveConsumers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most      time.Duration
		retention jetstream.RetentionPolicy
		ordered   bool
		want      string
	}{
		"never":                      {0, jetstream.InterestPolicy, false, ""},
		"too soon":                   {time.Millisecond, jetstream.LimitsPolicy, true, "asks for nothing for 1ms"},
		"with its events":            {time.Hour, jetstream.InterestPolicy, false, "also the events"},
		"with those of a work queue": {time.Hour, jetstream.WorkQueuePolicy, false, "also the events"},
		"and keeps the events":       {time.Hour, jetstream.LimitsPolicy, false, ""},
		"of an ordered handler":      {time.Hour, jetstream.InterestPolicy, true, ""},
	} {
		stream := jetstream.StreamConfig{Retention: tt.retention, ConsumerLimits: jetstream.StreamConsumerLimits{InactiveThreshold: tt.most}}
		faults := consumer.ExamineLimits(stream, tt.ordered, []string{"a.b"})
		if (len(faults) > 0) != (tt.want != "") || len(faults) > 0 && !strings.Contains(faults[0].Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, faults, tt.want)
		}
	}
}

// It is a fault if a handler reads a subject whose messages the stream stores under another
// subject. It is none if some messages may keep the handler's subject.
func TestStreamsThatMoveSubjects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		source, destination, subject string
		moved                        bool
	}{
		{"", "moved.>", "a.b", true},
		{"a.>", "moved.>", "a.b", true},
		{"a.>", "moved.>", "b.c", false}, // the transform does not apply to b.c
		{"a.*", "moved.a.{{wildcard(1)}}", "a.b", true},
		{"a.*", "a.{{wildcard(1)}}", "a.b", false},
		{"a.*", "a.$1", "a.b", false},
		{"a.*", "a.*", "a.b", false},
		{"a.b", "a.b.c", "a.b", true},
		{"a.b", "a", "a.b", true},
		{"a.b", "c.b", "a.b", true},
		{"a.*", "b.c", "a.*", true},
		{"a.*", "a.c", "a.*", false},
		{"a.>", "a.c.d.e", "a.>", false},
		{"a.>", "a.>", "a.b.c", false},
	} {
		stream := jetstream.StreamConfig{SubjectTransform: &jetstream.SubjectTransformConfig{Source: tt.source, Destination: tt.destination}}
		faults := consumer.ExamineLimits(stream, false, []string{tt.subject})
		if (len(faults) > 0) != tt.moved {
			t.Errorf("%q to %q, of a handler of %s: %v, want it reported: %t", tt.source, tt.destination, tt.subject, faults, tt.moved)
		}
	}
}
