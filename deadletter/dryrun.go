package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PreviewGroup says what a replay would do with the events of one handler and type. Its numbers
// count events, except KeysWaiting.
type PreviewGroup struct {
	Handler     string `json:"handler"`
	Type        string `json:"type"`
	Events      int64  `json:"events"`       // events that the replay would release
	InReplay    int64  `json:"in_replay"`    // events that are in another running replay; this replay would skip them
	KeysWaiting int64  `json:"keys_waiting"` // keys with later events that wait for one of these events

	Isolated   int64 `json:"isolated"`    // events that may crash a process; each of them runs alone
	StepsDone  int64 `json:"steps_done"`  // events with steps that are done; the replay does not call these steps again
	StepsOpen  int64 `json:"steps_open"`  // events with calls of unknown outcome: the handler repeats a call with the same key or asks the vendor; if it can do neither, the event dies again
	Committed  int64 `json:"committed"`   // events whose handler ended its transaction itself: if it committed, a replay repeats the effects
	TooOld     int64 `json:"too_old"`     // outgoing events that are too old for their consumers: use ReplayOptions.AsNew
	HasProcess bool  `json:"has_process"` // a live process runs the handler
}

// DryRun is the result of one dry run of an event.
type DryRun struct {
	ID            int64  `json:"id"`
	Handler       string `json:"handler"`
	EventID       string `json:"event_id"`
	Type          string `json:"type"`
	Cause         string `json:"cause,omitempty"`
	PreviousClass string `json:"previous_class"` // the class of the failure after which the event was dead

	Verdict DryRunVerdict `json:"verdict"`
	Class   string        `json:"class,omitempty"` // the class of the failure
	Text    string        `json:"text,omitempty"`
	Took    time.Duration `json:"-"`                 // in JSON: took_seconds
	Changes []TableChange `json:"changes,omitempty"` // the changes that the handler would have committed
	Steps   []Step        `json:"steps,omitempty"`   // for an external handler: which steps are done, and which are open
}

// MarshalJSON writes durations in seconds.
func (r DryRun) MarshalJSON() ([]byte, error) {
	type fields DryRun
	return json.Marshal(struct {
		fields

		TookSeconds float64 `json:"took_seconds,omitzero"`
	}{fields(r), r.Took.Seconds()})
}

// DryRunVerdict says how a dry run ended.
type DryRunVerdict string

// The verdicts.
const (
	DryRunPasses     DryRunVerdict = "passes"     // the handler succeeded, and its transaction could have been committed
	DryRunFails      DryRunVerdict = "fails"      // the handler failed again
	DryRunExternal   DryRunVerdict = "external"   // the handler calls other systems, so no process ran it; Steps says which calls are done
	DryRunIsolated   DryRunVerdict = "isolated"   // the event may crash the process, so no process ran it
	DryRunCommits    DryRunVerdict = "commits"    // the handler ended its transaction itself, so that a dry run could not be rolled back: no process ran it
	DryRunGone       DryRunVerdict = "gone"       // the event is no longer held
	DryRunBroken     DryRunVerdict = "broken"     // the dry run itself failed
	DryRunUnanswered DryRunVerdict = "unanswered" // no process answered in time
)

// classTransaction is the class of an event whose handler ended its transaction with a statement of its
// own.
const classTransaction = "transaction"

// TableChange says how many rows of a table a handler would have changed, or how many events of a
// type it would have written.
type TableChange struct {
	Kind     string `json:"kind"` // table or event
	Name     string `json:"name"`
	Inserted int64  `json:"inserted,omitempty"`
	Updated  int64  `json:"updated,omitempty"`
	Deleted  int64  `json:"deleted,omitempty"`
}

// dryRunner asks processes for dry runs, and waits for their results.
type dryRunner struct {
	*database

	asked map[int64]*DryRun
}

// choose returns the events to try, each without a result.
func (s dryRunner) choose(ctx context.Context, f Filter, o DryRunOptions) ([]DryRun, error) {
	rows, _ := s.db.Query(ctx, s.sql.DryRunChoose, f.arguments(given(o.Limit), o.Each)...) // CollectRows reports the error
	trials, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t DryRun, err error) {
		var cause *string
		err = row.Scan(&t.ID, &t.Handler, &t.EventID, &t.Type, &t.PreviousClass, &cause)
		t.Cause, t.Verdict = value(cause), DryRunUnanswered
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("deadletter: choose events for dry runs: %w", s.explain(err))
	}
	return trials, nil
}

// wait waits for the results. It does not cancel a statement at the timeout, because pgx would then
// close the connection, which the method remove still needs.
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

// readResults reads the results so far, and returns how many are missing.
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
		answer := struct {
			*DryRun

			Took *time.Duration `json:"took_ns"` // as the process wrote it
		}{t, &t.Took}
		if err := json.Unmarshal(outcome, &answer); err != nil {
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

// remove deletes the requests for dry runs.
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
