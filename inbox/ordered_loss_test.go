package inbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/telemetry"
)

// alarmed returns how often the present inbox counted lost data for a reason.
func alarmed(b *bench, meter *sdk.ManualReader, reason string) (n int64) {
	b.Helper()
	var all metricdata.ResourceMetrics
	if err := meter.Collect(b.Context(), &all); err != nil {
		b.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == telemetry.InboxDataLost {
				for _, point := range sum.DataPoints {
					if v, ok := point.Attributes.Value(telemetry.Reason); ok && v.AsString() == reason {
						n += point.Value
					}
				}
			}
		}
	}
	return n
}

// brittle is a broker whose storage can be set back.
type brittle struct {
	*bench

	server *devstack.NATS
}

func newBrittle(t *testing.T) *brittle {
	t.Helper()
	v := &brittle{server: devtest.OwnNATS(t)}
	nc, err := nats.Connect(v.server.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	v.bench = newBenchOn(t, devtest.Pool(t), nc)
	return v
}

// save copies the storage.
func (v *brittle) save() (saved string) {
	v.Helper()
	saved = filepath.Join(v.TempDir(), "saved")
	v.stopped(func() error {
		return os.CopyFS(saved, os.DirFS(v.server.Dir()))
	})
	return saved
}

// forget sets the storage back to the saved state.
func (v *brittle) forget(saved string) {
	v.Helper()
	v.stopped(func() error {
		return errors.Join(os.RemoveAll(v.server.Dir()), os.CopyFS(v.server.Dir(), os.DirFS(saved)))
	})
}

func (v *brittle) stopped(do func() error) {
	v.Helper()
	v.server.Stop()
	if err := errors.Join(do(), v.server.Restart(v.Context())); err != nil {
		v.Fatal(err)
	}
	devtest.Answers(v, v.nc)
}

// floorAt returns the recorded floor of a handler.
func (b *bench) floorAt(name string) (floor int) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), "SELECT coalesce((SELECT floor FROM postroom.subscription WHERE handler = $1), -1)", name).Scan(&floor); err != nil {
		b.Fatal(err)
	}
	return floor
}

// publishFromTo publishes events of some keys. Their numbers go from from up to, but not including,
// to.
func (b *bench) publishFromTo(keys, from, to int) {
	b.Helper()
	for i := from; i < to; i++ {
		for k := range keys {
			b.publishKey(fmt.Sprintf("k%d", k), i)
		}
	}
}

// The broker loses its last messages. Events that were decided are not decided again. Others
// are published again, and new ones come after them.
func TestLostTail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		away  bool // the handler is away while others write in the place of lost messages
		waits int  // how many events of a key wait behind a dead one
	}{{false, 5}, {false, 0}, {true, 5}, {true, 0}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			t.Parallel()
			const keys = 5
			v := newBrittle(t)
			s := newScript("o")
			if tt.waits > 0 {
				s.set("k0-00025", errBad)
			}
			v.in.Handle(v.ordered("o", inbox.HoldKey), s)
			inbox.LookOften(v.in, 20*time.Millisecond)
			stop := v.run()
			v.publishFromTo(keys, 0, 20)
			v.eventually("the first effects", func() bool { return v.made("o", "%") == 20*keys })
			saved := v.save()
			v.publishFromTo(keys, 20, 30)
			v.eventually("effects, and the floor above the messages that will remain", func() bool {
				return v.made("o", "%") == 30*keys-tt.waits && v.floorAt("o") == 30*keys
			})
			if tt.away {
				stop()
			}
			v.forget(saved)
			if tt.away {
				v.publishFromTo(keys, 30, 45) // beyond the floor
				v.in = inbox.New(v.pool, v.nc, v.config())
				v.in.Handle(v.ordered("o", inbox.HoldKey), s)
				v.run()
			}
			v.eventually("an alarm", func() bool { return alarmed(v.bench, v.meter, "lost_tail") == 1 })
			v.publishFromTo(keys, 20, 30) // as the relay does
			v.publishFromTo(keys, 30, 50)
			v.eventually("the others' effects", func() bool { return v.made("o", "%") == 50*keys-5*tt.waits })
			v.eventually("a key to wait", func() bool { return v.heldCount("o") == 5*tt.waits })
			s.set("k0-00025", nil)
			v.overrideDeadNextAtAndAttempts("o", "/shop k0-00025")
			v.eventually("all effects", func() bool { return v.made("o", "%") == 50*keys && v.heldCount("o") == 0 })
			if n := v.outOfOrder("o"); n > 0 { // an event that took effect twice counts as well
				t.Errorf("%d effects out of order", n)
			}
			if n := len(v.effects("o")); n != 50*keys {
				t.Errorf("%d events took effect, want %d", n, 50*keys)
			}
			if n := alarmed(v.bench, v.meter, "lost_tail"); n != 1 {
				t.Errorf("%d alarms, want 1", n)
			}
		})
	}
}

