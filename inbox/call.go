package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
)

var (
	errStepName = errors.New("a step's name must have 1 to 128 bytes of UTF-8")
	errStepBusy = errors.New("this step is under way; steps of a handler have different names")
	errCallOver = errors.New("the attempt is over")
)

// NotDone says of an error that a step's function returns that the call did not
// happen: the connection was refused, the vendor answered that it rejects the
// request. The step is then as if it was not begun, also at a vendor that knows no
// keys. An error that may have come after the call happened, such as a timeout, must
// not be wrapped so. It returns nil where err is.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return &notDoneError{err}
}

type notDoneError struct{ err error }

func (e *notDoneError) Error() string { return e.err.Error() }
func (e *notDoneError) Unwrap() error { return e.err }

// ExternalHandler handles one event by calling other systems. See
// [Inbox.HandleExternal].
type ExternalHandler func(ctx context.Context, call *Call) error

// StepOption changes how one step is run.
type StepOption func(*stepOptions)

type stepOptions struct {
	window time.Duration
	lookup func(ctx context.Context, key string) (result []byte, found bool, err error)
}

// KeyWindow says for how long after a step's first call its vendor recognises the
// same key, in place of Subscription.KeyWindow.
func KeyWindow(d time.Duration) StepOption {
	return func(o *stepOptions) { o.window = d }
}

// Lookup asks the vendor whether a step happened, where that is not known and the
// key would not be recognised any more. It is given the key of the calls in
// question. Where it finds the step, result is what the step's function would have
// returned; where it does not, the step is called anew. Its error is that of the
// step.
func Lookup(f func(ctx context.Context, key string) (result []byte, found bool, err error)) StepOption {
	return func(o *stepOptions) { o.lookup = f }
}

// Call is one attempt of an external handler at an event. It is valid until the
// handler returns, and safe for concurrent use.
type Call struct {
	// Event is what is to be handled.
	Event postroom.Event

	// Attempt counts from 1.
	Attempt int

	claim    *claim
	instance string

	mu      sync.Mutex
	over    bool
	outage  bool          // a step could not be noted: the attempt says nothing about the event
	noting  int           // steps that are being noted
	since   time.Time     // since when some are
	noted   time.Duration // for how long some were, in all
	busy    map[string]struct{}
	settles []func(ctx context.Context, tx pgx.Tx) error
}

// Step calls another system once. f is given a key that is the same whenever this
// step of this event is called: 32 hexadecimal digits, for the vendor to recognise a
// repetition. That the step begins is noted before f is called, and that it is done,
// with its result, after f returned no error; from then on Step returns that result
// and does not call f any more, in whichever attempt and process.
//
// Where f was called before and nobody knows what came of it, because it returned an
// error or its process ended, Step calls it again with the same key while the vendor
// recognises that ([Subscription.KeyWindow], [KeyWindow]). After that it asks
// [Lookup], or returns [ErrOutcomeUnknown]; it never calls blindly. An error that f
// wraps in [NotDone] leaves no doubt behind.
//
// name says which step of the handler it is, and is the same in each attempt. The
// result is kept in the database, as long as the event's ledger row: a reference of
// the vendor's rather than a document.
func (c *Call) Step(ctx context.Context, name string, f func(ctx context.Context, key string) ([]byte, error), options ...StepOption) ([]byte, error) {
	if name == "" || guard.Clean(name, 128) != name {
		return nil, fmt.Errorf("step %.40q: %w", name, errStepName)
	}
	o := stepOptions{window: c.claim.c.sub.KeyWindow}
	for _, option := range options {
		option(&o)
	}
	if err := c.enter(name); err != nil {
		return nil, fmt.Errorf("step %s: %w", name, err)
	}
	defer c.leave(name)
	s := &ledger.Step{
		Handler: c.claim.c.sub.Name, Event: c.claim.Key, ID: c.claim.ID, Epoch: c.claim.Epoch,
		Name: name, Revision: c.claim.Revision, VendorKey: stepKey(c.instance, c.claim, name),
	}
	// A call that begins at the window's end may take as long as the handler may.
	s.Window = max(o.window-c.claim.c.sub.Timeout, 0)
	result, err := c.run(ctx, s, f, o)
	if err != nil {
		return nil, &delivery.WhileError{What: "step " + name, Err: err}
	}
	return result, nil
}

// OnSettle has f called in the transaction that settles the event, after the handler
// returned nil: effects in this database, and events to follow, are so committed
// once, with the event. f may be called again where that transaction has to be
// repeated. Its error is one of the handler. Functions are called in the order in
// which they were given.
func (c *Call) OnSettle(f func(ctx context.Context, tx pgx.Tx) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.settles = append(c.settles, f)
	}
}

