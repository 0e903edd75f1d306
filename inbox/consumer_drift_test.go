package inbox_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/natsjs"
)

// changeConsumer changes the handler's consumer, as an operator does with the nats CLI.
func (b *bench) changeConsumer(change func(*jetstream.ConsumerConfig)) {
	b.Helper()
	stream, err := b.js.Stream(b.Context(), b.stream)
	if err != nil {
		b.Fatal(err)
	}
	cfg := b.consumers()[0].Config
	change(&cfg)
	if _, err := stream.UpdateConsumer(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
}

// An operator limits max_deliver while six events are in flight, and these are given back: by a
// graceful restart, or because the process runs on and cannot hold them. The broker then drops them.
// The handler gets them nevertheless, whatever the retention of the stream is.
func TestMaxDeliverOfAnOperatorLosesNothing(t *testing.T) {
	t.Parallel()
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.InterestPolicy, jetstream.WorkQueuePolicy} {
		for _, seen := range []string{"by a restart", "by another process", "by the process"} {
			t.Run(retention.String()+" "+seen, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.retain(retention)
				cfg := b.config()
				cfg.DrainTimeout = 50 * time.Millisecond
				b.in = inbox.New(b.pool, b.nc, cfg)
				if seen == "by the process" {
					inbox.LookOften(b.in, 10*time.Millisecond)
				}
				began, finish := make(chan struct{}, 6), make(chan struct{})
				sub := b.subscription("h")
				sub.Workers = 6
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if ev.ID != "before" {
						select {
						case began <- struct{}{}:
						default: // delivered again
						}
						select {
						case <-finish:
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					return effect("h").Handle(ctx, tx, ev)
				}))
				stop := b.run()
				b.eventually("the consumer", func() bool { return len(b.consumers()) == 1 })
				b.publish("before")
				b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
				b.publish(ids("e", 6)...)
				for range 6 {
					<-began
				}
				b.changeConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 1 })
				corrected := func() {
					b.eventually("the change to be corrected", func() bool { all := b.consumers(); return len(all) == 1 && all[0].Config.MaxDeliver == -1 })
				}
				switch seen {
				case "by another process":
					other := inbox.New(b.pool, b.nc, b.config())
					inbox.LookOften(other, 10*time.Millisecond)
					other.Handle(b.subscription("h"), effect("h"))
					first := b.in
					b.in = other
					b.run()
					b.in = first
					corrected()
					stop()
				case "by the process":
					corrected()
					close(finish)
				default:
					stop()
					b.in = inbox.New(b.pool, b.nc, b.config())
					b.in.Handle(b.subscription("h"), effect("h"))
					b.run()
				}
				b.eventually("the effects of all events", func() bool { return len(b.effects("h")) == 7 })
				b.drained()
				b.wantOnce("h", append(ids("e", 6), "before")...)
			})
		}
	}
}

