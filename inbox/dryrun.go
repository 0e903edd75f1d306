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

// dryRuns makes dry runs: it runs a handler in a transaction that is rolled back, for an
// operator who wants to know what a replay would do. It implements postroom.Runner.
type dryRuns struct {
	inbox *Inbox
	asked chan delivery.DryRun
}

// mostDryRuns is how many dry runs a process takes at a time.
const mostDryRuns = 8

func newDryRuns(in *Inbox) *dryRuns {
	return &dryRuns{inbox: in, asked: make(chan delivery.DryRun, mostDryRuns)}
}

// Room returns how many more dry runs can be taken.
func (t *dryRuns) Room() int { return cap(t.asked) - len(t.asked) }

// Take queues the dry runs that this process took.
func (t *dryRuns) Take(asked []delivery.DryRun) {
	for _, tr := range asked {
		t.asked <- tr // does not block: one goroutine takes them, and no more than Room
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
	dryRunPasses   = "passes"   // the handler succeeded, and the transaction could have been committed
	dryRunFails    = "fails"    // it failed
	dryRunExternal = "external" // not run: the handler calls other systems
	dryRunIsolated = "isolated" // not run: the event may end the process
	dryRunGone     = "gone"     // the event is not held any more
	dryRunBroken   = "broken"   // the dry run itself could not be made
)

// finding is the result of a dry run. Package deadletter reads it.
type finding struct {
	Verdict string          `json:"verdict"`
	Class   string          `json:"class,omitempty"`
	Text    string          `json:"text,omitempty"`
	Took    time.Duration   `json:"took_ns,omitempty"`
	Changes []ledger.Change `json:"changes,omitempty"`
}

// try makes one dry run.
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

// load reads the event, and returns nil if it is not held any more.
func (t *dryRuns) load(ctx context.Context, tr delivery.DryRun) (*claims.Claim, error) {
	rows, err := ledger.Claims{DB: t.inbox.db}.Try(ctx, tr)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // not an error: it is not held any more
	}
	return t.inbox.byName(tr.Handler).retries.queue.Claims(rows, time.Now())[0], nil
}

// answer records the finding for the operator who asked.
func (t *dryRuns) answer(ctx context.Context, tr delivery.DryRun, f finding) {
	text, err := json.Marshal(f)
	if err == nil {
		err = ledger.Claims{DB: t.inbox.db}.Tried(ctx, tr.ID, string(text))
	}
	if err != nil {
		t.inbox.cfg.Logger.WarnContext(ctx, "result of a dry run not recorded", "handler", tr.Handler, "error", err)
	}
}