func (c *Call) enter(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return errCallOver
	}
	if _, busy := c.busy[name]; busy {
		return errStepBusy
	}
	c.busy[name] = struct{}{}
	return nil
}

func (c *Call) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, name)
}

// end makes the call invalid, and returns what to run when it settles. A handler that
// was left behind while it waited for the database says nothing about its event, nor
// does one that ran out of time of which the database took half or more: what was left
// may have been too short for any vendor.
func (c *Call) end(err error) (settles []func(ctx context.Context, tx pgx.Tx) error, outage bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	waited := c.noted
	if c.noting > 0 {
		waited += time.Since(c.since)
	}
	short := err != nil && delivery.FailureOf(err).Class == delivery.ClassTimeout && waited >= c.claim.c.sub.Timeout/2
	return c.settles, c.outage || short || delivery.IsAbandoned(err) && c.noting > 0
}

// run brings a step to its result.
func (c *Call) run(ctx context.Context, s *ledger.Step, f func(ctx context.Context, key string) ([]byte, error), o stepOptions) ([]byte, error) {
	receipts := c.claim.c.inbox.receipts
	for {
		if err := c.note(ctx, func() error { return receipts.starting.Do(s) }); err != nil {
			return nil, err
		}
		switch s.Verdict {
		case ledger.VerdictDone:
			return s.Result, nil
		case ledger.VerdictLost:
			c.claim.lose()
			return nil, delivery.ErrSettled
		case ledger.VerdictCall:
			return c.invoke(ctx, s, f, o)
		case ledger.VerdictAgain:
		case ledger.VerdictUnknown:
			result, found, err := c.ask(ctx, s, o)
			if found || err != nil {
				return result, err
			}
		}
	}
}

// invoke calls the vendor, and notes what came of it.
func (c *Call) invoke(ctx context.Context, s *ledger.Step, f func(ctx context.Context, key string) ([]byte, error), o stepOptions) (result []byte, err error) {
	receipts, db := c.claim.c.inbox.receipts, c.claim.c.inbox.db
	if ctx.Err() != nil { // it came to an end while the start was noted
		return nil, errors.Join(context.Cause(ctx), db.UndoStep(context.WithoutCancel(ctx), s))
	}
	result, err = f(ctx, s.VendorKey)
	tree := guard.Tree(err) // which has an end, other than errors.As
	switch _, not := guard.As[*notDoneError](tree); {
	case err == nil:
		s.Result = result
		return result, c.note(ctx, func() error { return receipts.ending.Do(s) })
	case not:
		return nil, errors.Join(err, c.note(ctx, func() error { return db.UndoStep(context.WithoutCancel(ctx), s) }))
	case s.Window == 0 && o.lookup == nil && ctx.Err() == nil:
		return nil, &delivery.WhileError{What: ErrOutcomeUnknown.Error(), Matches: ErrOutcomeUnknown, Err: err} // and nothing can change that
	}
	return nil, err
}

// ask looks up what came of calls whose outcome is not known. Where they did not
// happen, the step is as if it was not begun.
func (c *Call) ask(ctx context.Context, s *ledger.Step, o stepOptions) (result []byte, found bool, err error) {
	if o.lookup == nil {
		return nil, false, fmt.Errorf("%w: with key %s at %s; ask the vendor, who may not recognise the key any more",
			ErrOutcomeUnknown, s.Unsure.Key, s.Unsure.Since.UTC().Format(time.RFC3339))
	}
	receipts := c.claim.c.inbox.receipts
	result, found, err = o.lookup(ctx, s.Unsure.Key)
	switch {
	case err != nil:
		return nil, false, &delivery.WhileError{What: "look up what came of it", Err: err}
	case !found:
		return nil, false, c.note(ctx, func() error { return c.claim.c.inbox.db.ForgetSteps(context.WithoutCancel(ctx), s) })
	}
	known := *s // as it was called then
	known.Result, known.VendorKey, known.Revision = result, s.Unsure.Key, s.Unsure.Revision
	return result, true, c.note(ctx, func() error { return receipts.ending.Do(&known) })
}

// note writes a receipt, and waits out an outage for as long as the attempt has.
func (c *Call) note(ctx context.Context, write func() error) error {
	c.count(1)
	defer c.count(-1)
	for failures := 1; ; failures++ {
		err := write()
		switch {
		case err == nil || !delivery.IsOutage(err) && !delivery.IsContention(err):
			return err
		case ctx.Err() != nil:
			c.mu.Lock()
			c.outage = true
			c.mu.Unlock()
			return err
		}
		sleep(ctx, outage.Delay(failures))
	}
}

// count says that so many more steps are being noted, and takes the time while any are.
func (c *Call) count(notes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noting > 0 {
		c.noted += time.Since(c.since)
	}
	c.noting += notes
	c.since = time.Now()
}
