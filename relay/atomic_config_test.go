package relay_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/relay"
)

var _ relay.Batcher = (*relay.JetStreamPublisher)(nil)

// A publisher that makes no batches is a fault of the Config, told with all others.
func TestAtomicNeedsABatcher(t *testing.T) {
	t.Parallel()
	r := relay.New(newFakeSource(), &fakePublisher{}, relay.Config{Atomic: true, Window: -1})
	err := r.Check(t.Context())
	if !errors.Is(err, postroom.ErrRefused) {
		t.Errorf("Check = %v, want a refusal", err)
	}
	for _, want := range []string{"Atomic is set", "Window is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want %q in it", err, want)
		}
	}
}

func TestExamineAtomicStream(t *testing.T) {
	fit := jetstream.StreamConfig{
		Name: "SHOP", Subjects: []string{"order.>", "postroom.lease.*.SHOP"}, AllowAtomicPublish: true, Duplicates: 2 * time.Minute,
	}
	tests := []struct {
		name   string
		change func(cfg *jetstream.StreamConfig)
		want   []relay.Risk
	}{
		{"made for it", func(*jetstream.StreamConfig) {}, nil},
		{"a wider subject", func(cfg *jetstream.StreamConfig) { cfg.Subjects = []string{"postroom.>"} }, nil},
		{"an age", func(cfg *jetstream.StreamConfig) { cfg.MaxAge = time.Minute }, nil},
		{"a limit that refuses", func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs, cfg.Discard = 5, jetstream.DiscardNew }, nil},
		{"no batches", func(cfg *jetstream.StreamConfig) { cfg.AllowAtomicPublish = false }, []relay.Risk{relay.NoAtomicBatches}},
		{"no subject", func(cfg *jetstream.StreamConfig) { cfg.Subjects = []string{"order.>"} }, []relay.Risk{relay.NoLeaseSubject}},
		{"another stream's subject", func(cfg *jetstream.StreamConfig) { cfg.Name = "OTHER" }, []relay.Risk{relay.NoLeaseSubject}},
		{"rewritten subjects", func(cfg *jetstream.StreamConfig) {
			cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: ">", Destination: "x.>"}
		}, []relay.Risk{relay.NoLeaseSubject}},
		{"work queue", func(cfg *jetstream.StreamConfig) { cfg.Retention = jetstream.WorkQueuePolicy }, []relay.Risk{relay.WorkQueueRetention, relay.LeaseNotKept}},
		{"interest", func(cfg *jetstream.StreamConfig) { cfg.Retention = jetstream.InterestPolicy }, []relay.Risk{relay.InterestRetention, relay.LeaseNotKept}},
		{"a limit for each subject that refuses", func(cfg *jetstream.StreamConfig) {
			cfg.MaxMsgsPerSubject, cfg.DiscardNewPerSubject, cfg.Discard = 3, true, jetstream.DiscardNew
		}, []relay.Risk{relay.LeaseNotKept}},
		{"none of it, and what others refuse", func(cfg *jetstream.StreamConfig) {
			cfg.AllowAtomicPublish, cfg.Subjects, cfg.AllowRollup = false, nil, true
		}, []relay.Risk{relay.Rollup, relay.NoAtomicBatches, relay.NoLeaseSubject}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := fit
			tt.change(&cfg)
			var got []relay.Risk
			for _, fault := range relay.ExamineAtomicStream(cfg) {
				got = append(got, fault.Risk)
				if fault.Problem == "" || fault.Remedy == "" || !errors.Is(fault, postroom.ErrRefused) {
					t.Errorf("fault %v without problem or remedy", fault)
				}
				if strings.HasPrefix(string(fault.Risk), "no-") && strings.Contains(fault.Error(), "--accept") {
					t.Errorf("%v: it cannot be accepted", fault)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("risks %v, want %v", got, tt.want)
			}
		})
	}
	for _, risk := range []relay.Risk{relay.NoAtomicBatches, relay.NoLeaseSubject, relay.LeaseNotKept} {
		if slices.Contains(relay.Risks(), risk) {
			t.Errorf("%s can be accepted", risk)
		}
	}
}

// A relay in atomic batches examines streams for them, another one does not; what
// EnsureStream makes, or makes of a stream, is fit.
func TestCheckOfStreamsForAtomicBatches(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	stream(t, nc, jetstream.StreamConfig{Name: "UNFIT", Subjects: []string{"unfit.a"}})
	for _, atomic := range []bool{false, true} {
		err := relay.New(using("unfit.a"), relay.JetStream(nc), relay.Config{Atomic: atomic}).Check(t.Context())
		for _, risk := range []relay.Risk{relay.NoAtomicBatches, relay.NoLeaseSubject} {
			if errors.Is(err, risk) != atomic {
				t.Errorf("Check with Atomic %t = %v, want %s: %t", atomic, err, risk, atomic)
			}
		}
	}
	for range 2 { // once to change it, once where it is as it should be
		s := atomicStream(t, nc, "UNFIT", "unfit.a")
		if err := relay.New(using("unfit.a"), relay.JetStream(nc), relay.Config{Atomic: true}).Check(t.Context()); err != nil {
			t.Errorf("Check of a stream that was made fit = %v", err)
		}
		if got, want := s.CachedInfo().Config.Subjects, []string{"unfit.a", "postroom.lease.*.UNFIT"}; !slices.Equal(got, want) {
			t.Errorf("subjects %v, want %v", got, want)
		}
	}
	stream(t, nc, jetstream.StreamConfig{Name: "UNFIT", Subjects: []string{"unfit.b"}})
	if s := atomicStream(t, nc, "UNFIT", "unfit.c"); !s.CachedInfo().Config.AllowAtomicPublish {
		t.Error("a wish without batches took them away")
	}
}
