package natsjs_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

func TestExamineAtomicStream(t *testing.T) {
	fit := jetstream.StreamConfig{
		Name: "SHOP", Subjects: []string{"order.>", "postroom.lease.*.SHOP"}, AllowAtomicPublish: true, Duplicates: 2 * time.Minute,
	}
	tests := []struct {
		name   string
		change func(cfg *jetstream.StreamConfig)
		want   []broker.Risk
	}{
		{"made for it", func(*jetstream.StreamConfig) {}, nil},
		{"a wider subject", func(cfg *jetstream.StreamConfig) { cfg.Subjects = []string{"postroom.>"} }, nil},
		{"an age", func(cfg *jetstream.StreamConfig) { cfg.MaxAge = time.Minute }, nil},
		{"a limit that refuses", func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs, cfg.Discard = 5, jetstream.DiscardNew }, nil},
		{"no batches", func(cfg *jetstream.StreamConfig) { cfg.AllowAtomicPublish = false }, []broker.Risk{natsjs.NoAtomicBatches}},
		{"no subject", func(cfg *jetstream.StreamConfig) { cfg.Subjects = []string{"order.>"} }, []broker.Risk{natsjs.NoLeaseSubject}},
		{"another stream's subject", func(cfg *jetstream.StreamConfig) { cfg.Name = "OTHER" }, []broker.Risk{natsjs.NoLeaseSubject}},
		{"rewritten subjects", func(cfg *jetstream.StreamConfig) {
			cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: ">", Destination: "x.>"}
		}, []broker.Risk{natsjs.SubjectTransform, natsjs.NoLeaseSubject}},
		{"rewritten subjects that stay the same", func(cfg *jetstream.StreamConfig) {
			cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Destination: ">"}
		}, []broker.Risk{natsjs.NoLeaseSubject}},
		{"work queue", func(cfg *jetstream.StreamConfig) { cfg.Retention = jetstream.WorkQueuePolicy }, []broker.Risk{natsjs.WorkQueueRetention, natsjs.LeaseNotKept}},
		{"interest", func(cfg *jetstream.StreamConfig) { cfg.Retention = jetstream.InterestPolicy }, []broker.Risk{natsjs.InterestRetention, natsjs.LeaseNotKept}},
		{"a limit for each subject that refuses", func(cfg *jetstream.StreamConfig) {
			cfg.MaxMsgsPerSubject, cfg.DiscardNewPerSubject, cfg.Discard = 3, true, jetstream.DiscardNew
		}, []broker.Risk{natsjs.LeaseNotKept}},
		{"none of it, and what others refuse", func(cfg *jetstream.StreamConfig) {
			cfg.AllowAtomicPublish, cfg.Subjects, cfg.AllowRollup = false, nil, true
		}, []broker.Risk{natsjs.Rollup, natsjs.NoAtomicBatches, natsjs.NoLeaseSubject}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := fit
			tt.change(&cfg)
			var got []broker.Risk
			for _, fault := range natsjs.ExamineAtomicStream(cfg) {
				got = append(got, fault.Risk)
				if fault.Problem == "" || fault.Remedy == "" || !errors.Is(fault, postroom.ErrUnrecoverable) {
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
	for _, risk := range []broker.Risk{natsjs.NoAtomicBatches, natsjs.NoLeaseSubject, natsjs.LeaseNotKept} {
		if slices.Contains(natsjs.Risks(), risk) {
			t.Errorf("%s can be accepted", risk)
		}
	}
}

// A relay with atomic batches also checks what these need of a stream; other relays do not.
// EnsureStream makes streams that pass, and changes existing ones so that they pass.
func TestCheckOfStreamsForAtomicBatches(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	stream(t, nc, jetstream.StreamConfig{Name: "UNFIT", Subjects: []string{"unfit.a"}})
	for _, atomic := range []bool{false, true} {
		err := relayOver(using("unfit.a"), natsjs.NewPublisher(nc), relay.Config{Atomic: atomic}).Check(t.Context())
		for _, risk := range []broker.Risk{natsjs.NoAtomicBatches, natsjs.NoLeaseSubject} {
			if errors.Is(err, risk) != atomic {
				t.Errorf("Check with Atomic %t = %v, want %s: %t", atomic, err, risk, atomic)
			}
		}
	}
	for range 2 { // the first call changes the stream, the second finds nothing to change
		s := atomicStream(t, nc, "UNFIT", "unfit.a")
		if err := relayOver(using("unfit.a"), natsjs.NewPublisher(nc), relay.Config{Atomic: true}).Check(t.Context()); err != nil {
			t.Errorf("Check of a stream that was made fit = %v", err)
		}
		if got, want := s.CachedInfo().Config.Subjects, []string{"unfit.a", "postroom.lease.*.UNFIT"}; !slices.Equal(got, want) {
			t.Errorf("subjects %v, want %v", got, want)
		}
	}
	stream(t, nc, jetstream.StreamConfig{Name: "UNFIT", Subjects: []string{"unfit.b"}})
	if s := atomicStream(t, nc, "UNFIT", "unfit.c"); !s.CachedInfo().Config.AllowAtomicPublish {
		t.Error("a configuration without batches disabled them")
	}
}
