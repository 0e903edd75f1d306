package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// measuredSource is a fakeSource that knows its backlog.
type measuredSource struct {
	*fakeSource

	lag eventlog.Lag
}

func (s *measuredSource) Lag(context.Context) (eventlog.Lag, error) { return s.lag, nil }

// values are the metrics at one moment: the sum over all points of an instrument,
// or the sum over the points that have an attribute, as in "name attribute=value". The value of a
// histogram is its count.
type values map[string]float64

func collect(t *testing.T, reader *sdk.ManualReader) values {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	v := values{}
	add := func(name string, n float64, set attribute.Set) {
		v[name] += n
		for _, kv := range set.ToSlice() {
			v[name+" "+string(kv.Key)+"="+kv.Value.String()] += n
		}
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, float64(p.Value), p.Attributes)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Value, p.Attributes)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, float64(p.Count), p.Attributes)
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, float64(p.Count), p.Attributes)
				}
			default:
				t.Fatalf("%s has data of type %T", m.Name, m.Data)
			}
		}
	}
	return v
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := events(20)
		for i := range all {
			all[i].Subject = "a.b"
		}
		all[0].Key = "dead"
		all[1].Key = "dead"
		all[2].Key = "slow"
		src := &measuredSource{newFakeSource(all...), eventlog.Lag{
			Age: 3 * time.Second, Events: 7, Appended: 20, HeldKeys: 2, Overdue: 4 * time.Second, OldestEventAge: 80 * time.Hour, OldestWriterAge: time.Minute,
			Held:  map[eventlog.HeldReason]eventlog.HeldCount{eventlog.HeldDead: {Events: 5, Age: time.Hour}},
			Bytes: map[string]int64{"outbox": 4096, "held": 8192},
			Sagas: []eventlog.SagaCount{{Saga: "checkout", Running: 9, Compensating: 4, Stuck: 2, Oldest: time.Hour}},
		}}
		pub := &inspectable{fakePublisher: fakePublisher{stream: "SHOP", answer: func(ev broker.Event, try int) (time.Duration, error) {
			switch {
			case ev.Key == "dead":
				return time.Millisecond, &classError{broker.Permanent, "js_10054"}
			case ev.Key == "slow" && try == 1:
				return time.Millisecond, broker.ErrUnacknowledged
			}
			return time.Millisecond, nil
		}}}
		reader := sdk.NewManualReader()
		r := relay.Over(src, pub, relay.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
		run := start(r)
		after(5 * time.Second)
		pub.set(func() { pub.faults = []error{errors.New("drifted")} })
		after(time.Minute)
		got := collect(t, reader)
		want := values{
			"postroom.relay.events outcome=stored":                           18,
			"postroom.relay.events outcome=retried":                          1,
			"postroom.relay.events outcome=held":                             2, // the dead one and the one behind it
			"postroom.relay.events outcome=dead":                             1,
			"postroom.dead.events error.type=js_10054":                       1,
			"messaging.client.sent.messages messaging.destination.name=SHOP": 20, // failed ones too
			"messaging.client.sent.messages error.type=js_10054":             1,
			"messaging.client.sent.messages error.type=publish_timeout":      1,
			"postroom.relay.lag.age lane=outbox":                             3,
			"postroom.relay.lag.events":                                      7,
			"postroom.saga.instances state=running":                          9,
			"postroom.saga.instances state=compensating":                     4,
			"postroom.saga.instances state=stuck":                            2,
			"postroom.saga.oldest.age saga=checkout":                         3600,
			"postroom.relay.leader":                                          1,
			"postroom.relay.takeovers":                                       1,
			"postroom.relay.paused":                                          0,
			"postroom.log.appended":                                          20,
			"postroom.held.events reason=dead":                               5,
			"postroom.held.oldest.age reason=dead":                           3600,
			"postroom.held.keys":                                             2,
			"postroom.held.overdue.age":                                      4,
			"postroom.relay.oldest_transaction.age":                          60,
			"postroom.retention.lag.age table=outbox":                        8 * 3600,
			"postroom.table.size table=held":                                 8192,
			"postroom.check.failed":                                          1,
		}
		for name, n := range want {
			if v, ok := got[name]; !ok || v != n {
				t.Errorf("%s = %v (there: %t), want %v", name, v, ok, n)
			}
		}
		for _, name := range []string{"postroom.relay.commit_to_ack.duration", "messaging.client.operation.duration", "postroom.relay.flush.size"} {
			if got[name] == 0 {
				t.Errorf("%s did not count", name)
			}
		}
		run.stop()
		run.wait(t)
		if got := collect(t, reader); got["postroom.relay.leader"] != 0 || got["postroom.table.size"] != 0 {
			t.Errorf("gauges are reported after Run: %v", got)
		}
	})
}

