package claims

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/pause"
)

// Ledger is what the runner asks of the database. Each call has a time of its own.
type Ledger interface {
	// Claim claims events for a process, asks what is due next, and takes dry runs that
	// were asked for, if there is room for any.
	Claim(ctx context.Context, process string, w *delivery.Wishes, room int) ([]delivery.HeldEvent, []delivery.DryRun, delivery.Due, error)

	// ClaimAlone claims one event that may end the process.
	ClaimAlone(ctx context.Context, process string, w *delivery.Wishes) ([]delivery.HeldEvent, error)

	// Orphans gives back what was claimed for a process, besides the known ids.
	Orphans(ctx context.Context, process string, handlers []string, known []int64) error

	// Renew renews claims, and returns the ids of those that are still this process's.
	Renew(ctx context.Context, ids, epochs []int64, lease time.Duration) (kept []int64, err error)
}

// DryRuns take the dry runs that were asked for.
type DryRuns interface {
	Room() int
	Take(asked []delivery.DryRun)
}

// Config is what a runner works with.
type Config struct {
	Ledger   Ledger
	Process  string // under whose name it claims
	DryRuns  DryRuns
	Log      *slog.Logger
	Warn     func(ctx context.Context, what string, err error, args ...any) // logs what is tried again
	Outage   postroom.Backoff
	Drain    time.Duration
	IdlePoll time.Duration
	Renewal  time.Duration // for how long a renewed claim lasts

	// Alone is held for writing while an event runs that may end the process, and
	// for reading by all others.
	Alone *sync.RWMutex
}

// Runner claims held events that are due and hands them to the workers of their
// handlers. It implements postroom.Runner.
type Runner struct {
	cfg    Config
	queues []*Queue
	woken  chan struct{}

	mu    sync.Mutex
	at    time.Time        // when it is to look again; zero for no sooner than the next poll
	known map[int64]*Claim // the claims of this process, by id

	out     sync.WaitGroup // has each claim that a worker may run
	more    bool           // the last claim brought as much as was wished: more may be due
	unknown atomic.Bool    // a claim was not answered: there may be others of this process
}

// claimGap is how long the runner rests after it claimed all that was due: workers
// that become free one after the other are served together.
const claimGap = 20 * time.Millisecond

// NewRunner returns a runner that has no queues yet.
func NewRunner(cfg Config) *Runner {
	return &Runner{cfg: cfg, woken: make(chan struct{}, 1), known: make(map[int64]*Claim)}
}

// Serve says for which queues the runner claims. It is called before Run.
func (r *Runner) Serve(queues []*Queue) { r.queues = queues }

// Wake has the runner look after d: something is due then.
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
		default: // one note is enough
		}
	}
}

// Run claims until ctx ends.
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
				r.cfg.Warn(life.Take, "held events could not be claimed, will try again", err, "failures", failures)
			}
			next = r.cfg.Outage.Delay(failures)
		} else {
			failures = 0
		}
		if !r.more {
			pause.For(life.Take, claimGap)
		}
		r.wait(life.Take, next)
	}
	r.releaseUnbegun(life)
	if err := r.adopt(life.Work); err != nil {
		r.cfg.Log.WarnContext(life.Take, "claims whose answer was lost could not be given back and will run out", "error", err)
	}
	return nil
}

// adopt gives back what was claimed for this process without its knowledge.
func (r *Runner) adopt(ctx context.Context) error {
	if !r.unknown.Swap(false) {
		return nil
	}
	r.mu.Lock()
	known := slices.Collect(maps.Keys(r.known))
	r.mu.Unlock()
	handlers := make([]string, len(r.queues))
	for i, q := range r.queues {
		handlers[i] = q.Name
	}
	if err := r.cfg.Ledger.Orphans(ctx, r.cfg.Process, handlers, known); err != nil {
		r.unknown.Store(true)
		return err
	}
	return nil
}

// Doubt notes that a claim was not answered: this process may have others than it knows
// of, which then are given back.
func (r *Runner) Doubt() { r.unknown.Store(true) }

// Begun notes that a claim is this process's.
func (r *Runner) Begun(cl *Claim) {
	r.mu.Lock()
	r.known[cl.ID] = cl
	r.mu.Unlock()
	cl.queue.claimed.Add(1)
	cl.queue.size.Add(cl.size)
	r.out.Add(1)
}

