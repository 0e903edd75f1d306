package claims

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// An event that must run alone waits for what runs, but not for ever. Other events wait for it only for
// a short time.
func TestAnEventThatRunsAloneWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(Config{AloneAfter: time.Minute, Alone: new(delivery.Alone)})
		external, own := NewQueue(Handler{Name: "external", Renewed: true}, 10, 1000), NewQueue(Handler{Name: "h"}, 10, 1000)
		r.Serve([]*Queue{external, own})
		call, claim := &Claim{HeldEvent: delivery.HeldEvent{ID: 1}, queue: external}, &Claim{HeldEvent: delivery.HeldEvent{ID: 2}, queue: own}
		steps := []struct {
			what string
			do   func()
			may  bool
			took time.Duration
		}{
			{"nothing runs", func() {}, true, 0},
			{"a call runs", func() { r.Begun(call) }, false, 0},
			{"it still runs", func() { time.Sleep(59 * time.Second) }, false, 0},
			{"it runs for too long", func() { time.Sleep(time.Second) }, true, 0},
			{"it has ended, and an event runs", func() { r.Ended(call); r.cfg.Alone.RLock() }, false, alonePatience},
			{"it still runs soon after that", func() { time.Sleep(aloneGap / 2) }, false, 0},
			{"it still runs later", func() { time.Sleep(aloneGap / 2) }, false, alonePatience},
			{"it has ended", func() { r.cfg.Alone.RUnlock(); time.Sleep(aloneGap) }, true, 0},
			{"an event ends soon", func() {
				r.cfg.Alone.RLock()
				time.AfterFunc(alonePatience/2, r.cfg.Alone.RUnlock)
			}, true, alonePatience / 2},
			{"a held event runs", func() { r.Begun(claim) }, false, alonePatience},
			{"it runs for too long", func() { time.Sleep(time.Minute) }, true, alonePatience},
			{"an event runs too", func() { r.cfg.Alone.RLock() }, false, alonePatience},
			{"they run for too long", func() { time.Sleep(time.Minute) }, true, alonePatience},
		}
		life, end := delivery.NewLifetime(t.Context(), time.Minute)
		defer end()
		for _, s := range steps {
			s.do()
			began := time.Now()
			may := r.lockAlone(life)
			if took := time.Since(began); may != s.may || took != s.took {
				t.Errorf("%s: may run: %v after %s, want %v after %s", s.what, may, took, s.may, s.took)
			}
			if may == r.cfg.Alone.TryRLock() {
				t.Errorf("%s: another event may begin: %v", s.what, may)
			}
			if may {
				r.cfg.Alone.Unlock()
			} else {
				r.cfg.Alone.RUnlock()
			}
		}
	})
}
