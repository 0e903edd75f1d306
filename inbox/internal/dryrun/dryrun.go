// Package dryrun makes the dry runs that operators request, one after the other, and
// records their findings.
package dryrun

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
)

// Verdict is the result of a dry run.
type Verdict string

// The verdicts.
const (
	Passes   Verdict = "passes"   // the handler succeeded, and the transaction could have been committed
	Fails    Verdict = "fails"    // the handler failed
	External Verdict = "external" // not run: the handler calls other systems
	Isolated Verdict = "isolated" // not run: the event may end the process
	gone     Verdict = "gone"     // the event is no longer held
	broken   Verdict = "broken"   // the dry run itself could not be made
)

// Finding is the result of a dry run. Package deadletter reads it.
type Finding struct {
	Verdict Verdict           `json:"verdict"`
	Class   string            `json:"class,omitempty"`
	Text    string            `json:"text,omitempty"`
	Took    time.Duration     `json:"took_ns,omitempty"`
	Changes []delivery.Change `json:"changes,omitempty"`
}

// Runner makes dry runs, one after the other. It implements postroom.Runner.
type Runner struct {
	ledger ledger.Claims
	log    *slog.Logger
	run    func(ctx context.Context, h delivery.HeldEvent) (Finding, error)
	asked  chan delivery.DryRun
}

// The constant most is the largest number of dry runs that wait in a process.
const most = 8

// NewRunner returns a runner. The function run makes the dry run of an event. If run returns an
// error, the dry run could not be made.
func NewRunner(in ledger.Claims, log *slog.Logger, run func(ctx context.Context, h delivery.HeldEvent) (Finding, error)) *Runner {
	return &Runner{ledger: in, log: log, run: run, asked: make(chan delivery.DryRun, most)}
}

// Room returns how many more dry runs can be taken.
func (r *Runner) Room() int { return cap(r.asked) - len(r.asked) }

// Take queues requested dry runs for this process.
func (r *Runner) Take(asked []delivery.DryRun) {
	for _, a := range asked {
		r.asked <- a // does not block, because only one goroutine calls Take, with at most Room dry runs
	}
}

// Run makes dry runs until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case asked := <-r.asked:
			f, err := r.try(ctx, asked)
			if err != nil {
				f = Finding{Verdict: broken, Text: guard.Clean(err.Error(), guard.MaxText)}
			}
			r.answer(ctx, asked, f)
		}
	}
}

// try makes one dry run.
func (r *Runner) try(ctx context.Context, asked delivery.DryRun) (Finding, error) {
	rows, err := r.ledger.Try(ctx, asked)
	if err != nil {
		return Finding{}, err
	}
	if len(rows) == 0 {
		return Finding{Verdict: gone}, nil
	}
	return r.run(ctx, rows[0])
}

// answer stores the finding for the operator who requested the dry run.
func (r *Runner) answer(ctx context.Context, asked delivery.DryRun, f Finding) {
	text, err := json.Marshal(f)
	if err != nil {
		err = fmt.Errorf("encode the finding: %w", err)
	} else {
		err = r.ledger.Tried(ctx, asked.ID, string(text))
	}
	if err != nil {
		r.log.WarnContext(ctx, "result of a dry run not recorded", "handler", asked.Handler, "error", err)
	}
}
