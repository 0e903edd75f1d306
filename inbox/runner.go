package inbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/inbox/internal/ledger"
)

// runner claims held events that are due and hands them to the workers of their
// handlers. It implements postroom.Runner.
type runner struct {
	inbox *Inbox
	woken chan struct{}

	mu    sync.Mutex
	at    time.Time        // when it is to look again; zero for no sooner than the next poll
	known map[int64]*claim // the claims of this process, by id

	out     sync.WaitGroup // has each claim that a worker may run
	more    bool           // the last claim brought as much as was wished: more may be due
	unknown atomic.Bool    // a claim was not answered: there may be others of this process
}

// claimGap is how long the runner rests after it claimed all that was due: workers
// that become free one after the other are served together.
const claimGap = 20 * time.Millisecond

func newRunner(in *Inbox) *runner {
	return &runner{inbox: in, woken: make(chan struct{}, 1), known: make(map[int64]*claim)}
}

// wake has the runner look after d: something is due then.
func (r *runner) wake(d time.Duration) {
	at := time.Now().Add(d)
	r.mu.Lock()
	sooner := r.at.IsZero() || at.Before(r.at)
	if sooner {
		r.at = at
	}
	r.mu.Unlock()
	if sooner {
		select {
		case r.woken <- struct{}{}:
		default: // one note is enough
		}
	}
}

// Run claims until ctx ends.
func (r *runner) Run(ctx context.Context) error {
	work, cancel := r.inbox.drain(ctx)
	defer cancel()
	failures := 0
	for ctx.Err() == nil {
		r.mu.Lock()
		r.at = time.Time{}
		r.mu.Unlock()
		next, err := r.step(ctx, work)
		if err != nil {
			r.unknown.Store(true)
			if failures++; ctx.Err() == nil {
				r.inbox.lines.Warn(ctx, r.inbox.cfg.Logger, "held events could not be claimed, will try again", r.inbox.advise(err), "failures", failures)
			}
			next = outage.Delay(failures)
		} else {
			failures = 0
		}
		if !r.more {
			sleep(ctx, claimGap)
		}
		r.wait(ctx, next)
	}
	r.releaseUnbegun(ctx, work)
	if err := r.adopt(work); err != nil {
		r.inbox.cfg.Logger.WarnContext(ctx, "claims whose answer was lost could not be given back and will run out", "error", err)
	}
	return nil
}

// adopt gives back what was claimed for this process without its knowledge.
func (r *runner) adopt(ctx context.Context) error {
	if !r.unknown.Swap(false) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledger.WritePatience)
	defer cancel()
	r.mu.Lock()
	known := slices.Collect(maps.Keys(r.known))
	r.mu.Unlock()
	if err := r.inbox.db.Orphans(ctx, r.inbox.node.name, r.inbox.names(), known); err != nil {
		r.unknown.Store(true)
		return err
	}

	return nil
}

// begun notes that a claim is this process's, and ended that it is no longer.
func (r *runner) begun(cl *claim) {
	r.mu.Lock()
	r.known[cl.ID] = cl
	r.mu.Unlock()
	cl.c.retries.claimed.Add(1)
	cl.c.retries.size.Add(cl.size)
	r.out.Add(1)
}

func (r *runner) ended(cl *claim) {
	r.mu.Lock()
	if r.known[cl.ID] == cl { // and not a later claim of this process
		delete(r.known, cl.ID)
	}
	r.mu.Unlock()
	cl.c.retries.claimed.Add(-1)
	cl.c.retries.size.Add(-cl.size)
	r.out.Done()
}

// renewable returns the claims that have to be renewed.
func (r *runner) renewable() []*claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	var claims []*claim
	for _, cl := range r.known {
		if cl.c.external != nil && !cl.isLost() {
			claims = append(claims, cl)
		}
	}
	return claims
}

// wait waits for d, or until the runner is woken to an earlier time.
func (r *runner) wait(ctx context.Context, d time.Duration) {
	until := time.Now().Add(d)
	for {
		r.mu.Lock()
		if !r.at.IsZero() && r.at.Before(until) {
			until = r.at
		}
		r.mu.Unlock()
		timer := time.NewTimer(time.Until(until))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			return
		case <-r.woken:
			timer.Stop()
		}
	}
}