// A running process corrects what an operator changed on the consumer, says so once, and reads on.
// So does a process that begins. With some of these settings, the broker refuses each request.
func TestConsumerDriftIsCorrected(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*jetstream.ConsumerConfig)
		minor  int // the setting came with NATS 2.minor
	}{
		"max_deliver":            {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }, 0},
		"max_ack_pending":        {func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 }, 0},
		"ack_wait":               {func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour }, 0},
		"backoff":                {func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{time.Hour} }, 0},
		"inactive_threshold":     {func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Hour }, 0},
		"filter_subjects":        {func(c *jetstream.ConsumerConfig) { c.FilterSubjects, c.FilterSubject = nil, "other.thing" }, 0},
		"filter_subjects is emp": {func(c *jetstream.ConsumerConfig) { c.FilterSubjects, c.FilterSubject = nil, "" }, 0},
		"headers only":           {func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }, 0},
		"metadata":               {func(c *jetstream.ConsumerConfig) { c.Metadata = nil }, 0},
		"max_batch":              {func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 }, 0},
		"max_bytes":              {func(c *jetstream.ConsumerConfig) { c.MaxRequestMaxBytes = 1 }, 0},
		"max_expires":            {func(c *jetstream.ConsumerConfig) { c.MaxRequestExpires = time.Second }, 0},
		"priority_policy": {func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"jobs"}
		}, 11},
		"priority_policy is set": {func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"jobs"}, time.Minute
		}, 11},
	} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, running %t", name, running), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				devtest.NeedsNATS(t, b.nc, tt.minor)
				var log lines
				start := func() (stop func()) {
					b.anew(func(cfg *inbox.Config) { cfg.Logger = log.logger() })
					inbox.LookOften(b.in, 10*time.Millisecond)
					b.in.Handle(b.subscription("h"), effect("h"))
					return b.run()
				}
				stop := start()
				b.publish("a")
				b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
				b.drained()
				want := b.consumers()[0].Config
				if !running {
					stop()
				}
				b.changeConsumer(tt.change)
				if !running {
					start()
				}
				b.eventually("it to be corrected", func() bool {
					all := b.consumers()
					return len(all) == 1 && sameSettings(all[0].Config, want)
				})
				b.publish(ids("b", 30)...)
				b.eventually("the other effects", func() bool { return len(b.effects("h")) == 31 })
				b.drained()
				b.wantOnce("h", append(ids("b", 30), "a")...)
				b.eventually("the report", func() bool { return log.has("consumer has drifted and ") && log.has(name) })
				if n := log.count("consumer has drifted and "); n != 1 {
					t.Errorf("the log says %d times that the consumer has drifted, want once", n)
				}
				b.eventually("the end of the alarm", func() bool { return alarmOfDrift(b) == 0 })
			})
		}
	}
}

// sameSettings reports whether a consumer has the settings want again. It may begin elsewhere, and
// keep subjects that an operator added.
func sameSettings(got, want jetstream.ConsumerConfig) bool {
	got.DeliverPolicy, got.OptStartSeq = want.DeliverPolicy, want.OptStartSeq
	if !slices.Contains(got.FilterSubjects, want.FilterSubject) && got.FilterSubject != want.FilterSubject {
		return false
	}
	got.FilterSubjects, got.FilterSubject = want.FilterSubjects, want.FilterSubject
	return reflect.DeepEqual(got, want)
}

// alarmOfDrift returns the value of the gauge that says whether the consumer has drifted.
func alarmOfDrift(b *bench) float64 {
	for name, value := range b.gauges() {
		if strings.HasPrefix(name, telemetry.CheckFailed) && strings.Contains(name, "consumer") {
			return value
		}
	}
	return -1
}

// An operator limits the subjects of a consumer. The broker skips the messages of the other
// subjects, and does not go back when the consumer gets its subjects again. The handler gets these
// messages nevertheless. A subject that a new version of the service adds is not one of these.
func TestSubjectsThatAnOperatorRemovedAreNotSkipped(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"restart": true, "running": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.in.Handle(b.subscription("h"), effect("h"))
			stop := b.run()
			b.publish("a")
			b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
			b.drained()
			b.changeConsumer(func(c *jetstream.ConsumerConfig) { c.FilterSubjects, c.FilterSubject = nil, b.stream+".other" })
			b.publish(ids("b", 5)...)
			b.publishRaw(&nats.Msg{Subject: b.stream + ".other"}) // the broker delivers it behind the others
			b.eventually("the broker to skip them", func() bool { return b.consumers()[0].Delivered.Stream >= 7 })
			if restart {
				stop()
			}
			sub := b.subscription("h")
			sub.Types = append(sub.Types, b.stream+".more")
			b.anew(nil) // another process
			b.in.Handle(sub, effect("h"))
			b.run()
			b.eventually("all effects", func() bool { return len(b.effects("h")) == 6 })
			b.drained()
			b.wantOnce("h", append(ids("b", 5), "a")...)
			made := b.consumers()[0].Created
			sub.Types = append(sub.Types, b.stream+".new")
			b.anew(nil)
			b.in.Handle(sub, effect("h"))
			b.run()
			b.eventually("the new subject", func() bool { return slices.Contains(b.consumers()[0].Config.FilterSubjects, b.stream+".new") })
			if now := b.consumers()[0].Created; !now.Equal(made) {
				t.Error("the consumer was created again for a subject that is new")
			}
		})
	}
}