// Ended notes that a claim is this process's no longer.
func (r *Runner) Ended(cl *Claim) {
	r.mu.Lock()
	if r.known[cl.ID] == cl { // and not a later claim of this process
		delete(r.known, cl.ID)
	}
	r.mu.Unlock()
	cl.queue.claimed.Add(-1)
	cl.queue.size.Add(-cl.size)
	r.out.Done()
}

// wait waits for d, or until the runner is woken to an earlier time.
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

// step claims what the workers have room for, and says how long nothing else is
// due.
func (r *Runner) step(life delivery.Lifetime) (time.Duration, error) {
	if err := r.adopt(life.Work); err != nil {
		return 0, err
	}
	// A claim is answered also where ctx ends meanwhile: it may have been made.
	w := r.wishes()
	claims, due, err := r.claim(life.Work, w)
	if err != nil {
		return 0, err
	}
	r.more = met(w, claims)
	for _, cl := range claims {
		r.Begun(cl)
		cl.queue.waiting <- cl // it has room for all that are not answered
	}
	if due.Alone {
		ran, err := r.runAlone(life)
		if ran || err != nil {
			return 0, err
		}
		return r.cfg.IdlePoll, nil // another process has it just now
	}
	// Where more is due than workers have room for, one that becomes free wakes
	// the runner.
	wait := r.cfg.IdlePoll
	if due.Wait != nil {
		wait = min(wait, max(time.Duration(*due.Wait*float64(time.Second)), time.Millisecond))
	}
	return wait, nil
}

// wishes says what may be claimed.
func (r *Runner) wishes() *delivery.Wishes {
	w := &delivery.Wishes{}
	for _, q := range r.queues {
		w.Handlers, w.Leases = append(w.Handlers, q.Name), append(w.Leases, q.Lease)
		most, bytes := q.room()
		w.Most, w.Bytes, w.Idle = append(w.Most, most), append(w.Bytes, bytes), append(w.Idle, bytes == q.most)
		w.Types, w.Subjects, w.Spared = append(w.Types, q.Types), append(w.Subjects, q.Subjects), append(w.Spared, q.Spared)
	}
	return w
}

// met reports whether a handler got as many claims as it wished for, or most of their bytes.
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

// claim claims events, asks what is due next, and takes dry runs that were asked for.
func (r *Runner) claim(ctx context.Context, w *delivery.Wishes) (claims []*Claim, next delivery.Due, err error) {
	began := time.Now()
	rows, asked, next, err := r.cfg.Ledger.Claim(ctx, r.cfg.Process, w, r.cfg.DryRuns.Room())
	if err != nil {
		return nil, delivery.Due{}, err
	}
	r.cfg.DryRuns.Take(asked)
	return r.claims(rows, began), next, nil
}

// claims returns what was claimed for the handlers.
func (r *Runner) claims(rows []delivery.HeldEvent, began time.Time) (claims []*Claim) {
	for i, row := range rows {
		q := r.queues[slices.IndexFunc(r.queues, func(q *Queue) bool { return q.Name == row.Handler })]
		claims = append(claims, q.Claims(rows[i:i+1], began)...)
	}
	return claims
}

// runAlone claims one poison event, which may end the process, and runs it while nothing
// else of this inbox runs. The claims made before are settled or given back by then:
// otherwise the end of the process would count as an attempt of theirs, too.
func (r *Runner) runAlone(life delivery.Lifetime) (ran bool, err error) {
	r.releaseUnbegun(life)
	r.out.Wait()
	r.cfg.Alone.Lock()
	defer r.cfg.Alone.Unlock()
	if life.IsStopping() {
		return false, nil
	}
	began := time.Now()
	rows, err := r.cfg.Ledger.ClaimAlone(life.Work, r.cfg.Process, r.wishes())
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

// releaseUnbegun gives back what no worker has begun.
func (r *Runner) releaseUnbegun(life delivery.Lifetime) {
	for _, q := range r.queues {
		for len(q.waiting) > 0 {
			select {
			case cl := <-q.waiting:
				q.Release(life, cl)
				r.Ended(cl)
			default:
			}
		}
	}
}
