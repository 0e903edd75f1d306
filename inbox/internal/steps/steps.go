// Package steps runs the steps of external handlers, which call other systems. It records
// each call before and after the call is made, and decides whether a call that began
// earlier may be made again.
package steps

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/pause"
)

var (
	errStepName = errors.New("a step's name must have 1 to 128 bytes of UTF-8")
	errStepBusy = errors.New("this step is under way; steps of a handler have different names")
	errCallOver = errors.New("the attempt is over")
)

// NotApplied marks the error of a call that had no effect.
func NotApplied(err error) error {
	if err == nil {
		return nil
	}
	return &notDoneError{err}
}

type notDoneError struct{ err error }

func (e *notDoneError) Error() string { return e.err.Error() }
func (e *notDoneError) Unwrap() error { return e.err }

// Receipts records in the database which steps were called.
type Receipts interface {
	// Start records that a step begins, and stores the verdict in s. Finish records that
	// the step is done, with its result. If another process recorded a result earlier,
	// Finish stores that result in s. Neither has a context parameter, because a caller
	// that gave up would not know whether the record was written.
	Start(s *delivery.Step) error
	Finish(s *delivery.Step) error

	// Undo records that the call of s, whose start was recorded, did not happen. Undo may be
	// repeated. It changes nothing if another call of the step began later. Forget records that
	// none of the step's calls with unknown outcomes happened.
	Undo(ctx context.Context, s *delivery.Step) error
	Forget(ctx context.Context, s *delivery.Step) error
}

// Config has what an attempt needs.
type Config struct {
	Receipts Receipts
	Instance string        // the id of this Postroom database
	Window   time.Duration // how long a vendor (a system that a step calls) recognises a key, if the step has no window of its own
	Timeout  time.Duration // the handler's time limit
	Outage   postroom.Backoff
	Lost     func() // called when another process has claimed the event
}

// Options change how one step is run.
type Options struct {
	Window time.Duration // how long the vendor recognises the key
	Lookup func(ctx context.Context, key string) (result []byte, found bool, err error)
}

// Attempt is one attempt of an external handler to handle an event. It is safe for concurrent use.
type Attempt struct {
	cfg Config
	of  *delivery.HeldEvent

	mu      sync.Mutex
	over    bool
	outage  bool          // a step could not be recorded, so the attempt must not count
	noting  int           // how many receipts are being written
	since   time.Time     // when the field noting last changed
	noted   time.Duration // the total time, up to since, during which receipts were being written
	busy    map[string]struct{}
	settles []func(ctx context.Context, tx pgx.Tx) error
	unmade  []*delivery.Step // calls that did not happen, but the receipts may say that they began
}

// Begin returns a new attempt at a held event.
func Begin(of *delivery.HeldEvent, cfg Config) *Attempt {
	return &Attempt{cfg: cfg, of: of, busy: make(map[string]struct{})}
}

// Options returns the default options of a step.
func (a *Attempt) Options() Options { return Options{Window: a.cfg.Window} }

// Do runs a step, or returns its recorded result.
func (a *Attempt) Do(ctx context.Context, name string, f func(ctx context.Context, key string) ([]byte, error), o Options) ([]byte, error) {
	if name == "" || guard.Clean(name, 128) != name {
		return nil, fmt.Errorf("step %.40q: %w", name, errStepName)
	}
	if err := a.enter(name); err != nil {
		return nil, fmt.Errorf("step %s: %w", name, err)
	}
	defer a.leave(name)
	s := &delivery.Step{
		Handler: a.of.Handler, Event: a.of.Key, ID: a.of.ID, Epoch: a.of.Epoch,
		Name: name, Revision: a.of.Revision, VendorKey: Key(a.cfg.Instance, a.of, name), Call: newCall(),
	}
	// A call may take as long as the handler's time limit, and must reach the vendor within the
	// vendor's window. So no call may begin in the last part of the window.
	s.Window = max(o.Window-a.cfg.Timeout, 0)
	result, err := a.run(ctx, s, f, o)
	if err != nil {
		return nil, &delivery.WhileError{What: "step " + name, Err: err}
	}
	return result, nil
}

// OnSuccess registers f, which is called in the transaction that settles the event.
func (a *Attempt) OnSuccess(f func(ctx context.Context, tx pgx.Tx) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.settles = append(a.settles, f)
	}
}

// Key returns the key by which a vendor recognises a repetition: 32 hexadecimal digits. All
// attempts at a step have the same key, as long as the revision of the event stays the same.
func Key(instance string, of *delivery.HeldEvent, name string) string {
	h := sha256.New()
	for _, part := range []string{instance, of.Handler, of.Key, name} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // with the lengths, different lists cannot give the same text
	}
	_, _ = fmt.Fprintf(h, "%d", of.Revision)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// newCall returns the id of a call, a UUID. The receipt distinguishes calls by their ids. The
// vendor sees only the key that Key returns.
func newCall() string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

func (a *Attempt) enter(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return errCallOver
	}
	if _, busy := a.busy[name]; busy {
		return errStepBusy
	}
	a.busy[name] = struct{}{}
	return nil
}

func (a *Attempt) leave(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.busy, name)
}

