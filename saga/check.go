package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/sameschema"
	"github.com/postroom/postroom/schema"
)

// outline is a step in the form that the table saga_definition stores.
type outline struct {
	Name   string   `json:"name"`
	Do     string   `json:"do,omitempty"` // the type of the command, or "local"
	Done   []string `json:"done,omitempty"`
	Failed []string `json:"failed,omitempty"`
	Undo   string   `json:"undo,omitempty"`
	Undone []string `json:"undone,omitempty"`
	Within float64  `json:"within,omitempty"` // in seconds
}

// localStep is the Do or Undo of a step that runs a local function.
const localStep = "local"

// outlines describes the steps of a plan.
func (p *plan[S]) outlines() []outline {
	var all []outline
	for _, s := range p.steps {
		all = append(all, outline{
			Name: s.Name, Do: s.Do.describe(), Done: s.Done.types(), Failed: s.Failed.types(),
			Undo: s.Undo.describe(), Undone: s.Undone.types(), Within: s.Within.Seconds(),
		})
	}
	return all
}

func (a Action[S]) describe() string {
	if a.local != nil {
		return localStep
	}
	return a.eventType
}

func (r Reply[S]) types() (all []string) {
	for _, a := range r.answers {
		all = append(all, a.eventType)
	}
	return all
}

// problem returns what is wrong with a change of a step, or an empty text. A change is wrong if
// instances that wait for the step, or that another program wrote, could not continue. If it
// accepts a change, it also accepts the reverse, so that you can go back to the earlier program.
func (o outline) problem(now outline) string {
	if o.Name != now.Name {
		return fmt.Sprintf("is %s and was %s", now.Name, o.Name)
	}
	for _, r := range []struct {
		what        string
		before, now []string
	}{{"Done", o.Done, now.Done}, {"Failed", o.Failed, now.Failed}, {"Undone", o.Undone, now.Undone}} {
		inBoth := slices.ContainsFunc(r.before, func(eventType string) bool { return slices.Contains(r.now, eventType) })
		//guard:a-program-that-waits-for-other-replies 2 false
		if !inBoth && len(r.before)+len(r.now) > 0 {
			return fmt.Sprintf("(%s) has other types for %s than before", o.Name, r.what)
		}
	}
	if (o.Undo == "") != (now.Undo == "") {
		return fmt.Sprintf("(%s) has an Undo in one program and no Undo in the other", o.Name)
	}
	return ""
}

// Check returns an error if the definition has faults, if tables are missing, or if another program
// recorded the same version with other steps or replies. It also returns an error if an instance of
// an older version has not ended and Older lacks this version. Check accepts instances of newer
// versions: a newer program runs them. The inbox calls Check, which also records the definition, and
// returns an error if the saga's outbox has another schema than the inbox.
func (g *Saga[S]) Check(ctx context.Context) error {
	if g.err != nil {
		return postroom.Unrecoverable(g.err)
	}
	//guard:a-saga-has-the-schema-of-its-inbox false
	if err := sameschema.Check(ctx, "its outbox", g.table.schema); err != nil {
		return fmt.Errorf("saga %s: %w", g.def.Name, err)
	}
	err := g.check(ctx)
	if err != nil {
		return fmt.Errorf("saga %s: %w", g.def.Name, g.table.explain(err, g.pool))
	}
	return nil
}

// CheckSubscription returns an error if the subscription is ordered. The inbox calls it.
func (g *Saga[S]) CheckSubscription(_ []string, order string) error {
	//guard:no-deadline-waits-behind-a-dead-reply false
	if order != "Unordered" {
		return fmt.Errorf("saga %s: its subscription has Order %s, want Unordered: otherwise a dead reply would hold up the deadline of its key", g.def.Name, order)
	}
	return nil
}

func (g *Saga[S]) check(ctx context.Context) error {
	if err := schema.Require(ctx, g.pool, g.table.schema); err != nil {
		return err
	}
	versions := slices.Sorted(maps.Keys(g.plans))
	var faults []error
	err := pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		faults = nil
		//guard:stuck-is-found-after-it-became-longer remove
		if _, err := tx.Exec(ctx, g.table.sql.StuckLater, g.def.Name, g.def.Stuck); err != nil {
			return err
		}
		for _, version := range versions {
			fault, err := g.define(ctx, tx, g.plans[version])
			if err != nil {
				return err
			}
			faults = append(faults, fault)
		}
		_, err := tx.Exec(ctx, g.table.sql.Stuck, g.def.Name, g.def.Version, g.def.Stuck)
		return err
	})
	if err != nil {
		return fmt.Errorf("record the definition: %w", err)
	}
	rows, _ := g.pool.Query(ctx, g.table.sql.Unended, g.def.Name, g.def.Version, versions) // ForEachRow reports the error
	var version int
	var key string
	_, err = pgx.ForEachRow(rows, []any{&version, &key}, func() error {
		faults = append(faults, fmt.Errorf("key %s runs with version %d, which this program does not know: add the definition to Older", key, version))
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for instances of other versions: %w", err)
	}
	if err := errors.Join(faults...); err != nil {
		return postroom.Unrecoverable(err)
	}
	return nil
}

// define records a version. If its steps do not fit those recorded, it returns a fault.
func (g *Saga[S]) define(ctx context.Context, tx pgx.Tx, p *plan[S]) (fault, err error) {
	steps, err := json.Marshal(p.outlines())
	if err != nil {
		return nil, fmt.Errorf("encode the steps: %w", err)
	}
	var before []outline
	err = tx.QueryRow(ctx, g.table.sql.Defined, g.def.Name, p.version).Scan(&before)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	after := p.outlines()
	//guard:a-version-keeps-its-steps = @1.1 > @2.2
	if len(before) > 0 && len(before) != len(after) {
		return fmt.Errorf("version %d has %d steps and had %d: raise Version and keep the previous definition in Older", p.version, len(after), len(before)), nil
	}
	for i := range min(len(before), len(after)) {
		if problem := before[i].problem(after[i]); problem != "" {
			return fmt.Errorf("version %d: step %d %s: raise Version and keep the previous definition in Older", p.version, i+1, problem), nil
		}
	}
	_, err = tx.Exec(ctx, g.table.sql.Define, g.def.Name, p.version, string(steps), g.def.Stuck, p.prefix)
	return nil, err
}
