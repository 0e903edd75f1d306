package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
)

// trials runs handlers dry: in a transaction that is rolled back, for an operator who
// wants to know what a replay would do. It implements postroom.Runner.
type trials struct {
	inbox *Inbox
	asked chan trial
}

// trial is a dry run that an operator asked for.
type trial struct {
	id      int64
	handler string
	held    int64
}

// mostTrials is how many dry runs a process takes at a time.
const mostTrials = 8

func newTrials(in *Inbox) *trials { return &trials{inbox: in, asked: make(chan trial, mostTrials)} }

// room is how many more may be taken.
func (t *trials) room() int { return cap(t.asked) - len(t.asked) }

// take hands over what was taken.
func (t *trials) take(rows pgx.Rows) error {
	var tr trial
	_, err := pgx.ForEachRow(rows, []any{&tr.id, &tr.handler, &tr.held}, func() error {
		t.asked <- tr // no more than there is room for are taken, and by one goroutine
		return nil
	})
	return err
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
	Verdict string        `json:"verdict"`
	Class   string        `json:"class,omitempty"`
	Text    string        `json:"text,omitempty"`
	Took    time.Duration `json:"took_ns,omitempty"`
	Changes []change      `json:"changes,omitempty"`
}

// change is what the handler would have changed in a table, or which events it would
// have written.
type change struct {
	Kind     string `json:"kind"` // table, event
	Name     string `json:"name"`
	Inserted int64  `json:"inserted,omitempty"`
	Updated  int64  `json:"updated,omitempty"`
	Deleted  int64  `json:"deleted,omitempty"`
}

// try runs an event dry.
func (t *trials) try(ctx context.Context, tr trial) finding {
	c := t.inbox.byName(tr.handler)
	cl, err := t.load(ctx, tr)
	switch {
	case err != nil:
		return broken(err)
	case cl == nil:
		return finding{Verdict: trialGone}
	case c.external != nil:
		return finding{Verdict: trialExternal}
	case cl.solitary:
		return finding{Verdict: trialSuspect}
	case cl.fault != nil:
		return finding{Verdict: trialFails, Class: cl.fault.Class, Text: cl.fault.Text}
	}
	t.inbox.alone.RLock()
	defer t.inbox.alone.RUnlock()
	tx, _, err := t.inbox.begin(ctx, c.sub.Isolation, statement{sql: t.inbox.sql.limits, args: []any{c.idleLimit}})
	if tx == nil {
		return broken(err)
	}
	f := finding{Verdict: trialPasses}
	var before []change
	if err == nil {
		before, err = t.measure(ctx, tx)
	}
	if err == nil {
		began := time.Now()
		err = c.invoker.Run(ctx, tx, func(ctx context.Context) error { return c.handler.apply.Handle(ctx, tx, cl.Event) })
		f.Took = time.Since(began)
	}
	if err == nil {
		err = tx.isStill(ctx, t.inbox.sql.still)
	}
	if err == nil { // what would come to light at the commit
		_, err = tx.Tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE")
	}
	if err == nil {
		err = tx.asOwn(ctx)
	}
	if err == nil {
		f.Changes, err = t.measure(ctx, tx)
		f.Changes = since(before, f.Changes)
	}
	if !delivery.IsAbandoned(err) {
		tx.rollback(ctx)
	}
	if err != nil {
		switch committed, asking := t.inbox.wasCommitted(ctx, tx.id); {
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
func (t *trials) load(ctx context.Context, tr trial) (*claim, error) {
	rows, _ := t.inbox.pool.Query(ctx, t.inbox.sql.try, tr.held, tr.handler) // collect reports the error
	var found []*claim
	if err := t.inbox.runner.collect(&found, time.Now())(rows); err != nil {
		return nil, fmt.Errorf("read held event: %w", err)
	}
	if len(found) == 0 {
		return nil, nil //nolint:nilnil // nothing is what there is
	}
	return found[0], nil
}

// since is what was changed between two measurements. The server counts for a while
// also what earlier transactions of the connection have changed.
func since(before, after []change) (changes []change) {
	earlier := make(map[string]change, len(before))
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

// measure returns what the connection has changed lately, and the transaction with it.
func (t *trials) measure(ctx context.Context, tx *tx) ([]change, error) {
	rows, _ := tx.Tx.Query(ctx, t.inbox.sql.changes) // CollectRows reports the error
	changes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[change])
	if err != nil {
		return nil, fmt.Errorf("ask what was changed: %w", err)
	}
	return changes, nil
}

// answer tells whoever asked.
func (t *trials) answer(ctx context.Context, tr trial, f finding) {
	text, err := json.Marshal(f)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, writePatience)
		defer cancel()
		_, err = t.inbox.pool.Exec(ctx, t.inbox.sql.tried, tr.id, string(text))
	}
	if err != nil {
		t.inbox.cfg.Logger.WarnContext(ctx, "outcome of a dry run could not be told", "handler", tr.handler, "error", err)
	}
}