// forgetfulSource measures its lag only so many times.
type forgetfulSource struct {
	*fakeSource
	left atomic.Int64
}

func (s *forgetfulSource) Lag(context.Context) (eventlog.Lag, error) {
	if s.left.Add(-1) < 0 {
		return eventlog.Lag{}, errors.New("canceling statement due to statement timeout")
	}
	return eventlog.Lag{Events: 7}, nil
}

// If the database does not count in time, the gauges keep their values, and say how old these are.
func TestMetricsSayHowOldTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		src := &forgetfulSource{fakeSource: newFakeSource()}
		src.left.Store(2)
		r := relay.Over(src, &fakePublisher{stream: "SHOP"}, relay.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
		run := start(r)
		age := func(least, most float64) {
			t.Helper()
			got := collect(t, reader)
			if v, ok := got["postroom.measured.age lane=outbox"]; !ok || v < least || v > most {
				t.Errorf("the gauges are %v s old (there: %t), want %v to %v", v, ok, least, most)
			}
			if v, ok := got["postroom.relay.lag.events"]; ok && v != 7 {
				t.Errorf("the lag is %v events, want 7", v)
			}
		}
		after(4 * time.Second)
		age(1, 4) // since the relay leads
		after(time.Second + 15*time.Second + time.Second)
		age(0, 2)
		after(time.Minute)
		age(58, 62)
		run.stop()
		run.wait(t)
	})
}

// If the relay's role may not see some writers, the metrics do not say that there are none.
func TestMetricsDoNotDenyHiddenWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for backlog, want := range map[*eventlog.Lag]bool{
			{}:                 true,
			{HiddenWriters: 1}: false,
			{HiddenWriters: 1, OldestWriterAge: time.Hour}: true,
		} {
			reader := sdk.NewManualReader()
			src := &measuredSource{newFakeSource(), *backlog}
			r := relay.Over(src, &fakePublisher{stream: "SHOP"}, relay.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
			run := start(r)
			after(time.Minute)
			got := collect(t, reader)
			if v, ok := got["postroom.relay.oldest_transaction.age"]; ok != want || v != backlog.OldestWriterAge.Seconds() {
				t.Errorf("%d writers not reported and one open for %s: reported %t, as %v s", backlog.HiddenWriters, backlog.OldestWriterAge, ok, v)
			}
			run.stop()
			run.wait(t)
		}
	})
}

