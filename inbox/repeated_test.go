package inbox_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/telemetry"
)

// The statement or the commit that records what became of an event is carried out, and its answer is
// lost. It is repeated, and knows its first run: each event has one outcome, which is counted and
// logged once, and nobody is told that another process has the event.
func TestARepeatedRecordKnowsItsFirstRun(t *testing.T) {
	t.Parallel()
	failed, never, discarded := errors.New("no"), postroom.Permanent(errors.New("never")), postroom.Discard("not ours")
	for _, tt := range []struct {
		name string
		mark string  // of what loses its answer, after the handler was called for the last time
		ends []error // how the calls for the event e0 end
		kind string
		held int64  // how many outcomes are "held"; -1: it depends on which events wait behind e0
		says string // what is logged once
	}{
		{"a delivery", "COMMIT", []error{nil}, "", 0, ""},
		{"a delivery of a key", "COMMIT", []error{nil}, "ordered", 0, ""},
		{"a batch", "COMMIT", []error{nil}, "batch", 0, ""},
		{"a batch with a dead event", "COMMIT", []error{never, never}, "batch", 0, "event dead"},
		{"a delivery that dies", "hold", []error{never}, "", 0, "event dead"},
		{"a delivery that dies, of a key", "hold", []error{never}, "ordered", 0, "event dead"},
		{"a delivery that dies, with OnDead", "COMMIT", []error{never}, "told", 0, "event dead"},
		{"a delivery that is discarded", "hold", []error{discarded}, "", 0, "event discarded"},
		{"a delivery that its handler commits", "the handler sent a COMMIT itself", []error{failed}, "commits", 0, "event dead"},
		{"a held event", "settle_last", []error{failed, nil}, "", 1, ""},
		{"a held event, and an outage follows", "settle_last", []error{failed, nil}, "outage", 1, ""},
		{"a held event of a key", "COMMIT", []error{failed, nil}, "ordered", -1, ""},
		{"a held event that dies", "fail", []error{failed, never}, "", 1, "event dead"},
		{"a held event that dies, with OnDead", "COMMIT", []error{failed, never}, "told", 1, "event dead"},
		{"a held event that is discarded", "fail", []error{failed, discarded}, "", 1, "event discarded"},
		{"accepted events", "COMMIT", []error{nil}, "accepted", 0, ""},
		{"an external event that is held", "hold", []error{nil}, "external, first held", 5, ""},
		{"an external event", "settle_many", []error{nil}, "external", 5, ""},
		{"an external event, and an outage follows", "settle_many", []error{nil}, "external, outage", 5, ""},
		{"an external event with an effect", "settle_last", []error{nil}, "external, with an effect", 5, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var log lines
			cfg := b.config()
			cfg.Logger = log.logger()
			if tt.kind == "told" {
				cfg.OnDead = func(ctx context.Context, tx pgx.Tx, l inbox.Letter) error { return noting("told", l.Event.ID)(ctx, tx) }
			}
			losing := &devtest.Losing{Mark: tt.mark}
			if !strings.Contains(tt.mark, "COMMIT") {
				losing.Mark = firstLine(t, tt.mark)
			}
			losing.Lost.Store(tt.kind != "external, first held")
			b.in = inbox.New(losing.Pool(t, b.pool), b.nc, cfg)
			sub := b.subscription("h")
			sub.Workers = 1
			switch tt.kind {
			case "batch":
				sub.Batch = 10
			case "ordered":
				sub.Order = inbox.HoldKey
			case "accepted":
				sub.Stream, sub.Types, sub.Batch = "", nil, 10
			}
			var calls atomic.Int32
			end := func(id string) error {
				if id != "e0" {
					return nil
				}
				n := int(calls.Add(1))
				if n == len(tt.ends) && tt.kind != "external, first held" {
					losing.Lost.Store(false)
					losing.Down.Store(strings.HasSuffix(tt.kind, "outage"))
				}
				return tt.ends[min(n, len(tt.ends))-1]
			}
			if strings.HasPrefix(tt.kind, "external") {
				b.in.HandleExternal(sub, func(_ context.Context, attempt *inbox.Attempt) error {
					if tt.kind == "external, first held" { // once it is settled, nobody can tell who held it
						b.eventually("the events to be held", func() bool { return b.counted("h", "held")+b.counted("h", "duplicate") == 5 })
					}
					if tt.kind == "external, with an effect" {
						attempt.OnSuccess(noting("h", attempt.Event.ID))
					}
					return end(attempt.Event.ID)
				})
			} else {
				var together sync.Once
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if tt.kind == "batch" { // so that e0, which is not the first, shares a batch
						together.Do(func() {
							b.eventually("all to be delivered", func() bool {
								all := b.consumers()
								return len(all) == 1 && all[0].NumAckPending == 5
							})
						})
					}
					if tt.kind == "commits" && ev.ID == "e0" {
						_, _ = tx.Exec(ctx, "COMMIT")
					} else if err := noting("h", ev.ID)(ctx, tx); err != nil {
						return err
					}
					return end(ev.ID)
				}))
			}
			events := []string{"e0", "e1", "e2", "e3", "e4"}
			if tt.kind == "batch" {
				events[0], events[1] = events[1], events[0]
			}
			for _, id := range events {
				key := "k"
				if slices.Contains(tt.ends, never) { // otherwise the other events would wait
					key = id
				}
				if tt.kind == "accepted" {
					b.accept("h", id)
				} else {
					b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: key, ContentType: "text/plain", Data: []byte(id)})
				}
			}
			stop := b.run()
			b.eventually("an end of each event", func() bool {
				if losing.Lost.Load() && log.has("database out of reach") {
					losing.Down.Store(false)
				}
				ends := b.leasesLost()
				for _, o := range []string{"done", "dead", "discarded", "duplicate"} {
					ends += b.counted("h", o)
				}
				return losing.Lost.Load() && ends >= 5 && len(b.held("h")) == b.dead("h")
			})
			stop()

			want := map[string]int64{"done": 5, "held": tt.held, "dead": 0, "discarded": 0, "duplicate": 0}
			if last := tt.ends[len(tt.ends)-1]; errors.Is(last, never) || tt.kind == "commits" {
				want["done"], want["dead"] = 4, 1
			} else if last != nil {
				want["done"], want["discarded"] = 4, 1
			}
			got := make(map[string]int64)
			for o := range want {
				got[o] = b.counted("h", o)
			}
			if tt.held < 0 {
				got["held"] = tt.held
			}
			if !maps.Equal(got, want) || b.leasesLost() != 0 {
				t.Errorf("outcomes %v, want %v; %d leases are lost", got, want, b.leasesLost())
			}
			if n := log.count(tt.says); tt.says != "" && n != 1 {
				t.Errorf("%d lines say %q, want one", n, tt.says)
			}
			if log.has("another process has the event") {
				t.Error("a line says that another process has the event")
			}
			if n := len(b.effects("h")); n != int(want["done"]) && (!strings.HasPrefix(tt.kind, "external") || tt.kind == "external, with an effect") {
				t.Errorf("%d events took effect, want %d", n, want["done"])
			}
			if told := b.effects("told"); tt.kind == "told" && !maps.Equal(told, map[string]int{"e0": 1}) {
				t.Errorf("OnDead told of %v, want e0 once", told)
			}
			if n := int(calls.Load()); n != len(tt.ends) {
				t.Errorf("the handler was called %d times for e0, want %d", n, len(tt.ends))
			}
		})
	}
}

// leasesLost returns how often the inbox found that another process has an event.
func (b *bench) leasesLost() (n int64) {
	b.Helper()
	var all metricdata.ResourceMetrics
	if err := b.meter.Collect(b.Context(), &all); err != nil {
		b.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == telemetry.InboxLeaseLost {
				for _, point := range sum.DataPoints {
					n += point.Value
				}
			}
		}
	}
	return n
}