// An operator deletes the consumer and creates it again with other settings, some of which cannot
// be changed later. The handler gets all events nevertheless.
func TestAConsumerMadeByHand(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jetstream.ConsumerConfig){
		"ack_policy": func(c *jetstream.ConsumerConfig) {
			c.AckPolicy, c.AckWait, c.MaxAckPending = jetstream.AckNonePolicy, 0, 0
		},
		"state":         func(c *jetstream.ConsumerConfig) { c.MemoryStorage = true },
		"replay_policy": func(c *jetstream.ConsumerConfig) { c.ReplayPolicy = jetstream.ReplayOriginalPolicy },
		"deliver_policy": func(c *jetstream.ConsumerConfig) {
			c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverNewPolicy, 0
		},
		"opt_start_seq": func(c *jetstream.ConsumerConfig) {
			c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, 5
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.in.Handle(b.subscription("h"), effect("h"))
			stop := b.run()
			b.publish("a")
			b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
			stop()
			cfg := b.consumers()[0].Config
			b.loseConsumers()
			b.publish(ids("b", 5)...)
			change(&cfg)
			if _, err := b.js.CreateConsumer(t.Context(), b.stream, cfg); err != nil {
				t.Fatal(err)
			}
			var log lines
			b.anew(func(cfg *inbox.Config) { cfg.Logger = log.logger() })
			b.in.Handle(b.subscription("h"), effect("h"))
			b.run()
			b.eventually("all effects", func() bool { return len(b.effects("h")) == 6 })
			b.drained()
			b.wantOnce("h", append(ids("b", 5), "a")...)
			if got := b.consumers()[0].Config; got.AckPolicy != jetstream.AckExplicitPolicy || got.MemoryStorage || got.ReplayPolicy != jetstream.ReplayInstantPolicy {
				t.Errorf("the consumer is %+v", got)
			}
			if !log.has("was created again") || !log.has(name) {
				t.Error("the log does not say so")
			}
		})
	}
}

// A tool sets back a setting again and again. A process corrects it at most once per interval. Two
// processes do not correct each other.
func TestAToolThatChangesTheConsumerAgainAndAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jetstream.ConsumerConfig){
		"max_ack_pending": func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 100 },
		"max_deliver":     func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 100 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			const every = time.Second
			logs := make([]lines, 2)
			var stops []func()
			for i := range logs {
				b.anew(func(cfg *inbox.Config) { cfg.Logger, cfg.AckWait = logs[i].logger(), time.Duration(i+1)*time.Second })
				inbox.LookOften(b.in, every)
				b.in.Handle(b.subscription("h"), effect("h"))
				stops = append(stops, b.run())
				b.eventually("the process to read", func() bool { all := b.consumers(); return len(all) == 1 && all[0].NumWaiting == i+1 })
			}
			corrections := func() int {
				return logs[0].count("consumer has drifted and ") + logs[1].count("consumer has drifted and ")
			}
			before, began, published := corrections(), time.Now(), 0 // the second process changed ack_wait
			for corrections() < before+6 {
				all := b.consumers()
				if len(all) == 1 {
					cfg := all[0].Config
					if change(&cfg); !reflect.DeepEqual(cfg, all[0].Config) {
						_, _ = b.js.UpdateConsumer(t.Context(), b.stream, cfg) // fails while the consumer is being created
						b.publish(fmt.Sprint("e", published))
						published++
					}
				}
				if time.Since(began) > devtest.Patience(t, 20*time.Second) {
					t.Fatalf("%d corrections", corrections()-before)
				}
			}
			if n, most := corrections()-before, 2*int(time.Since(began)/every)+4; n > most {
				t.Errorf("%d corrections in %s, want no more than %d", n, time.Since(began), most)
			}
			b.eventually("all effects", func() bool { return len(b.effects("h")) == published })
			b.eventually("the last correction", func() bool {
				all := b.consumers()
				return len(all) == 1 && all[0].Config.MaxAckPending == -1 && all[0].Config.MaxDeliver == -1
			})
			b.drained()
			for event, n := range b.effects("h") {
				if n != 1 {
					t.Errorf("%d effects of %s", n, event)
				}
			}
			for _, stop := range stops {
				stop()
			}
		})
	}
}