// A relay that waits for the broker or for a stream says so.
func TestWaitingRelaySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := events(3)
		for i := range all {
			all[i].Subject = "a.b"
		}
		src := newFakeSource(all[:1]...)
		var out atomic.Bool
		pub := &inspectable{fakePublisher: fakePublisher{stream: "SHOP"}}
		pub.answer = func(broker.Event, int) (time.Duration, error) {
			if out.Load() {
				return 0, broker.ErrNoLeader
			}
			return 0, nil
		}
		reader := sdk.NewManualReader()
		r := relay.Over(src, pub, relay.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
		run := start(r)
		after(time.Second)
		out.Store(true)
		src.Set(func() { src.terms[0].Unread = all[1:2] })
		after(10 * time.Second)
		if got := collect(t, reader); got["postroom.relay.paused reason=stream"] != 1 {
			t.Errorf("paused %v, want 1 for the stream", got["postroom.relay.paused reason=stream"])
		}
		if h := r.Health(); len(h.UnavailableStreams) != 1 || h.UnavailableStreams[0] != "SHOP" {
			t.Errorf("Health.Out = %q, want SHOP", h.UnavailableStreams)
		}
		if len(src.Held) > 0 {
			t.Errorf("an outage held %v", src.Held)
		}
		out.Store(false)
		pub.set(func() { pub.off = true })
		after(10 * time.Second)
		got := collect(t, reader)
		if got["postroom.relay.paused reason=stream"] != 0 || got["postroom.relay.paused reason=broker"] != 1 {
			t.Errorf("paused: stream %v, broker %v; want the broker", got["postroom.relay.paused reason=stream"], got["postroom.relay.paused reason=broker"])
		}
		src.Set(func() {
			src.recorded = func(t *fakeTerm, _ context.Context) error {
				if t == t.source.terms[0] {
					return eventlog.ErrLeaseLost
				}
				return nil
			}
		})
		after(10 * time.Second)
		if got := collect(t, reader); got["postroom.relay.fenced"] != 1 || got["postroom.relay.takeovers"] != 2 {
			t.Errorf("fenced %v, takeovers %v; want 1 and 2", got["postroom.relay.fenced"], got["postroom.relay.takeovers"])
		}
		run.stop()
		run.wait(t)
	})
}

// A batch has a span if some of its events belong to a sampled trace, and links to these
// events.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			yes = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			no  = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203332-00"
		)
		all := events(6)
		all[1].TraceParent, all[1].ID = yes, "traced"
		all[2].TraceParent = no
		src := newFakeSource(all[:3]...)
		pub := &fakePublisher{stream: "SHOP", answer: func(ev broker.Event, try int) (time.Duration, error) {
			if ev.TraceParent == yes && try == 1 {
				return 0, broker.ErrUnacknowledged
			}
			return time.Millisecond, nil
		}}
		spans := tracetest.NewSpanRecorder()
		run := start(relay.Over(src, pub, relay.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}))
		after(time.Second)
		src.Set(func() { src.terms[0].Unread = all[3:] }) // none of them has a trace
		after(time.Minute)
		run.stop()
		run.wait(t)

		ended := spans.Ended()
		if len(ended) != 2 {
			t.Fatalf("%d spans, want one for the batch that failed and one for its repetition", len(ended))
		}
		for i, s := range ended {
			if s.Name() != "publish SHOP" || s.SpanKind() != trace.SpanKindClient || s.Parent().IsValid() {
				t.Errorf("span %s of kind %s with parent %v", s.Name(), s.SpanKind(), s.Parent())
			}
			if links := s.Links(); len(links) != 1 || links[0].SpanContext.TraceID().String() != yes[3:35] || links[0].SpanContext.SpanID().String() != yes[36:52] {
				t.Errorf("links %v, want only the sampled producer", links)
			}
			if failed := s.Status().Code == codes.Error; failed != (i == 0) {
				t.Errorf("span %d failed: %t", i, failed)
			}
		}
		if n := len(spans.Started()); n != 2 {
			t.Errorf("%d spans began, and an idle pass has none", n)
		}
	})
}

// The log is pruned from time to time, and without a pause while there is more
// to remove; a negative retention keeps it.
func TestRelayPrunes(t *testing.T) {
	for _, retention := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			src := newFakeSource()
			src.prunable = 10
			run := start(relay.Over(src, &fakePublisher{}, relay.Config{Retention: retention}))
			after(5 * time.Second)
			var steps, later int
			src.Set(func() { steps = len(src.terms[0].pruned) })
			after(time.Minute)
			src.Set(func() { later = len(src.terms[0].pruned) - steps })
			run.stop()
			run.wait(t)
			switch {
			case retention < 0 && steps+later > 0:
				t.Errorf("pruned %d times, although retention is off", steps+later)
			case retention == 0 && (steps != 10 || later < 5 || later > 7):
				t.Errorf("pruned %d times while there was more and %d times in the minute after it, want 10 and 6", steps, later)
			}
		})
	}
}
