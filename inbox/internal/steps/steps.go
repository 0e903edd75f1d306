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
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/vendorcall"
)

var (
	errStepName = errors.New("a step's name must have 1 to 128 bytes of UTF-8")
	errStepBusy = errors.New("this step is under way; steps of a handler have different names")
	errCallOver = errors.New("the attempt is over")
)

// Config has what an attempt needs.
type Config struct {
	Receipts *ledger.Receipts
	Instance string        // the id of this Postroom database
	Window   time.Duration // how long a vendor (a system that a step calls) recognises a key, if the step has no window of its own
	Timeout  time.Duration // the handler's time limit
	Outage   postroom.Backoff
	Lost     func() // called when another process has claimed the event
}

// Options change how one step is run.
type Options struct {
	Window time.Duration // how long the vendor recognises the key
	Lookup func(ctx context.Context, key string) (result any, found bool, err error)
}

// Call calls another system, and returns a result that is recorded as JSON.
type Call func(ctx context.Context, key string) (result any, err error)

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

// Window returns how long a vendor recognises a key, if a step has no window of its own.
func (a *Attempt) Window() time.Duration { return a.cfg.Window }

// Do runs a step, or reads its recorded result. Then it decodes the recorded result into the value
// into.
func (a *Attempt) Do(ctx context.Context, name string, f Call, o Options, into any) error {
	if name == "" || guard.Clean(name, 128) != name {
		return fmt.Errorf("step %.40q: %w", name, errStepName)
	}
	if err := a.enter(name); err != nil {
		return fmt.Errorf("step %s: %w", name, err)
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
	if err == nil {
		err = decode(result, into)
	}
	if err != nil {
		return &delivery.WhileError{What: "step " + name, Err: err}
	}
	return nil
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

// takeBackAll records again that the calls of a step that this attempt did not make did not happen.
// Otherwise their outcome would seem unknown. They stay in a.unmade, because a beginning in doubt
// may be recorded late.
func (a *Attempt) takeBackAll(ctx context.Context, name string) error {
	a.mu.Lock()
	unmade := slices.Clone(a.unmade)
	a.mu.Unlock()
	for _, s := range unmade {
		if s.Name != name {
			continue
		}
		if err := a.undo(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// takeBack records that the call of a step did not happen. If this fails, TakeBack tries it again.
func (a *Attempt) takeBack(ctx context.Context, s *delivery.Step) error {
	err := a.undo(ctx, s)
	if err != nil {
		a.notMade(s)
	}
	return err
}

func (a *Attempt) undo(ctx context.Context, s *delivery.Step) error {
	return a.note(ctx, func() error { return a.cfg.Receipts.Undo(context.WithoutCancel(ctx), s) })
}

// notMade keeps for TakeBack that the call of a step did not happen.
func (a *Attempt) notMade(s *delivery.Step) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unmade = append(a.unmade, s)
}

// run runs a step and returns its result.
func (a *Attempt) run(ctx context.Context, s *delivery.Step, f Call, o Options) ([]byte, error) {
	//guard:an-attempt-knows-which-calls-it-did-not-make remove
	if err := a.takeBackAll(ctx, s.Name); err != nil {
		return nil, err
	}
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
func (a *Attempt) invoke(ctx context.Context, s *delivery.Step, f Call, o Options) (result []byte, err error) {
	if ctx.Err() != nil { // the context ended while the start was being recorded
		//guard:a-call-that-was-not-made-is-taken-back-at-once do a.notMade(s); return nil, context.Cause(ctx)
		return nil, errors.Join(context.Cause(ctx), a.takeBack(ctx, s))
	}
	value, err := f(ctx, s.VendorKey)
	answered := err == nil
	if answered {
		s.Result, err = encode(value)
	}
	switch {
	case err == nil:
		err = a.note(ctx, func() error { return a.cfg.Receipts.Finish(s) })
		return s.Result, err // if there were two calls, the result that was recorded first counts
	//guard:a-call-whose-result-does-not-encode-was-made 1 true
	case !answered && vendorcall.IsNotApplied(ctx, err):
		return nil, errors.Join(err, a.takeBack(ctx, s))
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
	value, found, err := o.Lookup(ctx, s.Unsure.Key)
	if err == nil && found {
		result, err = encode(value)
	}
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
		sleep.For(ctx, a.cfg.Outage.Delay(failures))
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
