package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Schedule says how long to wait after the n-th failed attempt, counted from 1. Delay is called
// concurrently. postroom.Backoff and [Exponential] are Schedules.
type Schedule interface {
	Delay(attempt int) time.Duration
}

// Jitter says how the waits of an [Exponential] schedule are randomised, so that calls that failed
// at the same time are not repeated at the same time.
type Jitter int

// The ways to choose the wait after the n-th attempt. Below, upper means Base·2ⁿ, but at most Cap.
const (
	FullJitter  Jitter = iota // 0 to upper: spreads calls best
	RangeJitter               // between half of upper and upper: waits do not become shorter until upper reaches Cap
	NoJitter                  // upper
)

// Exponential is a schedule of waits that double. The zero value waits up to 200 ms,
// 400 ms, 800 ms, 1.6 s and then 2 s.
type Exponential struct {
	// Base limits the first wait: after the first attempt, the wait is at most twice Base.
	//
	// Defaults to 100 milliseconds.
	Base time.Duration

	// Cap is the longest wait.
	//
	// Defaults to 2 seconds.
	Cap time.Duration

	// Jitter randomises the waits.
	Jitter Jitter
}

// Delay returns how long to wait after the given failed attempt, counted from 1.
func (e Exponential) Delay(attempt int) time.Duration {
	upper, limit := cmp.Or(e.Base, 100*time.Millisecond), cmp.Or(e.Cap, 2*time.Second)
	for n := max(attempt, 1); n > 0 && upper < limit; n-- {
		if upper > limit/2 { // another doubling could overflow
			upper = limit
			break
		}
		upper *= 2
	}
	upper = min(upper, limit)
	switch e.Jitter {
	case RangeJitter:
		return upper/2 + chance(upper/2)
	case NoJitter:
		return upper
	default:
		return chance(upper)
	}
}

func (e Exponential) validate() error {
	var faults []error
	if e.Base < 0 {
		faults = append(faults, fmt.Errorf("config: Schedule: Base is %s, want more than 0", e.Base))
	}
	if e.Cap < 0 {
		faults = append(faults, fmt.Errorf("config: Schedule: Cap is %s, want more than 0", e.Cap))
	}
	if e.Jitter < FullJitter || e.Jitter > NoJitter {
		faults = append(faults, fmt.Errorf("config: Schedule: there is no jitter %d", e.Jitter))
	}
	return errors.Join(faults...)
}

// chance returns a random duration from 0 to d.
func chance(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rand.Float64() * float64(d))
}