// Messages above the floor are lost, and one of them is held. The floor does not show the
// loss. New events of the key wait behind the held one nevertheless.
func TestLostTailAboveTheFloor(t *testing.T) {
	t.Parallel()
	v := newBrittle(t)
	s := newScript("o")
	v.in.Handle(v.ordered("o", inbox.HoldKey), s)
	stop := v.run()
	v.publishKey("a", 0)
	v.eventually("the first effect", func() bool { return v.made("o", "%") == 1 && v.floorAt("o") == 1 })
	saved := v.save()
	stop()

	slow := make(chan struct{})
	v.in = inbox.New(v.pool, v.nc, v.config())
	s.set("a-00005", errBad)
	v.in.Handle(v.ordered("o", inbox.HoldKey), orBlocked{s, "slow-00000", slow})
	stop = v.run()
	v.publishKey("slow", 0)
	for i := 1; i <= 5; i++ {
		v.publishKey("a", i)
	}
	v.eventuallyStates("o", map[string]string{"a-00005": "dead"})
	if floor := v.floorAt("o"); floor != 1 {
		t.Fatalf("inconclusive: the floor is %d", floor)
	}
	v.server.Stop()
	close(slow)
	v.eventually("the slow effect", func() bool { return v.made("o", "slow%") == 1 })
	v.server.Stop()
	stop()
	v.exec("UPDATE postroom.subscription SET floor = 1, floor_id = NULL, floor_stored_at = NULL") // as a killed process leaves it
	v.forget(saved)
	v.in = inbox.New(v.pool, v.nc, v.config())
	v.in.Handle(v.ordered("o", inbox.HoldKey), s)
	v.run()
	v.publishKey("a", 6)
	v.eventuallyStates("o", map[string]string{"a-00005": "dead", "a-00006": "waiting"})
	if n := alarmed(v.bench, v.meter, "lost_tail"); n != 1 {
		t.Errorf("%d alarms, want 1", n)
	}
}

func TestRecreatedStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newScript("o")
	s.set("k0-00005", errBad)
	b.in.Handle(b.ordered("o", inbox.HoldKey), s)
	b.run()
	b.publishFromTo(3, 0, 10)
	b.eventually("the first effects", func() bool { return b.made("o", "%") == 30-5 && b.heldCount("o") == 5 })
	if err := b.js.DeleteStream(t.Context(), b.stream); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}}); err != nil {
		t.Fatal(err)
	}
	b.publishFromTo(3, 8, 15) // some of them again
	b.eventually("an alarm", func() bool { return alarmed(b, b.meter, "recreated") == 1 })
	b.eventually("the others' effects", func() bool { return b.made("o", "%") == 45-10 && b.heldCount("o") == 10 })
	s.set("k0-00005", nil)
	b.overrideDeadNextAtAndAttempts("o", "/shop k0-00005")
	b.eventually("all effects", func() bool { return b.made("o", "%") == 45 && b.heldCount("o") == 0 })
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
	if n, tail := alarmed(b, b.meter, "recreated"), alarmed(b, b.meter, "lost_tail"); n != 1 || tail != 0 {
		t.Errorf("%d alarms, want 1; and %d of a lost tail", n, tail)
	}
}

// loosen makes the test continue with a new stream, from which messages may be removed.
func (b *bench) loosen(most int64) jetstream.Stream {
	b.Helper()
	b.stream = nats.NewInbox()[len("_INBOX."):]
	stream, err := b.js.CreateStream(b.Context(), jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}, MaxMsgs: most})
	if err != nil {
		b.Fatal(err)
	}
	return stream
}

func TestStreamThatDroppedUnreadEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stream := b.loosen(-1)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	stop := b.run()
	b.publishFromTo(1, 0, 10)
	b.eventually("the first effects", func() bool { return b.made("o", "%") == 10 })
	stop()
	b.publishFromTo(1, 10, 30)
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(21)); err != nil {
		t.Fatal(err)
	}
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	stop = b.run()
	b.eventually("the rest", func() bool { return b.made("o", "%") == 20 })
	if n := alarmed(b, b.meter, "aged_out"); n != 1 {
		t.Errorf("%d alarms, want 1", n)
	}
	b.publishFromTo(1, 30, 31)
	b.eventually("the new events' effects", func() bool { return b.made("o", "%") == 21 })
	stop()
	b.in = inbox.New(b.pool, b.nc, b.config()) // the loss is reported only once
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.publishFromTo(1, 31, 32)
	b.eventually("the newer events' effects", func() bool { return b.made("o", "%") == 22 })
	if n := alarmed(b, b.meter, "aged_out"); n != 0 {
		t.Errorf("%d alarms after a restart, want none", n)
	}
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
}

// If messages of other subjects are written and removed, a handler that does not read these
// subjects reports no loss.
func TestRemovedMessagesOfOtherSubjectsAreNoLoss(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stream := b.loosen(10)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	inbox.LookOften(b.in, 20*time.Millisecond)
	stop := b.run()
	b.publishKey("a", 0)
	b.eventually("the first effect", func() bool { return b.made("o", "%") == 1 })
	for i := range 100 {
		b.publishEvent(postroom.Event{ID: fmt.Sprint(i), Source: "/shop", Type: b.stream + ".other", Data: []byte("1")})
	}
	b.eventually("the floor to follow", func() bool { return b.floorAt("o") == 101 })
	stop()
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.publishKey("a", 1)
	b.eventually("the next effect", func() bool { return b.made("o", "%") == 2 })
	for _, reason := range []string{"aged_out", "lost_tail", "recreated"} {
		if n := alarmed(b, b.meter, reason); n > 0 {
			t.Errorf("%d alarms for %s, want none", n, reason)
		}
	}
}
