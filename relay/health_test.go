package relay_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// inspectable is a fakePublisher that can be cut off and have faults.
type inspectable struct {
	fakePublisher

	mu     sync.Mutex
	off    bool
	faults []error
	err    error
}

func (p *inspectable) Inspect(context.Context, []string, []string) (bool, []error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return true, p.faults, p.err
}

func (p *inspectable) Connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.off
}

func (p *inspectable) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func wantHealth(t *testing.T, r *relay.Relay, state relay.State, notReady string) {
	t.Helper()
	h := r.Health()
	if h.State != state {
		t.Errorf("state %s, want %s", h.State, state)
	}
	if live := h.Live() == nil; live != (state != relay.Stopped) {
		t.Errorf("live: %t while %s", live, h.State)
	}
	err := h.Ready()
	if notReady == "" && err != nil || notReady != "" && (err == nil || !strings.Contains(err.Error(), notReady)) {
		t.Errorf("Ready = %v, want %q", err, notReady)
	}
}

func TestHealthOfALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, pub := newFakeSource(events(3)...), &inspectable{}
		r := relay.Over(src, pub, relay.Config{Lease: 3 * time.Second, DrainTimeout: time.Hour})
		wantHealth(t, r, relay.Stopped, "stopped")

		outage := errors.New("connection refused")
		src.checkErr = outage
		run := start(r)
		after(3 * time.Second)
		wantHealth(t, r, relay.Starting, "connection refused")
		if h := r.Health(); !errors.Is(h.Err, outage) || time.Since(h.ErrAt) > 2*time.Second || !h.RecordedAt.IsZero() {
			t.Errorf("health %+v, want the outage and no recording", h)
		}

		src.Set(func() { src.checkErr = nil })
		after(2 * time.Second)
		wantHealth(t, r, relay.Leading, "")
		since := r.Health().Since
		after(time.Minute)
		wantHealth(t, r, relay.Leading, "")
		if h := r.Health(); !h.Since.Equal(since) || time.Since(h.RecordedAt) > time.Second || !errors.Is(h.Err, outage) {
			t.Errorf("health %+v, want the same term, a recent recording, and the error of before", h)
		}

		pub.set(func() { pub.off = true })
		wantHealth(t, r, relay.Leading, "no connection to the broker")
		pub.set(func() { pub.off = false })
		wantHealth(t, r, relay.Leading, "")

		slow := make(chan struct{})
		pub.answer = func(broker.Event, int) (time.Duration, error) { <-slow; return 0, nil }
		run.stop()
		synctest.Wait()
		run.wait(t)
		wantHealth(t, r, relay.Stopped, "stopped")
	})
}

func TestHealthWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub := &inspectable{}
		pub.answer = func(broker.Event, int) (time.Duration, error) { return 5 * time.Second, nil }
		r := relay.Over(newFakeSource(events(1)...), pub, relay.Config{})
		run := start(r)
		after(time.Second)
		run.stop()
		synctest.Wait()
		wantHealth(t, r, relay.Draining, "draining")
		run.wait(t)
		wantHealth(t, r, relay.Stopped, "stopped")
	})
}

func TestHealthOfAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, pub := newFakeSource(), &inspectable{}
		src.leadErr = eventlog.ErrLeaseHeld
		r := relay.Over(src, pub, relay.Config{})
		run := start(r)
		after(time.Minute)
		wantHealth(t, r, relay.Standby, "")
		pub.set(func() { pub.off = true })
		wantHealth(t, r, relay.Standby, "no connection")
		pub.set(func() { pub.off = false })
		src.Set(func() { src.leadErr = nil })
		after(2 * time.Second)
		wantHealth(t, r, relay.Leading, "")
		run.stop()
		run.wait(t)
	})
}

func TestHealthOfALeaderThatCannotRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		hang := func(_ *fakeTerm, ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		r := relay.Over(src, &inspectable{}, relay.Config{Lease: 8 * time.Second})
		run := start(r)
		after(time.Second)
		wantHealth(t, r, relay.Leading, "")
		src.Set(func() { src.recorded, src.leadErr = hang, errors.New("database away") })
		after(8 * time.Second)
		after(8 * time.Second) // Release hangs, but not for longer than the lease
		wantHealth(t, r, relay.Starting, "database away")
		src.Set(func() { src.recorded, src.leadErr = nil, nil })
		after(2 * time.Second)
		wantHealth(t, r, relay.Leading, "")
		run.stop()
		run.wait(t)
	})
}

func TestFaultsBeforeAndAfterTheFirstTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, pub := newFakeSource(), &inspectable{err: errors.New("broker busy")}
		r := relay.Over(src, pub, relay.Config{})
		run := start(r)
		after(10 * time.Second)
		wantHealth(t, r, relay.Starting, "broker busy")

		pub.set(func() { pub.err, pub.faults = nil, []error{broker.ErrNoStream} })
		after(2 * time.Second)
		wantHealth(t, r, relay.Leading, "no stream takes")
		pub.set(func() { pub.faults = nil })
		after(5 * time.Second)
		wantHealth(t, r, relay.Leading, "")
		pub.set(func() { pub.faults = []error{&natsjs.StreamError{Stream: "S", Risk: natsjs.Rollup}} })
		after(time.Minute)
		wantHealth(t, r, relay.Leading, "")
		if n := len(r.Health().Faults); n != 1 {
			t.Errorf("%d faults, want 1", n)
		}
		pub.set(func() { pub.err = errors.New("broker busy again") }) // an error of the check does not clear the known fault
		after(time.Minute)
		if h := r.Health(); len(h.Faults) != 1 || !strings.Contains(h.Err.Error(), "busy again") {
			t.Errorf("health %+v, want the known fault and the error", h)
		}
		run.stop()
		run.wait(t)

		pub.set(func() { pub.err = nil })
		if err := r.Run(t.Context()); !errors.Is(err, natsjs.Rollup) || !errors.Is(err, postroom.ErrUnrecoverable) {
			t.Errorf("a later Run = %v, want the refusal: it starts anew", err)
		}
	})
}

func TestHealthMayBeReadAtAnyTime(t *testing.T) {
	t.Parallel()
	r := relay.Over(using("any.a"), natsjs.NewPublisher(devtest.NATS(t)), relay.Config{})
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				_ = r.Health().Ready()
			}
		})
	}
	for range 5 {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if err := r.Run(short); err != nil {
			t.Errorf("Run = %v", err)
		}
		cancel()
	}
	stop()
	readers.Wait()
}
