package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Breaker stops calls to a host that does not work. Failed connections, timeouts and statuses from
// 500, except 501 and 505, count as failures. But 501, 505 and each 4xx, even 429, show that the
// host works. If the caller gives an attempt up, the attempt does not count. While the breaker is
// open, calls fail at once with [ErrBreakerOpen]. After OpenFor the breaker lets some attempts
// through, the probes, and closes if they succeed.
type Breaker struct {
	// Window is how long an attempt counts, at most a day.
	//
	// Defaults to 30 seconds.
	Window time.Duration

	// Failures is how many attempts within Window must fail before the breaker opens, so
	// that a few calls cannot open it.
	//
	// Defaults to 10.
	Failures int

	// Ratio is the share of attempts within Window that must fail before the breaker
	// opens.
	//
	// Defaults to 0.5.
	Ratio float64

	// OpenFor is how long the breaker stays open before it lets probes through.
	//
	// Defaults to 10 seconds.
	OpenFor time.Duration

	// Probes is how many attempts the breaker lets through after OpenFor. If all of them succeed,
	// the breaker closes.
	//
	// Defaults to 1.
	Probes int

	// Off turns the breaker off.
	Off bool
}

func (b Breaker) defaults() Breaker {
	b.Window = cmp.Or(b.Window, 30*time.Second)
	b.Failures = cmp.Or(b.Failures, 10)
	b.Ratio = cmp.Or(b.Ratio, 0.5)
	b.OpenFor = cmp.Or(b.OpenFor, 10*time.Second)
	b.Probes = cmp.Or(b.Probes, 1)
	return b
}

func (b Breaker) validate() error {
	var faults []error
	//guard:a-breakers-window-does-not-overflow 2 false
	if b.Window < time.Second || b.Window > longestWindow {
		faults = append(faults, fmt.Errorf("config: Breaker: Window is %s, want 1s to %s", b.Window, longestWindow))
	}
	if b.Failures < 1 {
		faults = append(faults, fmt.Errorf("config: Breaker: Failures is %d, want at least 1", b.Failures))
	}
	if !(b.Ratio > 0 && b.Ratio <= 1) { // the condition is also false for NaN
		faults = append(faults, fmt.Errorf("config: Breaker: Ratio is %g, want more than 0, to 1", b.Ratio))
	}
	if b.OpenFor < 0 {
		faults = append(faults, fmt.Errorf("config: Breaker: OpenFor is %s, want more than 0", b.OpenFor))
	}
	if b.Probes < 1 || b.Probes > math.MaxInt32 {
		faults = append(faults, fmt.Errorf("config: Breaker: Probes is %d, want at least 1", b.Probes))
	}
	return errors.Join(faults...)
}

// longestWindow is the longest Window of a Breaker. The arithmetic of gobreaker overflows if a window
// is about as long as a time.Duration can be.
const longestWindow = 24 * time.Hour

// Results of an attempt, for the breaker. nil is a success.
var (
	errOutage = errors.New("out of order")
	errNoWord = errors.New("says nothing") // for instance if the caller gave up

)

// breaker is the circuit breaker of one host. A nil breaker lets everything
// through.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	openFor time.Duration
	opened  atomic.Pointer[time.Time] // when the breaker last opened
}

// newBreaker returns a breaker. When the breaker's state changes, the breaker calls the function
// changed, which must not call methods that lock the breaker.
func newBreaker(cfg Breaker, changed func(to gobreaker.State)) *breaker {
	if cfg.Off {
		return nil
	}
	b := &breaker{openFor: cfg.OpenFor}
	//guard:a-breakers-window-moves 1.3 remove
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: uint32(cfg.Probes), Interval: cfg.Window, BucketPeriod: max(cfg.Window/10, 1), Timeout: cfg.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return int(c.TotalFailures) >= cfg.Failures &&
				float64(c.TotalFailures) >= cfg.Ratio*float64(c.TotalFailures+c.TotalSuccesses)
		},
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				now := time.Now()
				b.opened.Store(&now)
			}
			changed(to)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errNoWord) },
	})
	return b
}

// allow asks for permission for an attempt. If ok is true, call the function done once with the
// attempt's result.
func (b *breaker) allow() (done func(error), ok bool) {
	if b == nil {
		return func(error) {}, true
	}
	done, err := b.circuit.Allow()
	return done, err == nil
}

// open reports whether the breaker is open, and for how long it stays open at least.
func (b *breaker) open() (time.Duration, bool) {
	if b == nil || b.circuit.State() != gobreaker.StateOpen {
		return 0, false
	}
	return b.remaining(), true
}

// remaining says how long the breaker stays open: 0 if OpenFor is over or never began.
func (b *breaker) remaining() time.Duration {
	at := b.opened.Load()
	if at == nil {
		return 0
	}
	return max(b.openFor-time.Since(*at), 0)
}
