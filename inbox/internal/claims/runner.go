package claims

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dryrun"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/sleep"
)

// Config has what a runner needs.
type Config struct {
	Ledger   ledger.Claims
	Process  string // the name with which this process claims events
	DryRuns  *dryrun.Runner
	Log      *slog.Logger
	Warn     func(ctx context.Context, what string, err error, args ...any) // logs an error; the runner tries again what failed
	Outage   postroom.Backoff
	Drain    time.Duration
	IdlePoll time.Duration
	Renewal  time.Duration // how long a renewed claim lasts

	// AloneAfter is how long an event that must run alone waits for runs that take long. Then it runs
	// beside those that go on, which may take hours.
	AloneAfter time.Duration

	Alone *delivery.Alone // the lock of running events
}

// Runner claims held events that are due and hands them to the workers of their
// handlers. It implements postroom.Runner.
type Runner struct {
	cfg    Config
	queues []*Queue
	woken  chan struct{}

	mu    sync.Mutex
	at    time.Time        // when to look for due events again; zero: at the next poll
	known map[int64]*Claim // the claims of this process, by id

	asked   time.Time   // since when an event that must run alone has waited; zero: none waits
	tried   time.Time   // when the runner last could not run it, because another event ran for long
	more    bool        // more events may be due, or must be postponed: the runner does not rest for claimGap
	looked  time.Time   // when the runner last looked for due events
	unknown atomic.Bool // the database did not answer a claim: this process may have claims that it does not know of
}

// claimGap is how long the runner rests after it claimed all due events. The next statement then
// claims events for all workers that have become free meanwhile.
const claimGap = 20 * time.Millisecond

// NewRunner returns a runner that has no queues yet.
func NewRunner(cfg Config) *Runner {
	return &Runner{cfg: cfg, woken: make(chan struct{}, 1), known: make(map[int64]*Claim)}
}

// Serve sets the queues for which the runner claims. Call it before Run.
func (r *Runner) Serve(queues []*Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues = queues
}

// Wake makes the runner look for due events when the time d has passed.
func (r *Runner) Wake(d time.Duration) {
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
		default: // the channel woken has a value already
		}
	}
}

// Freed makes the runner look for due events if few claims wait. Call it when a worker is free.
func (r *Runner) Freed(q *Queue) {
	if q.wants() {
		r.Wake(0)
	}
}

// Accepted makes the runner look for due events, because Accept may have stored some. If no handler
// has room for a claim, the runner looks when a worker becomes free.
func (r *Runner) Accepted() {
	r.mu.Lock()
	queues := r.queues
	r.mu.Unlock()
	for _, q := range queues {
		if events, _ := q.room(); events > 0 {
			r.Wake(0)
			return
		}
	}
}

// Run claims due events until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	life, cancel := delivery.NewLifetime(ctx, r.cfg.Drain)
	defer cancel()
	failures := 0
	for !life.IsStopping() {
		r.mu.Lock()
		r.at = time.Time{}
		r.mu.Unlock()
		next, err := r.step(life)
		if err != nil {
			r.unknown.Store(true)
			if failures++; !life.IsStopping() {
				r.cfg.Warn(life.Take, "held events not claimed, will try again", err, "failures", failures)
			}
			next = r.cfg.Outage.Delay(failures)
		} else {
			failures = 0
		}
		if !r.more {
			sleep.For(life.Take, claimGap)
		}
		r.wait(life.Take, next)
	}
	r.releaseUnbegun(life)
	if err := r.adopt(life.Work); err != nil {
		r.cfg.Log.WarnContext(life.Take, "unknown claims not given back, they will expire", "error", err)
	}
	return nil
}

// adopt gives back the claims that this process has in the database but does not know of. A worker
// that claims the next event of a key calls Begun before the commit. So of each claim that the
// database returns, the process already knows, or the claim has ended.
func (r *Runner) adopt(ctx context.Context) error {
	//guard:a-lost-answer-has-the-claims-given-back true
	if !r.unknown.Swap(false) {
		return nil
	}
	handlers := make([]string, len(r.queues))
	for i, q := range r.queues {
		handlers[i] = q.Name
	}
	if err := r.cfg.Ledger.Orphans(ctx, r.cfg.Process, handlers, r.knows); err != nil {
		r.unknown.Store(true)
		return err
	}
	return nil
}

// knows reports whether this process knows that it has a claim.
func (r *Runner) knows(id, epoch int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	cl := r.known[id]
	//guard:the-claim-of-a-worker-is-no-orphan false
	return cl != nil && cl.Epoch == epoch
}

