package inbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
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
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	r.mu.Lock()
	known := slices.Collect(maps.Keys(r.known))
	r.mu.Unlock()
	if _, err := r.inbox.pool.Exec(ctx, r.inbox.sql.orphans, r.inbox.node.name, r.inbox.names(), append([]int64{}, known...)); err != nil {
		r.unknown.Store(true)
		return fmt.Errorf("give back claims whose answer was lost: %w", err)
	}

	return nil
}

// begun notes that a claim is this process's, and ended that it is no longer.
func (r *runner) begun(cl *claim) {
	r.mu.Lock()
	r.known[cl.id] = cl
	r.mu.Unlock()
	cl.c.retries.claimed.Add(1)
	r.out.Add(1)
}

func (r *runner) ended(cl *claim) {
	r.mu.Lock()
	if r.known[cl.id] == cl { // and not a later claim of this process
		delete(r.known, cl.id)
	}
	r.mu.Unlock()
	cl.c.retries.claimed.Add(-1)
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
	r.more = w.met(claims)
	for _, cl := range claims {
		r.begun(cl)
		cl.c.retries.claims <- cl // it has room for all that are not answered
	}
	if due.alone {
		ran, err := r.runAlone(ctx, work)
		if ran || err != nil {
			return 0, err
		}
		return r.inbox.cfg.IdlePoll, nil // another process has it just now
	}
	// Where more is due than workers have room for, one that becomes free wakes
	// the runner.
	wait := r.inbox.cfg.IdlePoll
	if due.wait != nil {
		wait = min(wait, max(time.Duration(*due.wait*float64(time.Second)), time.Millisecond))
	}
	return wait, nil
}

// wishes are the parameters of claim.sql.
type wishes struct {
	handlers        []string
	most            []int32
	leases          []time.Duration
	types, subjects []*string
	spared          []int32
}

// wishes says what may be claimed.
func (r *runner) wishes() *wishes {
	w := &wishes{}
	for _, c := range r.inbox.loops {
		w.handlers, w.leases = append(w.handlers, c.sub.Name), append(w.leases, c.lease(c.inbox.cfg.AckWait))
		// A claim that passes on to the next of its key counts twice for a moment.
		w.most = append(w.most, max(int32(cap(c.retries.claims))-c.retries.claimed.Load(), 0)) //nolint:gosec // a number of workers
		types, subjects := c.wished()
		w.types, w.subjects, w.spared = append(w.types, types), append(w.subjects, subjects), append(w.spared, c.spared())
	}
	return w
}

func (w *wishes) arguments(process string) []any {
	return []any{process, w.handlers, w.most, w.leases, w.types, w.subjects, w.spared}
}

// met reports whether a handler got as many claims as it wished for.
func (w *wishes) met(claims []*claim) bool {
	got := make(map[string]int32, len(w.handlers))
	for _, cl := range claims {
		got[cl.c.sub.Name]++
	}
	for i, handler := range w.handlers {
		if w.most[i] > 0 && got[handler] == w.most[i] {
			return true
		}
	}
	return false
}

// due is what due.sql returns.
type due struct {
	wait  *float64 // seconds; nil where nothing is held that is due later
	alone bool
}

// claim claims events, asks what is due next, and takes dry runs that were asked for,
// in one round trip.
func (r *runner) claim(ctx context.Context, w *wishes) (claims []*claim, next due, err error) {
	err = r.send(ctx, func(batch *pgx.Batch, began time.Time) {
		batch.Queue(r.inbox.sql.claim, w.arguments(r.inbox.node.name)...).Query(r.collect(&claims, began))
		batch.Queue(r.inbox.sql.due, w.handlers, w.types, w.subjects, w.spared).QueryRow(func(row pgx.Row) error {
			return row.Scan(&next.wait, &next.alone)
		})
		batch.Queue(r.inbox.sql.trials, r.inbox.node.name, w.handlers, r.inbox.trials.room(), w.types, w.subjects).Query(r.inbox.trials.take)
	})
	if err != nil {
		return nil, due{}, fmt.Errorf("claim held events: %w", err)
	}
	return claims, next, nil
}

// send sends statements that claim, in one transaction and one round trip.
func (r *runner) send(ctx context.Context, queue func(batch *pgx.Batch, began time.Time)) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(r.inbox.sql.plan)
	queue(batch, time.Now())
	return r.inbox.pool.SendBatch(ctx, batch).Close()
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
	var claims []*claim
	err = r.send(work, func(batch *pgx.Batch, began time.Time) {
		batch.Queue(r.inbox.sql.claimAlone, r.wishes().arguments(r.inbox.node.name)...).Query(r.collect(&claims, began))
	})
	if err != nil {
		return false, fmt.Errorf("claim an event that runs alone: %w", err)
	}
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