// End ends the attempt, and returns the functions to run when the event is settled. If outage is
// true, the attempt must not count. There are three cases. A step could not be recorded because of
// an outage. The handler was abandoned while it waited for the database. Or the handler ran out of
// time, and had waited for the database for at least half of its time: the rest may have been too
// short for any vendor.
func (a *Attempt) End(err error) (settles []func(ctx context.Context, tx pgx.Tx) error, outage bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	waited := a.noted
	if a.noting > 0 {
		waited += time.Since(a.since)
	}
	short := err != nil && delivery.FailureOf(err).Class == delivery.ClassTimeout && waited >= a.cfg.Timeout/2
	return a.settles, a.outage || short || delivery.IsAbandoned(err) && a.noting > 0
}

// TakeBack records that calls did not happen whose beginning may be recorded: no person has to ask a
// vendor about them. Call it after End, and again if it fails.
func (a *Attempt) TakeBack(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.unmade) > 0 {
		if err := a.cfg.Receipts.Undo(ctx, a.unmade[0]); err != nil {
			return err
		}
		a.unmade = a.unmade[1:]
	}
	return nil
}

// notMade keeps for TakeBack that the call of a step did not happen.
func (a *Attempt) notMade(s *delivery.Step) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unmade = append(a.unmade, s)
}

// run runs a step and returns its result.
func (a *Attempt) run(ctx context.Context, s *delivery.Step, f func(ctx context.Context, key string) ([]byte, error), o Options) ([]byte, error) {
	for {
		doubt := false // whether the database may have recorded the beginning, although a statement failed
		err := a.note(ctx, func() error {
			err := a.cfg.Receipts.Start(s)
			doubt = doubt || err != nil && !delivery.IsRefused(err)
			return err
		})
		//guard:a-beginning-in-doubt-is-taken-back false
		if err != nil && doubt {
			a.notMade(s)
		}
		if err != nil {
			return nil, err
		}
		switch s.Verdict {
		case delivery.StepDone:
			return s.Result, nil
		case delivery.StepLost:
			a.cfg.Lost()
			return nil, delivery.ErrSettled
		case delivery.StepCall:
			return a.invoke(ctx, s, f, o)
		case delivery.StepAgain:
		case delivery.StepUnknown:
			result, found, err := a.ask(ctx, s, o)
			if found || err != nil {
				return result, err
			}
		}
	}
}

// invoke calls the step's function and records the outcome.
func (a *Attempt) invoke(ctx context.Context, s *delivery.Step, f func(ctx context.Context, key string) ([]byte, error), o Options) (result []byte, err error) {
	if ctx.Err() != nil { // the context ended while the start was being recorded
		a.notMade(s)
		return nil, context.Cause(ctx)
	}
	result, err = f(ctx, s.VendorKey)
	tree := guard.Tree(err) // unlike errors.As, guard.Tree visits a limited number of errors
	switch _, not := guard.As[*notDoneError](tree); {
	case err == nil:
		s.Result = result
		err = a.note(ctx, func() error { return a.cfg.Receipts.Finish(s) })
		return s.Result, err // if there were two calls, the result that was recorded first counts
	case not:
		undo := a.note(ctx, func() error { return a.cfg.Receipts.Undo(context.WithoutCancel(ctx), s) })
		if undo != nil {
			a.notMade(s)
		}
		return nil, errors.Join(err, undo)
	case s.Window == 0 && o.Lookup == nil && ctx.Err() == nil:
		return nil, &delivery.WhileError{What: delivery.ErrUnanswered.Error(), Matches: delivery.ErrUnanswered, Err: err} // the vendor does not recognise the key, and there is no Lookup that could find out what happened
	}
	return nil, err
}

// ask calls the step's Lookup, to find out whether the calls with unknown outcomes happened. If
// they did not happen, the step counts as not begun.
func (a *Attempt) ask(ctx context.Context, s *delivery.Step, o Options) (result []byte, found bool, err error) {
	if o.Lookup == nil {
		return nil, false, fmt.Errorf("%w: with key %s at %s; ask the vendor, who may not recognise the key any more",
			delivery.ErrOutcomeUnknown, s.Unsure.Key, s.Unsure.Since.UTC().Format(time.RFC3339))
	}
	result, found, err = o.Lookup(ctx, s.Unsure.Key)
	switch {
	case err != nil:
		return nil, false, &delivery.WhileError{What: "look up what came of it", Err: err}
	case !found:
		return nil, false, a.note(ctx, func() error { return a.cfg.Receipts.Forget(context.WithoutCancel(ctx), s) })
	}
	known := *s // a copy of the step with the key and the revision of those calls
	known.Result, known.VendorKey, known.Revision = result, s.Unsure.Key, s.Unsure.Revision
	err = a.note(ctx, func() error { return a.cfg.Receipts.Finish(&known) })
	return known.Result, true, err
}

// note calls the function write, which writes a receipt. In an outage, or after a conflict with
// another transaction, it calls write again until ctx ends.
func (a *Attempt) note(ctx context.Context, write func() error) error {
	a.count(1)
	defer a.count(-1)
	for failures := 1; ; failures++ {
		err := write()
		switch {
		case err == nil || !delivery.IsOutage(err) && !delivery.IsContention(err):
			return err
		case ctx.Err() != nil:
			a.mu.Lock()
			a.outage = true
			a.mu.Unlock()
			return err
		}
		pause.For(ctx, a.cfg.Outage.Delay(failures))
	}
}

// count changes the number of receipts that are being written: by 1 or -1. It measures the time
// during which at least one receipt is being written.
func (a *Attempt) count(notes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.noting > 0 {
		a.noted += time.Since(a.since)
	}
	a.noting += notes
	a.since = time.Now()
}
