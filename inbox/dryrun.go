package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dryrun"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// dryRun runs a handler in a transaction that is rolled back, for an operator who wants to
// know what a replay would do.
func dryRun(ctx context.Context, c *loop, h delivery.HeldEvent) (dryrun.Finding, error) {
	cl := c.retries.queue.Claims([]delivery.HeldEvent{h}, time.Now())[0]
	switch {
	case c.external != nil:
		return dryrun.Finding{Verdict: dryrun.External}, nil
	case cl.Solitary:
		return dryrun.Finding{Verdict: dryrun.Isolated}, nil
	case cl.Fault != nil:
		return dryrun.Finding{Verdict: dryrun.Fails, Class: cl.Fault.Class, Text: cl.Fault.Text}, nil
	}
	c.inbox.alone.RLock()
	defer c.inbox.alone.RUnlock()
	found, err := c.ledger.DryRun(ctx, func(ctx context.Context, tx *ledger.Tx) error {
		return c.invoker.Run(ctx, tx, func(ctx context.Context, tx pgx.Tx) error { return c.handler.apply.Handle(ctx, tx, cl.Event) })
	})
	switch {
	case err != nil:
		return dryrun.Finding{}, err
	case found.Err != nil:
		why := delivery.FailureOf(found.Err)
		return dryrun.Finding{Verdict: dryrun.Fails, Class: why.Class, Text: why.Text, Took: found.Took}, nil
	}
	return dryrun.Finding{Verdict: dryrun.Passes, Took: found.Took, Changes: found.Changes}, nil
}
