package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

var defaults = Config{Events: 20, Window: time.Minute, Probe: time.Second, MaxProbe: time.Minute}

var (
	outage     = delivery.Failure{Class: "error", Text: "503"}
	bad        = delivery.Failure{Class: "permanent", Permanent: true}
	unanswered = delivery.FailureOf(delivery.ErrUnanswered)
	begun      = delivery.FailureOf(delivery.ErrOutcomeUnknown)
	declined   = delivery.FailureOf(errors.Join(delivery.ErrUnanswered, postroom.Permanent(errors.New("declined"))))
	discarded  = delivery.FailureOf(errors.Join(delivery.ErrUnanswered, postroom.Discard("late")))
	snooze     = delivery.Failure{Class: "snoozed", Snoozed: true}
)

// fail fails n different events.
func fail(g *Gate, n int, f delivery.Failure) {
	for i := range n {
		g.Failed(fmt.Sprint("bad", i), f)
	}
}

func TestFailuresOfNearlyAllEventsPauseAHandler(t *testing.T) {
	succeed := func(g *Gate, n int) {
		for i := range n {
			g.Succeeded(fmt.Sprint("good", i))
		}
	}
	for name, tt := range map[string]struct {
		cfg  Config
		do   func(g *Gate)
		want bool
	}{
		"all fail":                        {defaults, func(g *Gate) { fail(g, 20, outage) }, true},
		"all are snoozed":                 {defaults, func(g *Gate) { fail(g, 20, snooze) }, true},
		"too few":                         {defaults, func(g *Gate) { fail(g, 19, outage) }, false},
		"the same few, again and again":   {defaults, func(g *Gate) { fail(g, 19, outage); fail(g, 19, outage); fail(g, 19, outage) }, false},
		"all are bad":                     {defaults, func(g *Gate) { fail(g, 100, bad) }, false},
		"no call is answered":             {defaults, func(g *Gate) { fail(g, 20, unanswered) }, true},
		"the calls of a crash":            {defaults, func(g *Gate) { fail(g, 100, begun) }, false},
		"all are declined":                {defaults, func(g *Gate) { fail(g, 100, declined) }, false},
		"all are discarded":               {defaults, func(g *Gate) { fail(g, 100, discarded) }, false},
		"half fail":                       {defaults, func(g *Gate) { succeed(g, 50); fail(g, 50, outage) }, false},
		"four of five fail":               {defaults, func(g *Gate) { succeed(g, 5); fail(g, 20, outage) }, true},
		"a little less than four of five": {defaults, func(g *Gate) { succeed(g, 6); fail(g, 23, outage) }, false},
		"bad ones count as tried":         {defaults, func(g *Gate) { fail(g, 25, bad); fail(g, 20, outage) }, false},
		"most succeed the next time":      {defaults, func(g *Gate) { fail(g, 19, outage); succeed2(g, 19); fail(g, 19, outage) }, false},
		"those that failed are long ago": {defaults, func(g *Gate) {
			fail(g, 19, outage)
			time.Sleep(61 * time.Second)
			g.Failed("other", outage)
		}, false},
		"a good hour before an outage": {defaults, func(g *Gate) {
			succeed(g, 10_000)
			time.Sleep(61 * time.Second)
			fail(g, 20, outage)
		}, true},
		"it is off": {Config{Off: true, Events: 20, Window: time.Minute}, func(g *Gate) { fail(g, 100, outage) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New(tt.cfg)
				tt.do(g)
				if got := g.State().Paused; got != tt.want || g.IsOpen() == tt.want {
					t.Errorf("paused: %v, open: %v, want paused: %v", got, g.IsOpen(), tt.want)
				}
			})
		})
	}
}

// succeed2 reports success for the events that fail reports as failed.
func succeed2(g *Gate, n int) {
	for i := range n {
		g.Succeeded(fmt.Sprint("bad", i))
	}
}

