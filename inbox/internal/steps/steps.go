// Package steps runs the steps of external handlers: calls of other systems of which each
// is noted before it is made and after it was. It decides whether a call may be made again
// that was begun before.
package steps

import (
	"context"
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

// NotDone marks an error with which a call did not happen.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return &notDoneError{err}
}

type notDoneError struct{ err error }

func (e *notDoneError) Error() string { return e.err.Error() }
func (e *notDoneError) Unwrap() error { return e.err }

// Receipts keep in the database what was called.
type Receipts interface {
	// Start notes that a step begins, and leaves its verdict in it. Finish notes that it
	// is done, with its result. Neither ends with a context: who gave up would not know
	// whether it was written.
	Start(s *delivery.Step) error
	Finish(s *delivery.Step) error

	// Undo notes that a call that was begun did not happen, and Forget that none did of
	// those whose outcome was not known.
	Undo(ctx context.Context, s *delivery.Step) error
	Forget(ctx context.Context, s *delivery.Step) error
}

// Config is what an attempt works with.
type Config struct {
	Receipts Receipts
	Instance string        // the id of this Postroom
	Window   time.Duration // for how long a vendor recognises a key, unless a step says so
	Timeout  time.Duration // of the handler
	Outage   postroom.Backoff
	Lost     func() // is told that another process has claimed the event
}

// Options change how one step is run.
type Options struct {
	Window time.Duration // for how long the vendor recognises the key
	Lookup func(ctx context.Context, key string) (result []byte, found bool, err error)
}

// Attempt is one attempt of an external handler at an event. It is safe for concurrent
// use.
type Attempt struct {
	cfg Config
	of  *delivery.HeldEvent

	mu      sync.Mutex
	over    bool
	outage  bool          // a step could not be noted: the attempt says nothing about the event
	noting  int           // steps that are being noted
	since   time.Time     // since when some are
	noted   time.Duration // for how long some were, in all
	busy    map[string]struct{}
	settles []func(ctx context.Context, tx pgx.Tx) error
}

// Begin returns an attempt at a held event that begins now.
func Begin(of *delivery.HeldEvent, cfg Config) *Attempt {
	return &Attempt{cfg: cfg, of: of, busy: make(map[string]struct{})}
}

// Options are those of a step that says nothing else.
func (a *Attempt) Options() Options { return Options{Window: a.cfg.Window} }

// Do runs a step, or returns the result that it had.
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
		Name: name, Revision: a.of.Revision, VendorKey: Key(a.cfg.Instance, a.of, name),
	}
	// A call that begins at the window's end may take as long as the handler may.
	s.Window = max(o.Window-a.cfg.Timeout, 0)
	result, err := a.run(ctx, s, f, o)
	if err != nil {
		return nil, &delivery.WhileError{What: "step " + name, Err: err}
	}
	return result, nil
}

// OnSuccess has f called in the transaction that settles the event.
func (a *Attempt) OnSuccess(f func(ctx context.Context, tx pgx.Tx) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.settles = append(a.settles, f)
	}
}

// Key is what a vendor is given to recognise a repetition: 32 hexadecimal
// digits, the same for each attempt at a step of an event in one revision.
func Key(instance string, of *delivery.HeldEvent, name string) string {
	h := sha256.New()
	for _, part := range []string{instance, of.Handler, of.Key, name} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // so that no two lists read the same
	}
	_, _ = fmt.Fprintf(h, "%d", of.Revision)
	return hex.EncodeToString(h.Sum(nil)[:16])
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

// End makes the call invalid, and returns what to run when it settles. A handler that
// was left behind while it waited for the database says nothing about its event, nor
// does one that ran out of time of which the database took half or more: what was left
// may have been too short for any vendor.
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

// run brings a step to its result.
func (a *Attempt) run(ctx context.Context, s *delivery.Step, f func(ctx context.Context, key string) ([]byte, error), o Options) ([]byte, error) {
	for {
		if err := a.note(ctx, func() error { return a.cfg.Receipts.Start(s) }); err != nil {
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

// invoke calls the vendor, and notes what came of it.
func (a *Attempt) invoke(ctx context.Context, s *delivery.Step, f func(ctx context.Context, key string) ([]byte, error), o Options) (result []byte, err error) {
	if ctx.Err() != nil { // it came to an end while the start was noted
		return nil, errors.Join(context.Cause(ctx), a.cfg.Receipts.Undo(context.WithoutCancel(ctx), s))
	}
	result, err = f(ctx, s.VendorKey)
	tree := guard.Tree(err) // which has an end, other than errors.As
	switch _, not := guard.As[*notDoneError](tree); {
	case err == nil:
		s.Result = result
		return result, a.note(ctx, func() error { return a.cfg.Receipts.Finish(s) })
	case not:
		return nil, errors.Join(err, a.note(ctx, func() error { return a.cfg.Receipts.Undo(context.WithoutCancel(ctx), s) }))
	case s.Window == 0 && o.Lookup == nil && ctx.Err() == nil:
		return nil, &delivery.WhileError{What: delivery.ErrOutcomeUnknown.Error(), Matches: delivery.ErrOutcomeUnknown, Err: err} // and nothing can change that
	}
	return nil, err
}

// ask looks up what came of calls whose outcome is not known. Where they did not
// happen, the step is as if it was not begun.
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
	known := *s // as it was called then
	known.Result, known.VendorKey, known.Revision = result, s.Unsure.Key, s.Unsure.Revision
	return result, true, a.note(ctx, func() error { return a.cfg.Receipts.Finish(&known) })
}

// note writes a receipt, and waits out an outage for as long as the attempt has.
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

// count says that so many more steps are being noted, and takes the time while any are.
func (a *Attempt) count(notes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.noting > 0 {
		a.noted += time.Since(a.since)
	}
	a.noting += notes
	a.since = time.Now()
}