// Two versions of a service wish different acknowledgement waits. The one that began last sets its
// own, and the other one does not correct it. What an operator sets is corrected.
func TestVersionsDoNotCorrectEachOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	logs := make([]lines, 2)
	for i := range logs {
		b.anew(func(cfg *inbox.Config) { cfg.Logger, cfg.AckWait = logs[i].logger(), time.Duration(i+1)*time.Minute })
		inbox.LookOften(b.in, 10*time.Millisecond)
		b.in.Handle(b.subscription("h"), effect("h"))
		b.run()
		b.eventually("its ack_wait", func() bool {
			all := b.consumers()
			return len(all) == 1 && all[0].NumWaiting == i+1 && all[0].Config.AckWait == time.Duration(i+1)*time.Minute
		})
	}
	b.changeConsumer(func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour })
	b.eventually("it to be corrected", func() bool { return b.consumers()[0].Config.AckWait <= 2*time.Minute })
	for i := range 20 {
		b.publish(fmt.Sprint("e", i))
		b.eventually("a process to look", func() bool { floor, _ := b.floor("h"); return floor > int64(i) })
	}
	if n := logs[0].count("has drifted"); n > 1 {
		t.Errorf("the first process found %d drifts, want the operator's at most", n)
	}
	if n := logs[1].count("has drifted"); n < 1 || n > 2 {
		t.Errorf("the second process found %d drifts, want the wait of the first and perhaps the operator's", n)
	}
}

