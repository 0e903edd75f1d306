package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Budget limits the retries at each host. Within any Window, their number is at most Ratio times
// the number of requests, plus Floor for each second of Window. Another limit holds within any one
// second: Ratio times the average number of requests a second, plus Floor for each second of
// Window. For example, with the defaults and 100 requests a second, it is 100 + 10 retries in ten
// seconds, but only 10 + 10 in one second. So when a host begins to fail, its callers cannot make
// all retries of a Window at once. A call asks the budget before it waits for its retry. The budget
// counts the retry for the end of this wait. So calls that ask at different times cannot all retry
// at the same moment. The budget cannot know the requests that come during the wait.
type Budget struct {
	// Ratio is how many retries each request adds to the budget: with 0.1, one for ten requests.
	//
	// Defaults to 0.1.
	Ratio float64

	// Window is the time for which the budget counts a request or a retry.
	//
	// Defaults to 10 seconds.
	Window time.Duration

	// Floor is how many retries each second of Window adds to the budget, so that a client with few
	// requests can retry at all.
	//
	// Defaults to 1.
	Floor float64

	// Off turns the budget off. Then only Config.Attempts limits the number of retries.
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
	if !(b.Ratio >= 0 && b.Ratio <= 1) { // this refuses NaN too
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

// parts is the number of parts into which a window is divided. A window that begins in the middle
// of a part also ends in the middle of a part, so it overlaps parts+1 parts.
const parts = 50

// An account is the budget of one host.
type account struct {
	cfg   Budget
	width time.Duration
	start time.Time

	mu       sync.Mutex
	current  int64 // the number of the part in which the account was last used
	requests [parts]int
	retries  map[int64]int // the retries of each part, by its number; the part may be in the future
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

// withdraw reports whether the budget allows a retry at now+wait, and if so counts it.
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
	//guard:a-retry-counts-when-it-is-made = @1
	at := max(a.current, a.part(now.Add(wait)))
	second := int64((time.Second + a.width - 1) / a.width)
	if float64(a.busiest(at, second+1)+1) > share/a.cfg.Window.Seconds()+floor || float64(a.busiest(at, parts+1)+1) > share+floor {
		return false
	}
	a.retries[at]++
	return true
}

// busiest returns the largest number of retries in n consecutive parts that contain the given part.
func (a *account) busiest(part, n int64) int {
	sum := 0
	for i := part - n + 1; i <= part; i++ {
		sum += a.retries[i]
	}
	most := sum
	//guard:a-budget-looks-ahead 2 = @1
	for i := part + 1; i < part+n; i++ {
		sum += a.retries[i] - a.retries[i-n]
		most = max(most, sum)
	}
	return most
}

func (a *account) part(t time.Time) int64 { return int64(t.Sub(a.start) / a.width) }

// advance sets the current part for the time now, and forgets parts older than a window.
func (a *account) advance(now time.Time) {
	number := a.part(now)
	if number <= a.current {
		return
	}
	for n := max(a.current+1, number-parts+1); n <= number; n++ {
		//guard:a-budget-forgets-requests remove
		a.requests[n%parts] = 0
	}
	a.current = number
	maps.DeleteFunc(a.retries, func(part int64, _ int) bool { return part < number-parts })
}