// step claims what the workers have room for, and says how long nothing else is
// due.
func (r *runner) step(ctx, work context.Context) (time.Duration, error) {
	if err := r.adopt(work); err != nil {
		return 0, err
	}
	// A claim is answered also where ctx ends meanwhile: it may have been made.
	w := r.wishes()
	claims, due, err := r.claim(work, w)
	if err != nil {
		return 0, err
	}
	r.more = met(w, claims)
	for _, cl := range claims {
		r.begun(cl)
		cl.c.retries.claims <- cl // it has room for all that are not answered
	}
	if due.Alone {
		ran, err := r.runAlone(ctx, work)
		if ran || err != nil {
			return 0, err
		}
		return r.inbox.cfg.IdlePoll, nil // another process has it just now
	}
	// Where more is due than workers have room for, one that becomes free wakes
	// the runner.
	wait := r.inbox.cfg.IdlePoll
	if due.Wait != nil {
		wait = min(wait, max(time.Duration(*due.Wait*float64(time.Second)), time.Millisecond))
	}
	return wait, nil
}

// wishes says what may be claimed.
func (r *runner) wishes() *ledger.Wishes {
	w := &ledger.Wishes{}
	for _, c := range r.inbox.loops {
		w.Handlers, w.Leases = append(w.Handlers, c.sub.Name), append(w.Leases, c.lease(c.inbox.cfg.AckWait))
		most, bytes := c.retries.room()
		w.Most, w.Bytes, w.Idle = append(w.Most, most), append(w.Bytes, bytes), append(w.Idle, bytes == c.retries.most)
		types, subjects := c.wished()
		w.Types, w.Subjects, w.Spared = append(w.Types, types), append(w.Subjects, subjects), append(w.Spared, c.spared())
	}
	return w
}

// met reports whether a handler got as many claims as it wished for, or most of their bytes.
func met(w *ledger.Wishes, claims []*claim) bool {
	got, size := make(map[string]int32, len(w.Handlers)), make(map[string]int64, len(w.Handlers))
	for _, cl := range claims {
		got[cl.c.sub.Name]++
		size[cl.c.sub.Name] += cl.size
	}
	for i, handler := range w.Handlers {
		if w.Most[i] > 0 && (got[handler] == w.Most[i] || size[handler] > w.Bytes[i]/2) {
			return true
		}
	}
	return false
}

// claim claims events, asks what is due next, and takes dry runs that were asked for.
func (r *runner) claim(ctx context.Context, w *ledger.Wishes) (claims []*claim, next ledger.Due, err error) {
	began := time.Now()
	rows, asked, next, err := r.inbox.db.Claim(ctx, r.inbox.node.name, w, r.inbox.trials.room())
	if err != nil {
		return nil, ledger.Due{}, err
	}
	r.inbox.trials.take(asked)
	return r.claims(rows, began), next, nil
}

// runAlone claims one event that may end the process, and runs it while nothing
// else of this inbox runs. What was claimed before is over by then, or given back:
// it would be charged with the end of the process.
func (r *runner) runAlone(ctx, work context.Context) (ran bool, err error) {
	r.releaseUnbegun(ctx, work)
	r.out.Wait()
	r.inbox.alone.Lock()
	defer r.inbox.alone.Unlock()
	if ctx.Err() != nil {
		return false, nil
	}
	began := time.Now()
	rows, err := r.inbox.db.ClaimAlone(work, r.inbox.node.name, r.wishes())
	if err != nil {
		return false, err
	}
	claims := r.claims(rows, began)
	for _, cl := range claims {
		r.begun(cl)
		cl.c.retries.retry(ctx, work, cl)
	}
	return len(claims) > 0, nil
}

// releaseUnbegun gives back what no worker has begun.
func (r *runner) releaseUnbegun(ctx, work context.Context) {
	for _, c := range r.inbox.loops {
		for len(c.retries.claims) > 0 {
			select {
			case cl := <-c.retries.claims:
				c.retries.release(ctx, work, cl)
				r.ended(cl)
			default:
			}
		}
	}
}
