package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PreviewGroup says what a replay would do with the events of a handler and type.
type PreviewGroup struct {
	Handler     string `json:"handler"`
	Type        string `json:"type"`
	Events      int64  `json:"events"`       // it would release
	InReplay    int64  `json:"in_replay"`    // are part of another replay that runs, and left out
	KeysWaiting int64  `json:"keys_waiting"` // wait for one of them, and go on when it is done

	Isolated   int64 `json:"isolated"`    // may have ended a process: they run alone
	StepsDone  int64 `json:"steps_done"`  // have calls that are done, and are not made again
	StepsOpen  int64 `json:"steps_open"`  // have calls of unknown outcome: the vendor is asked by their key, or they die again
	TooOld     int64 `json:"too_old"`     // outgoing ones that their consumers would not take: replay them as new
	HasProcess bool  `json:"has_process"` // a process lives that has the handler
}

// DryRun is what came of running one event dry.
type DryRun struct {
	ID            int64  `json:"id"`
	Handler       string `json:"handler"`
	EventID       string `json:"event_id"`
	Type          string `json:"type"`
	Cause         string `json:"cause,omitempty"`
	PreviousClass string `json:"previous_class"` // the class of the failure that killed it

	Verdict DryRunVerdict `json:"verdict"`
	Class   string        `json:"class,omitempty"` // of the failure
	Text    string        `json:"text,omitempty"`
	Took    time.Duration `json:"took_ns,omitempty"`
	Changes []TableChange `json:"changes,omitempty"` // what it would have committed
	Steps   []Step        `json:"steps,omitempty"`   // of an external handler: what is done, and what is open
}

// DryRunVerdict says how a dry run went.
type DryRunVerdict string

// Verdicts.
const (
	DryRunPasses     DryRunVerdict = "passes"     // the handler did its work, and the transaction could have been committed
	DryRunFails      DryRunVerdict = "fails"      // it fails again
	DryRunExternal   DryRunVerdict = "external"   // it calls other systems, and is not run: Steps says which calls are done
	DryRunIsolated   DryRunVerdict = "isolated"   // it may end the process, and is not run
	DryRunGone       DryRunVerdict = "gone"       // it is not held any more
	DryRunBroken     DryRunVerdict = "broken"     // the dry run could not be made
	DryRunUnanswered DryRunVerdict = "unanswered" // no process took it, or none told in time
)

// TableChange is what a handler would have changed in a table, or the events of a type
// that it would have written.
type TableChange struct {
	Kind     string `json:"kind"` // table or event
	Name     string `json:"name"`
	Inserted int64  `json:"inserted,omitempty"`
	Updated  int64  `json:"updated,omitempty"`
	Deleted  int64  `json:"deleted,omitempty"`
}

// dryRunner is what was asked of processes.
type dryRunner struct {
	*database

	asked map[int64]*DryRun
}

// choose chooses what is tried.
func (s dryRunner) choose(ctx context.Context, f Filter, o ReplayOptions, each int) ([]DryRun, error) {
	rows, _ := s.db.Query(ctx, s.sql.DryRunChoose, f.arguments(o.limit(), each)...) // CollectRows reports the error
	trials, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t DryRun, err error) {
		var cause *string
		err = row.Scan(&t.ID, &t.Handler, &t.EventID, &t.Type, &t.PreviousClass, &cause)
		t.Cause, t.Verdict = value(cause), DryRunUnanswered
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("deadletter: choose events to try: %w", s.explain(err))
	}
	return trials, nil
}

// wait waits for the answers. The time to wait ends no statement: that would close a
// connection which is needed afterwards.
func (s dryRunner) wait(ctx context.Context, wait time.Duration) error {
	ids := make([]int64, 0, len(s.asked))
	for id := range s.asked {
		ids = append(ids, id)
	}
	end, tick := time.NewTimer(wait), time.NewTicker(25*time.Millisecond)
	defer end.Stop()
	defer tick.Stop()
	for {
		open, err := s.readResults(ctx, ids)
		if err != nil && ctx.Err() == nil || open == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return nil
		case <-tick.C:
		}
	}
}

// readResults reads what was told so far, and returns how many are open.
func (s dryRunner) readResults(ctx context.Context, ids []int64) (open int, err error) {
	rows, _ := s.db.Query(ctx, s.sql.DryRunResults, ids) // ForEachRow reports the error
	var id int64
	var by *string
	var outcome []byte
	open = len(ids)
	var external []*DryRun
	_, err = pgx.ForEachRow(rows, []any{&id, &by, &outcome}, func() error {
		if outcome == nil {
			return nil
		}
		open--
		t := s.asked[id]
		if err := json.Unmarshal(outcome, t); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if t.Verdict == DryRunExternal && t.Steps == nil {
			external = append(external, t)
		}
		return nil
	})
	if err != nil {
		return open, fmt.Errorf("deadletter: read dry runs: %w", s.explain(err))
	}
	for _, t := range external {
		r := s.reader(s.db)
		w, err := r.details(ctx, t.ID)
		if err == nil {
			t.Steps, err = r.steps(ctx, w.Handler, w.DedupeKey)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return open, fmt.Errorf("deadletter: %w", s.explain(err))
		}
	}
	return open, nil
}

// remove removes what was asked for.
func (s dryRunner) remove(ctx context.Context) error {
	ids := make([]int64, 0, len(s.asked))
	for id := range s.asked {
		ids = append(ids, id)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := s.db.Exec(ctx, s.sql.DryRunDelete, ids); err != nil {
		return fmt.Errorf("deadletter: remove dry runs: %w", s.explain(err))
	}
	return nil
}