// Doubt records that the database did not answer a claim. This process may then have
// claims that it does not know of, and the runner gives them back.
func (r *Runner) Doubt() { r.unknown.Store(true) }

// Begun records that this process has a claim.
func (r *Runner) Begun(cl *Claim) {
	r.mu.Lock()
	r.known[cl.ID] = cl
	r.mu.Unlock()
	cl.queue.claimed.Add(1)
	//guard:what-is-claimed-counts-until-it-ends remove
	cl.queue.size.Add(cl.size)
}

// Ended records that this process no longer has a claim.
func (r *Runner) Ended(cl *Claim) {
	r.mu.Lock()
	if r.known[cl.ID] == cl { // the map known may already have a later claim of the same event
		delete(r.known, cl.ID)
	}
	r.mu.Unlock()
	cl.queue.claimed.Add(-1)
	cl.queue.size.Add(-cl.size)
}

// wait waits for the time d, or until an earlier time that Wake sets meanwhile.
func (r *Runner) wait(ctx context.Context, d time.Duration) {
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

// step claims as many due events as the handlers have room for, and returns how long to wait before
// the next step.
func (r *Runner) step(life delivery.Lifetime) (time.Duration, error) {
	if err := r.adopt(life.Work); err != nil {
		return 0, err
	}
	r.releasePaused(life)
	// Statements go on even if the process begins to stop meanwhile, because the database may
	// already have claimed events for it.
	crowded, err := r.postpone(life.Work)
	if err != nil {
		return 0, err
	}
	w := r.wishes()
	if !slices.ContainsFunc(w.Most, func(n int32) bool { return n > 0 }) && time.Since(r.looked) < r.cfg.IdlePoll {
		r.more = crowded
		return r.rest(crowded), nil // a worker that becomes free wakes the runner
	}
	claims, due, err := r.claim(life.Work, w)
	if err != nil {
		return 0, err
	}
	r.looked = time.Now()
	r.more = crowded || met(w, claims)
	for _, cl := range claims {
		r.Begun(cl)
		cl.queue.put(cl)
	}
	r.releasePaused(life) // for handlers that paused meanwhile
	if due.Alone {
		ran, err := r.runAlone(life)
		if ran || err != nil {
			return 0, err
		}
		return r.cfg.IdlePoll, nil // another process runs that event now, or it waits
	}
	r.asked = time.Time{}
	// If more events are due than the handlers have room for, a worker that becomes free wakes the
	// runner.
	wait := r.rest(crowded)
	if due.Wait != nil {
		wait = min(wait, max(time.Duration(*due.Wait*float64(time.Second)), time.Millisecond))
	}
	return wait, nil
}

// rest returns the wait if no event is due: 0 if more events must be postponed.
func (r *Runner) rest(crowded bool) time.Duration {
	if crowded {
		return 0
	}
	return r.cfg.IdlePoll
}

// releasePaused gives back claims that no worker has begun. It does so for each handler that is
// paused, or whose workers have been busy for long.
func (r *Runner) releasePaused(life delivery.Lifetime) {
	for _, q := range r.queues {
		//guard:claims-behind-slow-runs-are-given-back 2 false
		if q.isPaused() || q.isStuck() {
			r.release(life, q)
		}
	}
}

// wishes returns which events may be claimed. The result includes the paused handlers, because dry
// runs are made for them too.
func (r *Runner) wishes() *delivery.Wishes {
	w := &delivery.Wishes{}
	for _, q := range r.queues {
		w.Paused = append(w.Paused, q.isPaused())
		w.Handlers, w.Leases = append(w.Handlers, q.Name), append(w.Leases, q.Lease)
		most, bytes := q.room()
		w.Most, w.Bytes, w.Idle = append(w.Most, most), append(w.Bytes, bytes), append(w.Idle, bytes == q.most)
		w.Types, w.Subjects, w.Spared = append(w.Types, q.Types), append(w.Subjects, q.Subjects), append(w.Spared, q.Spared)
	}
	return w
}

// met reports whether a handler got as many claims as it had room for, or more than half of the
// bytes that it had room for.
func met(w *delivery.Wishes, claims []*Claim) bool {
	got, size := make(map[string]int32, len(w.Handlers)), make(map[string]int64, len(w.Handlers))
	for _, cl := range claims {
		got[cl.Handler]++
		size[cl.Handler] += cl.size
	}
	for i, handler := range w.Handlers {
		if w.Most[i] > 0 && (got[handler] == w.Most[i] || size[handler] > w.Bytes[i]/2) {
			return true
		}
	}
	return false
}

// claim claims events, asks what is due next, and takes requested dry runs.
func (r *Runner) claim(ctx context.Context, w *delivery.Wishes) (claims []*Claim, next delivery.Due, err error) {
	began := time.Now()
	rows, asked, next, err := r.cfg.Ledger.Claim(ctx, r.cfg.Process, w, r.cfg.DryRuns.Room())
	if err != nil {
		return nil, delivery.Due{}, err
	}
	r.cfg.DryRuns.Take(asked)
	return r.claims(rows, began), next, nil
}

// claims returns the claims for rows that a statement claimed.
func (r *Runner) claims(rows []delivery.HeldEvent, began time.Time) (claims []*Claim) {
	for i, row := range rows {
		q := r.queues[slices.IndexFunc(r.queues, func(q *Queue) bool { return q.Name == row.Handler })]
		claims = append(claims, q.Claims(rows[i:i+1], began)...)
	}
	return claims
}

// alonePatience is how long other events wait at a time so that one can run alone. Usually the running
// events end within this time. aloneGap is the time between two such waits.
const (
	alonePatience = time.Second
	aloneGap      = 10 * alonePatience
)

// lockAlone takes the lock for an event that must run alone, or returns false if the event must wait.
// It first gives back the claims that no worker has begun, and waits until the other claims have
// ended, because each event with an open claim loses an attempt if the process ends. A run may take
// hours, and other events must not wait for it. So lockAlone waits for the end of a run only for a short
// time. After AloneAfter, it takes the lock although some runs go on.
func (r *Runner) lockAlone(life delivery.Lifetime) bool {
	if r.asked.IsZero() {
		r.asked = time.Now()
	}
	beside := time.Since(r.asked) >= r.cfg.AloneAfter
	//guard:an-event-that-runs-alone-waits-without-stopping-others 2 false
	if !beside && (r.calls() || time.Since(r.tried) < aloneGap) {
		return false
	}
	r.releaseUnbegun(life)
	until := time.Now().Add(alonePatience)
	//guard:claims-of-others-go-on-while-an-event-must-run-alone 2 true
	for r.runs() && time.Now().Before(until) && !life.IsStopping() {
		sleep.For(life.Take, time.Millisecond)
	}
	//guard:an-event-that-must-run-alone-stops-others-for-a-short-time 2.1.1 = time.Hour
	if r.runs() && !beside || !r.cfg.Alone.Lock(time.Until(until), beside) {
		r.tried = time.Now()
		r.Wake(0) // to claim again what it gave back
		return false
	}
	r.asked, r.tried = time.Time{}, time.Time{}
	return true
}

// calls reports whether an external handler runs an event.
func (r *Runner) calls() bool {
	return slices.ContainsFunc(r.queues, func(q *Queue) bool { return q.Renewed && q.Claimed() > q.Waiting() })
}

// runs reports whether a handler that is not external has a claim.
func (r *Runner) runs() bool {
	return slices.ContainsFunc(r.queues, func(q *Queue) bool { return !q.Renewed && q.Claimed() > 0 })
}

// runAlone claims one event that may be poison, and runs it while no other event runs in this
// inbox, except those that take long: see lockAlone.
func (r *Runner) runAlone(life delivery.Lifetime) (ran bool, err error) {
	if !r.lockAlone(life) {
		return false, nil
	}
	defer r.cfg.Alone.Unlock()
	if life.IsStopping() {
		return false, nil
	}
	began := time.Now()
	rows, err := r.cfg.Ledger.ClaimAlone(life.Work, r.cfg.Process, r.wishes().Unpaused())
	if err != nil {
		return false, err
	}
	claims := r.claims(rows, began)
	for _, cl := range claims {
		r.Begun(cl)
		cl.queue.Run(life, cl)
	}
	return len(claims) > 0, nil
}

// releaseUnbegun gives back the claims that no worker has begun.
func (r *Runner) releaseUnbegun(life delivery.Lifetime) {
	for _, q := range r.queues {
		r.release(life, q)
	}
}

// release gives back the claims of one handler that no worker has begun.
func (r *Runner) release(life delivery.Lifetime, q *Queue) {
	for len(q.waiting) > 0 {
		select {
		case cl := <-q.waiting:
			q.Release(life, cl)
			r.Ended(cl)
		default:
		}
	}
}
