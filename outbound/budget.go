package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Budget limits the retries at each host. Within any Window, it allows Ratio retries for each
// request, and Floor retries for each second of Window. Within any second, it allows Ratio retries
// for each request of an average second, and all Floor retries of a Window. For example, the
// defaults and 100 requests a second allow 110 retries within ten seconds, but only 20 within one
// second. So when a vendor begins to fail, calls cannot spend at once what Ratio allows for a whole
// Window. A call asks the budget before it waits for its retry, and the budget counts the retry at
// the end of this wait. So it also limits how many retries will be made at the same moment. It
// knows only the requests up to the time when the call asks.
type Budget struct {
	// Ratio is how many retries each request within Window adds to the budget.
	//
	// Defaults to 0.1.
	Ratio float64

	// Window is how long requests and retries count.
	//
	// Defaults to 10 seconds.
	Window time.Duration

	// Floor is how many retries each second of Window adds to the budget, so that a client with few
	// requests can retry at all.
	//
	// Defaults to 1.
	Floor float64

	// Off turns the budget off: only Attempts limits retries.
	Off bool
}

func (b Budget) defaults() Budget {
	b.Ratio = cmp.Or(b.Ratio, 0.1)
	b.Window = cmp.Or(b.Window, 10*time.Second)
	b.Floor = cmp.Or(b.Floor, 1)
	return b
}

func (b Budget) validate() error {
	var faults []error
	if !(b.Ratio >= 0 && b.Ratio <= 1) { // the condition is also false for NaN
		faults = append(faults, fmt.Errorf("config: Budget: Ratio is %g, want 0 to 1", b.Ratio))
	}
	if b.Window < time.Second || b.Window > time.Hour {
		faults = append(faults, fmt.Errorf("config: Budget: Window is %s, want 1s to 1h", b.Window))
	}
	if !(b.Floor >= 0 && b.Floor <= 1e6) {
		faults = append(faults, fmt.Errorf("config: Budget: Floor is %g, want 0 or more", b.Floor))
	}
	return errors.Join(faults...)
}

// parts is how many parts a window has. A window that begins inside a part ends inside another
// part, so it touches parts+1 of them.
const parts = 50

// account is the budget of one host.
type account struct {
	cfg   Budget
	width time.Duration
	start time.Time

	mu       sync.Mutex
	current  int64 // the number of the part in which account was last used
	requests [parts]int
	retries  map[int64]int // by the part in which they are made; it may be in the future
}

func newAccount(cfg Budget, now time.Time) *account {
	return &account{cfg: cfg, width: max(cfg.Window/parts, 1), start: now, retries: make(map[int64]int)}
}

func (a *account) deposit(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(now)
	a.requests[a.current%parts]++
}

// withdraw reports whether a retry may be made after a wait. If so, it counts the retry.
func (a *account) withdraw(now time.Time, wait time.Duration) bool {
	if a.cfg.Off {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(now)
	requests := 0
	for _, n := range a.requests {
		requests += n
	}
	share, floor := a.cfg.Ratio*float64(requests), a.cfg.Floor*a.cfg.Window.Seconds()
	at := max(a.current, a.part(now.Add(wait)))
	second := int64((time.Second + a.width - 1) / a.width)
	if float64(a.busiest(at, second+1)+1) > share/a.cfg.Window.Seconds()+floor || float64(a.busiest(at, parts+1)+1) > share+floor {
		return false
	}
	a.retries[at]++
	return true
}

// busiest returns the largest number of retries in n consecutive parts that include the given part.
func (a *account) busiest(part, n int64) int {
	sum := 0
	for i := part - n + 1; i <= part; i++ {
		sum += a.retries[i]
	}
	most := sum
	for i := part + 1; i < part+n; i++ {
		sum += a.retries[i] - a.retries[i-n]
		most = max(most, sum)
	}
	return most
}

func (a *account) part(t time.Time) int64 { return int64(t.Sub(a.start) / a.width) }

// advance forgets parts that are older than a window.
func (a *account) advance(now time.Time) {
	number := a.part(now)
	if number <= a.current {
		return
	}
	for n := max(a.current+1, number-parts+1); n <= number; n++ {
		a.requests[n%parts] = 0
	}
	a.current = number
	maps.DeleteFunc(a.retries, func(part int64, _ int) bool { return part < number-parts })
}
