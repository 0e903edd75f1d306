package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// hang is a database that does not answer in time.
func hang(_ *fakeTerm, ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// The default lease becomes as long as the database needs, with the first renewal, which comes
// at once. A lease that the user set stays as it is.
func TestTheLeaseIsAsLongAsItsDatabaseNeeds(t *testing.T) {
	for _, tt := range []struct {
		chosen, roundTrip, want time.Duration
	}{
		{0, time.Millisecond, 5 * time.Second},
		{0, 500 * time.Millisecond, 5 * time.Second},
		{0, 1500 * time.Millisecond, 15 * time.Second},
		{0, time.Minute, eventlog.LongestLease},
		{5 * time.Second, 1500 * time.Millisecond, 5 * time.Second},
		{time.Minute, 1500 * time.Millisecond, time.Minute},
	} {
		t.Run(fmt.Sprint(tt.chosen, tt.roundTrip), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource()
				src.roundTrip = tt.roundTrip
				began := time.Now()
				src.renewed = func(*fakeTerm, context.Context) error {
					if at := time.Since(began); at > time.Millisecond {
						t.Errorf("the lease is renewed %s after it was taken, want at once", at)
					}
					return nil
				}
				run := start(relay.Over(src, &fakePublisher{}, relay.Config{Lease: tt.chosen}))
				after(time.Minute)
				run.stop()
				run.wait(t)
				if len(src.terms) != 1 || !slices.Equal(src.terms[0].renewals, []time.Duration{tt.want}) {
					t.Errorf("%d terms, renewed first for %s, want one and %s", len(src.terms), src.terms[0].renewals, tt.want)
				}
			})
		})
	}
}

// The first renewal has as much time as the lease has left. That counts from before the lease
// was taken, not from when the term began to work.
func TestTheFirstRenewalIsBoundedByTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.takes = 3 * time.Second // how long the answer takes
		var left time.Duration
		src.renewed = func(_ *fakeTerm, ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return nil
		}
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{Lease: 8 * time.Second}))
		after(4 * time.Second)
		run.stop()
		run.wait(t)
		if left != 3*time.Second {
			t.Errorf("the first renewal has %s, want the 3s up to three quarters of the lease", left)
		}
	})
}

// If the lease cannot be renewed in time, the next one is longer, unless the user set it. The
// relay says what to change.
func TestLeaseGrowsIfItCannotBeRenewed(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  relay.Config
		want []time.Duration
	}{
		{"by default", relay.Config{}, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, eventlog.LongestLease, eventlog.LongestLease}},
		{"chosen", relay.Config{Lease: 3 * time.Second}, []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource(events(1)...)
				src.roundTrip = 100 * time.Millisecond
				src.renewed = hang
				r := relay.Over(src, &fakePublisher{}, tt.cfg)
				run := start(r)
				after(2 * time.Minute)
				if got := src.leases[:min(len(tt.want), len(src.leases))]; !slices.Equal(got, tt.want) {
					t.Errorf("leases of %s, want %s", got, tt.want)
				}
				if err := r.Health().Err; err == nil || !strings.Contains(err.Error(), "is too short for this database: the first renewal was not done after") ||
					!strings.Contains(err.Error(), "a round trip took 100ms") || !strings.Contains(err.Error(), "--lease") {
					t.Errorf("Health.Err = %v, want what to change, and why", err)
				}
				src.Set(func() { src.renewed = nil })
				after(time.Minute)
				if got := src.PublishedSeqs(); len(got) != 1 {
					t.Errorf("%d events are published when the database answers again, want 1", len(got))
				}
				run.stop()
				run.wait(t)
			})
		})
	}
}

// Useless terms cost connections, and publish events again. So after each of them the relay waits
// longer for the next, up to half a minute. A useful term ends that.
func TestUselessTermsAreFurtherAndFurtherApart(t *testing.T) {
	fault := errors.New("row is too large")
	for name, fail := range map[string]func(s *fakeSource, p *fakePublisher, bad bool){
		"recording fails": func(s *fakeSource, _ *fakePublisher, bad bool) {
			s.recorded = nil
			if bad {
				s.recorded = func(*fakeTerm, context.Context) error { return fault }
			}
		},
		"reading fails": func(s *fakeSource, _ *fakePublisher, bad bool) {
			s.readErr = nil
			if bad {
				s.readErr = fault
			}
		},
		"renewing fails": func(s *fakeSource, _ *fakePublisher, bad bool) {
			s.renewed = nil
			if bad {
				s.renewed = func(*fakeTerm, context.Context) error { return fault }
			}
		},
		"the broker's connection flaps": func(_ *fakeSource, p *fakePublisher, bad bool) {
			p.setRunErr(nil)
			if bad {
				p.setRunErr(broker.ErrReconnected)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource(events(1)...)
				pub := &fakePublisher{}
				fail(src, pub, true)
				run := start(relay.Over(src, pub, relay.Config{}))
				after(10 * time.Minute)
				if n := len(src.terms); n < 20 || n > 40 {
					t.Errorf("%d terms in ten minutes, want one in half a minute in the end", n)
				}
				src.Set(func() { fail(src, pub, false) })
				after(time.Minute)
				if got := src.PublishedSeqs(); len(got) != 1 {
					t.Errorf("%d events are published when the fault is gone, want 1", len(got))
				}
				var terms int
				src.Set(func() {
					terms = len(src.terms)
					src.terms[terms-1].readErr = fault
				})
				after(time.Second)
				if n := len(src.terms); n != terms+1 {
					t.Errorf("%d terms within a second after the failure of a useful one, want 1", n-terms)
				}
				run.stop()
				run.wait(t)
			})
		})
	}
}

// Two relays take turns, and neither leads for long enough. They wait longer and longer:
// standing by in between is no success.
func TestUselessTermsInTurnsAreFurtherApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource(events(1)...)
		src.recorded = func(*fakeTerm, context.Context) error {
			src.Set(func() { src.leadErr = eventlog.ErrLeaseHeld }) // the other one leads now
			return errors.New("row is too large")
		}
		run := start(relay.Over(src, &fakePublisher{}, relay.Config{}))
		for range 600 {
			after(time.Second)
			src.Set(func() { src.leadErr = nil })
		}
		if n := len(src.terms); n > 40 {
			t.Errorf("%d terms in ten minutes, want few", n)
		}
		run.stop()
		run.wait(t)
	})
}
