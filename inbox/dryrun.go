package inbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postroom/postroom/inbox/internal/claims"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
)

// dryRuns runs handlers dry: in a transaction that is rolled back, for an operator who
// wants to know what a replay would do. It implements postroom.Runner.
type dryRuns struct {
	inbox *Inbox
	asked chan delivery.DryRun
}

// mostDryRuns is how many dry runs a process takes at a time.
const mostDryRuns = 8

func newDryRuns(in *Inbox) *dryRuns {
	return &dryRuns{inbox: in, asked: make(chan delivery.DryRun, mostDryRuns)}
}

// Room is how many more may be taken.
func (t *dryRuns) Room() int { return cap(t.asked) - len(t.asked) }

// Take hands over what was taken.
func (t *dryRuns) Take(asked []delivery.DryRun) {
	for _, tr := range asked {
		t.asked <- tr // no more than there is room for are taken, and by one goroutine
	}
}

// Run makes dry runs until ctx ends.
func (t *dryRuns) Run(ctx context.Context) error {
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
	dryRunPasses   = "passes"   // the handler did its work, and the transaction could have been committed
	dryRunFails    = "fails"    // it failed
	dryRunExternal = "external" // it calls other systems: it is not run
	dryRunIsolated = "isolated" // it may end the process: it is not run
	dryRunGone     = "gone"     // it is not held any more
	dryRunBroken   = "broken"   // the dry run itself could not be made
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
func (t *dryRuns) try(ctx context.Context, tr delivery.DryRun) finding {
	c := t.inbox.byName(tr.Handler)
	cl, err := t.load(ctx, tr)
	switch {
	case err != nil:
		return broken(err)
	case cl == nil:
		return finding{Verdict: dryRunGone}
	case c.external != nil:
		return finding{Verdict: dryRunExternal}
	case cl.Solitary:
		return finding{Verdict: dryRunIsolated}
	case cl.Fault != nil:
		return finding{Verdict: dryRunFails, Class: cl.Fault.Class, Text: cl.Fault.Text}
	}
	t.inbox.alone.RLock()
	defer t.inbox.alone.RUnlock()
	found, err := c.ledger.DryRun(ctx, func(ctx context.Context, tx *ledger.Tx) error {
		return c.invoker.Run(ctx, tx, func(ctx context.Context) error { return c.handler.apply.Handle(ctx, tx, cl.Event) })
	})
	switch {
	case err != nil:
		return broken(err)
	case found.Err != nil:
		why := delivery.FailureOf(found.Err)
		return finding{Verdict: dryRunFails, Class: why.Class, Text: why.Text, Took: found.Took}
	}
	return finding{Verdict: dryRunPasses, Took: found.Took, Changes: found.Changes}
}

func broken(err error) finding {
	return finding{Verdict: dryRunBroken, Text: guard.Clean(err.Error(), guard.MaxText)}
}

// load reads the event. It is nil if it is not held any more.
func (t *dryRuns) load(ctx context.Context, tr delivery.DryRun) (*claims.Claim, error) {
	rows, err := ledger.Claims{DB: t.inbox.db}.Try(ctx, tr)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // nothing is what there is
	}
	return t.inbox.byName(tr.Handler).retries.queue.Claims(rows, time.Now())[0], nil
}

// answer tells whoever asked.
func (t *dryRuns) answer(ctx context.Context, tr delivery.DryRun, f finding) {
	text, err := json.Marshal(f)
	if err == nil {
		err = ledger.Claims{DB: t.inbox.db}.Tried(ctx, tr.ID, string(text))
	}
	if err != nil {
		t.inbox.cfg.Logger.WarnContext(ctx, "outcome of a dry run could not be told", "handler", tr.Handler, "error", err)
	}
}
