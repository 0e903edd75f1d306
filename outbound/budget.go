package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Budget bounds the retries at each host. Within any Window, retries are at the most
// Ratio of the requests made in it and Floor for each of its seconds; within any
// second, at the most Ratio of what came in on average and one Window's Floor, so that
// what a calm time left over is not spent at once when trouble begins. A retry counts
// when it is decided, before its wait.
type Budget struct {
	// Ratio is the share of requests that may be retried.
	//
	// Defaults to 0.1.
	Ratio float64

	// Window is how far back requests and retries count.
	//
	// Defaults to 10 seconds.
	Window time.Duration

	// Floor is how many retries each second of Window adds, so that a client with
	// few requests can retry at all.
	//
	// Defaults to 1.
	Floor float64

	// Off has retries bounded by nothing but Attempts.
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
	if !(b.Ratio >= 0 && b.Ratio <= 1) { // also not a NaN
		faults = append(faults, fmt.Errorf("config: Budget: Ratio is %g, want 0 to 1", b.Ratio))
	}
	if b.Window < time.Second || b.Window > time.Hour {
		faults = append(faults, fmt.Errorf("config: Budget: Window is %s, want 1s to 1h", b.Window))
	}
	if !(b.Floor >= 0 && b.Floor <= 1e6) {
		faults = append(faults, fmt.Errorf("config: Budget: Floor is %g, want none or more", b.Floor))
	}
	return errors.Join(faults...)
}

// parts is how finely a window is kept. One more is kept, as a window that ends
// now begins within a part.
const parts = 50

// account is the budget of one host.
type account struct {
	cfg   Budget
	width time.Duration
	start time.Time

	mu      sync.Mutex
	current int64 // the number of the part of the last call
	kept    [parts + 1]struct{ requests, retries int }
}

func newAccount(cfg Budget, now time.Time) *account {
	return &account{cfg: cfg, width: max(cfg.Window/parts, 1), start: now}
}

// deposit counts a request.
func (a *account) deposit(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(now)
	a.kept[a.current%(parts+1)].requests++
}

// withdraw asks for a retry, and counts it where it may be made.
func (a *account) withdraw(now time.Time) bool {
	if a.cfg.Off {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(now)
	// Requests of the oldest part may be older than the window and do not count;
	// retries do, as they may be younger.
	var requests, retries, recent int
	second := int64((time.Second + a.width - 1) / a.width)
	for i := range int64(parts + 1) {
		s := a.kept[(a.current+parts+1-i)%(parts+1)]
		retries += s.retries
		if i < parts {
			requests += s.requests
		}
		if i <= second {
			recent += s.retries
		}
	}
	share, floor := a.cfg.Ratio*float64(requests), a.cfg.Floor*a.cfg.Window.Seconds()
	if float64(retries+1) > share+floor || float64(recent+1) > share/a.cfg.Window.Seconds()+floor {
		return false
	}
	a.kept[a.current%(parts+1)].retries++
	return true
}

// advance empties the parts that begin with now, and those that were skipped.
func (a *account) advance(now time.Time) {
	number := int64(now.Sub(a.start) / a.width)
	for n := max(a.current+1, number-parts); n <= number; n++ {
		a.kept[n%(parts+1)] = struct{ requests, retries int }{}
	}
	a.current = max(a.current, number)
}