// While the handler is paused, one event at a time runs, at growing intervals, however many events
// wait.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(defaults)
		fail(g, 20, outage)
		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		var at []time.Duration
		running, works := 0, false
		var workers sync.WaitGroup
		for i := range 10 {
			workers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					event := fmt.Sprint(i, "-", n)
					pass, ok := g.Enter(ctx, event)
					if !ok {
						return
					}
					mu.Lock()
					if running++; running > 1 && pass.Probe {
						t.Error("two probes at the same time")
					}
					at = append(at, time.Since(began))
					good := works
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
					mu.Lock()
					running--
					mu.Unlock()
					if good {
						g.Succeeded(event)
					} else {
						g.Failed(event, outage)
					}
					pass.Leave()
				}
			})
		}
		time.Sleep(5 * time.Minute)
		mu.Lock()
		works = true
		probes, first := len(at), slices.Clone(at)
		mu.Unlock()
		// 1 s, 2 s, 4 s, … 32 s, then each minute, and 100 ms for each
		if probes != 9 {
			t.Errorf("%d probes in five minutes, want 9: %v", probes, first)
		}
		for i, want := range []time.Duration{time.Second, 3100 * time.Millisecond, 7200 * time.Millisecond, 15300 * time.Millisecond} {
			if i < probes && first[i] != want {
				t.Errorf("probe %d was made after %s, want %s", i, first[i], want)
			}
		}
		time.Sleep(61 * time.Second)
		mu.Lock()
		if len(at) < probes+50 || g.State().IsPaused() {
			t.Errorf("%d events ran after a probe succeeded; paused: %v", len(at)-probes, g.State().IsPaused())
		}
		mu.Unlock()
		stop()
		workers.Wait()
	})
}

// A bad event does not show whether the handler's dependency is back. So the pause goes on,
// and the next probe does not wait for longer. If a probe has no result, the next may begin.
func TestProbeWithoutAResultProlongsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(defaults)
		fail(g, 20, outage)
		probe := func(event string) Pass {
			t.Helper()
			began := time.Now()
			p, ok := g.Enter(t.Context(), event)
			if took := time.Since(began); !ok || !p.Probe || took > time.Second {
				t.Fatalf("%s: a probe: %v, after %s", event, p.Probe, took)
			}
			return p
		}
		for i := range 5 {
			began := time.Now()
			p := probe(fmt.Sprint("e", i))
			if waited := time.Since(began); i > 0 && waited > 0 {
				t.Errorf("after a bad event the next probe waited for %s", waited)
			}
			if _, ok := g.Try("other"); ok {
				t.Error("another one runs at the same time")
			}
			if back := g.Failed(p.event, bad); back != 0 {
				t.Errorf("a bad event gets %d attempts back", back)
			}
			p.Leave()
		}
		probe("duplicate").Leave()
		if p, ok := g.Try("next"); !ok || !p.Probe {
			t.Error("after a probe without a result the next one has to wait")
		}
		g.Succeeded("another, which began before the pause")
		if g.IsOpen() {
			t.Error("it is open after the success of an event that was no probe")
		}
	})
}

// The failures before a pause and during it together cost an event at most one attempt.
func TestEventsGetAttemptsBackAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(defaults)
		for range 3 {
			fail(g, 10, outage)
		}
		for range 3 {
			g.Failed("snoozed", snooze)
		}
		fail(g, 19, outage)
		if g.IsOpen() {
			t.Fatal("it is open")
		}
		back := g.Back()
		if back["bad3"] != 3 || back["bad15"] != 0 || back["snoozed"] != 0 || len(back) != 10 {
			t.Errorf("attempts to give back: %v", back)
		}
		g.GaveBack([]string{"bad0", "bad1"})
		for event, want := range map[string]int{"bad0": 1, "bad2": 4, "bad15": 1, "new": 1} {
			if got := g.Failed(event, outage); got != want {
				t.Errorf("%s gets %d attempts back, want %d", event, got, want)
			}
		}
		if got := g.Failed("bad2", outage); got != 1 {
			t.Errorf("bad2 gets %d attempts back the second time, want 1", got)
		}
	})
}

// During an operator's pause no event runs, not even as a probe.
func TestAnOperatorsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(defaults)
		g.SetOperator(true)
		entered := make(chan time.Time, 1)
		go func() {
			g.Enter(context.Background(), "e")
			entered <- time.Now()
		}()
		time.Sleep(time.Hour)
		if len(entered) > 0 || g.Allowed() != 0 {
			t.Error("an event runs while an operator has paused the handler")
		}
		g.SetOperator(false)
		if at := <-entered; time.Since(at) != 0 || !g.IsOpen() {
			t.Errorf("it ran %s ago; open: %v", time.Since(at), g.IsOpen())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.SetOperator(true)
		if _, ok := g.Enter(ctx, "e"); ok {
			t.Error("it runs after its context ended")
		}
	})
}

// More failing events than are remembered still pause the handler, and cost no more memory.
func TestManyFailingEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults
		cfg.Events = 50_000
		g := New(cfg)
		fail(g, 50_000, outage)
		if n := len(g.window.failing); n > mostFailing || g.IsOpen() {
			t.Errorf("%d events are remembered; open: %v", n, g.IsOpen())
		}
	})
}
