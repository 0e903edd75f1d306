package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
)

// trials runs handlers dry: in a transaction that is rolled back, for an operator who
// wants to know what a replay would do. It implements postroom.Runner.
type trials struct {
	inbox *Inbox
	asked chan ledger.Trial
}

// mostTrials is how many dry runs a process takes at a time.
const mostTrials = 8

func newTrials(in *Inbox) *trials {
	return &trials{inbox: in, asked: make(chan ledger.Trial, mostTrials)}
}

// room is how many more may be taken.
func (t *trials) room() int { return cap(t.asked) - len(t.asked) }

// take hands over what was taken.
func (t *trials) take(asked []ledger.Trial) {
	for _, tr := range asked {
		t.asked <- tr // no more than there is room for are taken, and by one goroutine
	}
}

// Run makes dry runs until ctx ends.
func (t *trials) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case tr := <-t.asked:
			t.answer(ctx, tr, t.try(ctx, tr))
		}
	}
}

// Verdicts of a dry run.
const (
	trialPasses   = "passes"   // the handler did its work, and the transaction could have been committed
	trialFails    = "fails"    // it failed
	trialExternal = "external" // it calls other systems: it is not run
	trialSuspect  = "suspect"  // it may end the process: it is not run
	trialGone     = "gone"     // it is not held any more
	trialBroken   = "broken"   // the dry run itself could not be made
)

// finding is what came of a dry run, as deadletter reads it.
type finding struct {
	Verdict string          `json:"verdict"`
	Class   string          `json:"class,omitempty"`
	Text    string          `json:"text,omitempty"`
	Took    time.Duration   `json:"took_ns,omitempty"`
	Changes []ledger.Change `json:"changes,omitempty"`
}

// try runs an event dry.
func (t *trials) try(ctx context.Context, tr ledger.Trial) finding {
	c := t.inbox.byName(tr.Handler)
	cl, err := t.load(ctx, tr)
	switch {
	case err != nil:
		return broken(err)
	case cl == nil:
		return finding{Verdict: trialGone}
	case c.external != nil:
		return finding{Verdict: trialExternal}
	case cl.Solitary:
		return finding{Verdict: trialSuspect}
	case cl.fault != nil:
		return finding{Verdict: trialFails, Class: cl.fault.Class, Text: cl.fault.Text}
	}
	t.inbox.alone.RLock()
	defer t.inbox.alone.RUnlock()
	tx, err := c.ledger.Begin(ctx)
	if tx == nil {
		return broken(err)
	}
	f := finding{Verdict: trialPasses}
	var before []ledger.Change
	if err == nil {
		before, err = t.inbox.db.Changes(ctx, tx)
	}
	if err == nil {
		began := time.Now()
		err = c.invoker.Run(ctx, tx, func(ctx context.Context) error { return c.handler.apply.Handle(ctx, tx, cl.Event) })
		f.Took = time.Since(began)
	}
	if err == nil {
		err = t.inbox.db.CouldCommit(ctx, tx)
	}
	if err == nil {
		f.Changes, err = t.inbox.db.Changes(ctx, tx)
		f.Changes = since(before, f.Changes)
	}
	if !delivery.IsAbandoned(err) {
		tx.Abort(ctx)
	}
	if err != nil {
		switch committed, asking := t.inbox.db.WasCommitted(ctx, tx.ID); {
		case asking != nil:
			return broken(errors.Join(err, asking))
		case committed: // it was no dry run
			err = &delivery.EndedError{Committed: true}
		}
		why := delivery.FailureOf(err)
		return finding{Verdict: trialFails, Class: why.Class, Text: why.Text, Took: f.Took}
	}
	return f
}

func broken(err error) finding {
	return finding{Verdict: trialBroken, Text: guard.Clean(err.Error(), guard.MaxText)}
}

// load reads the event. It is nil where it is not held any more.
func (t *trials) load(ctx context.Context, tr ledger.Trial) (*claim, error) {
	rows, err := t.inbox.db.Try(ctx, tr)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // nothing is what there is
	}
	return t.inbox.runner.claims(rows, time.Now())[0], nil
}

// since is what was changed between two measurements. The server counts for a while
// also what earlier transactions of the connection have changed.
func since(before, after []ledger.Change) (changes []ledger.Change) {
	earlier := make(map[string]ledger.Change, len(before))
	for _, b := range before {
		earlier[b.Kind+" "+b.Name] = b
	}
	for _, c := range after {
		b := earlier[c.Kind+" "+c.Name]
		c.Inserted, c.Updated, c.Deleted = c.Inserted-b.Inserted, c.Updated-b.Updated, c.Deleted-b.Deleted
		if c.Inserted != 0 || c.Updated != 0 || c.Deleted != 0 {
			changes = append(changes, c)
		}
	}
	return changes
}

// answer tells whoever asked.
func (t *trials) answer(ctx context.Context, tr ledger.Trial, f finding) {
	text, err := json.Marshal(f)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, ledger.WritePatience)
		defer cancel()
		err = t.inbox.db.Tried(ctx, tr.ID, string(text))
	}
	if err != nil {
		t.inbox.cfg.Logger.WarnContext(ctx, "outcome of a dry run could not be told", "handler", tr.Handler, "error", err)
	}
}