// A server may limit the requests of all consumers. Handlers obey, and do not take that for a drift.
func TestHandlersObeyTheServersLimitOfRequests(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartNATS(t.Context(), devstack.NATSConfig{Options: `jetstream { limits { max_request_batch: 3 } }`})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	nc, err := nats.Connect(server.URL(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := newBenchOn(t, devtest.Pool(t), nc)
	var log lines
	b.anew(func(cfg *inbox.Config) { cfg.Logger = log.logger() })
	inbox.LookOften(b.in, 10*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.publish(ids("e", 30)...)
	b.run()
	b.eventually("all effects", func() bool { return len(b.effects("h")) == 30 && len(b.effects("o")) == 30 })
	if got := b.consumers()[0].Config.MaxRequestBatch; got != 3 {
		t.Fatalf("max_batch is %d, want that of the server", got)
	}
	if log.has("has drifted") || log.has("reading interrupted") {
		t.Errorf("the log says: %s", log.text.String())
	}
}

// The broker's user may not change consumers. The handler goes on, and the log says once what to
// do. While max_deliver is limited, the floor is not recorded. So when the operator has deleted the
// consumer, the handler gets what the broker dropped.
func TestDriftThatMayNotBeCorrected(t *testing.T) {
	t.Parallel()
	_, connect := twoUsers(t, `["$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DELETE.>"]`)
	b := newBenchOn(t, devtest.Pool(t), connect("all"))
	b.in.Handle(b.subscription("h"), effect("h"))
	stop := b.run()
	b.publish("a")
	b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
	stop()

	var log lines
	cfg := b.config()
	cfg.Logger, cfg.DrainTimeout = log.logger(), 50*time.Millisecond
	b.in = inbox.New(b.pool, connect("some"), cfg)
	inbox.LookOften(b.in, 10*time.Millisecond)
	began := make(chan struct{}, 1)
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "given back" {
			began <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	stop = b.run()
	b.publish("b")
	b.eventually("the second effect", func() bool { return len(b.effects("h")) == 2 })
	b.eventually("its floor", func() bool { floor, _ := b.floor("h"); return floor == 2 })
	b.changeConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 1 })
	b.eventually("the report", func() bool {
		return log.has("cannot be corrected") && log.has("allow the handler's NATS user $JS.API.CONSUMER.>")
	})
	b.publish("given back", "c")
	<-began
	b.eventually("the handler to go on", func() bool { return len(b.effects("h")) == 3 })
	stop()
	b.eventually("the broker to drop the event", func() bool { return b.consumers()[0].NumAckPending == 0 })

	b.in = inbox.New(b.pool, connect("some"), cfg)
	inbox.LookOften(b.in, 10*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	stop = b.run()
	b.publish("d")
	b.eventually("the handler to go on", func() bool { return len(b.effects("h")) == 4 })
	b.eventually("the broker's floor to pass the event", func() bool { return b.consumers()[0].AckFloor.Stream == 5 })
	looks, err := b.nc.SubscribeSync("$JS.API.CONSUMER.INFO.>")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the second look is over when the third one begins
		if _, err := looks.NextMsg(devtest.Patience(t, 10*time.Second)); err != nil {
			t.Fatalf("the process does not look at its consumer: %v", err)
		}
	}
	if n := log.count("cannot be corrected"); n != 2 {
		t.Errorf("the log says %d times that the drift cannot be corrected, want once for each start", n)
	}
	if floor, _ := b.floor("h"); floor != 2 {
		t.Errorf("the floor is %d, want 2", floor)
	}
	stop()
	b.loseConsumers()
	b.anew(nil)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.eventually("the effect of the event that the broker dropped", func() bool { return len(b.effects("h")) == 5 })
	b.drained()
	b.wantOnce("h", "a", "b", "given back", "c", "d")
}

// The consumer of a handler of a work queue is lost, after the handler has decided events.
func TestALostConsumerOfAWorkQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.retain(jetstream.WorkQueuePolicy)
	inbox.LookOften(b.in, 10*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.publish("a")
	b.run()
	b.eventually("the floor", func() bool {
		var floor int64
		err := b.pool.QueryRow(t.Context(), "SELECT floor FROM postroom.subscription").Scan(&floor)
		return err == nil && floor == 1
	})
	b.loseConsumers()
	b.publish("b")
	b.eventually("the second effect", func() bool { return len(b.effects("h")) == 2 })
	b.drained()
	b.wantOnce("h", "a", "b")
}

// An operator changes the consumer that the reader of an ordered handler has made for itself. The
// handler gets all events, with their bodies.
func TestDriftOfAnOrderedReadersConsumer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bench, c *jetstream.ConsumerConfig){
		"filter_subjects": func(b *bench, c *jetstream.ConsumerConfig) {
			c.FilterSubjects, c.FilterSubject = nil, b.stream+".other"
		},
		"headers only": func(_ *bench, c *jetstream.ConsumerConfig) { c.HeadersOnly = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var log lines
			b.anew(func(cfg *inbox.Config) { cfg.Logger = log.logger() })
			inbox.LookOften(b.in, 500*time.Millisecond)
			sub := b.ordered("o", inbox.HoldKey)
			sub.Types = append(sub.Types, b.stream+".other")
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if len(ev.Data) == 0 {
					t.Errorf("%s is handled without its body", ev.ID)
				}
				return effect("o").Handle(ctx, tx, ev)
			}))
			b.run()
			b.publishKey("k", 0)
			b.eventually("the first effect", func() bool { return b.made("o", "%") == 1 })
			b.changeConsumer(func(c *jetstream.ConsumerConfig) { change(b, c) })
			b.publishKey("k", 1)
			b.publishEvent(postroom.Event{ID: "k-2", Source: "/shop", Type: b.stream + ".other", Key: "j", ContentType: "application/json", Data: []byte("2")})
			b.publishKey("k", 3)
			b.eventually("all effects", func() bool { return b.made("o", "%") == 4 })
			b.wantOnce("o", "k-00000", "k-00001", "k-2", "k-00003")
			if !log.has(name) {
				t.Error("the log does not say what changed")
			}
		})
	}
}

// retain replaces the stream by one with another retention.
func (b *bench) retain(retention jetstream.RetentionPolicy) {
	b.Helper()
	if err := b.js.DeleteStream(b.Context(), b.stream); err != nil {
		b.Fatal(err)
	}
	_, err := b.js.CreateStream(b.Context(), jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}, Retention: retention})
	if err != nil {
		b.Fatal(err)
	}
}
