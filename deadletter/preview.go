package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Forecast says what a replay would do with the events of a handler and type.
type Forecast struct {
	Handler string `json:"handler"`
	Type    string `json:"type"`
	Events  int64  `json:"events"` // it would release
	Busy    int64  `json:"busy"`   // are part of another replay that runs, and left out
	Keys    int64  `json:"keys"`   // wait for one of them, and go on when it is done

	Suspects  int64 `json:"suspects"`   // may have ended a process: they run alone
	StepsDone int64 `json:"steps_done"` // have calls that are done, and are not made again
	StepsOpen int64 `json:"steps_open"` // have calls of unknown outcome: the vendor is asked by their key, or they die again
	TooOld    int64 `json:"too_old"`    // outgoing ones that their consumers would not take: replay them as new
	Runs      bool  `json:"runs"`       // a process lives that has the handler
}

// Preview says what a replay would release. It runs nothing: see [Store.Try].
func (s *Store) Preview(ctx context.Context, f Filter, o Options) ([]Forecast, error) {
	o = o.defaults()
	if err := errors.Join(s.err, f.validate(), o.validate()); err != nil {
		return nil, err
	}
	var limit *int
	if o.Limit > 0 {
		limit = &o.Limit
	}
	rows, _ := s.db.Query(ctx, s.sql.preview, f.arguments(limit)...) // CollectRows reports the error
	forecasts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Forecast])
	if err != nil {
		return nil, fmt.Errorf("deadletter: preview: %w", s.advise(err))
	}
	return forecasts, nil
}

// Trial is what came of running one event dry.
type Trial struct {
	ID      int64  `json:"id"`
	Handler string `json:"handler"`
	EventID string `json:"event_id"`
	Type    string `json:"type"`
	Cause   string `json:"cause,omitempty"`
	Was     string `json:"was"` // the class of the failure that killed it

	Verdict Verdict       `json:"verdict"`
	Class   string        `json:"class,omitempty"` // of the failure
	Text    string        `json:"text,omitempty"`
	Took    time.Duration `json:"took_ns,omitempty"`
	Changes []TableChange `json:"changes,omitempty"` // what it would have committed
	Steps   []Step        `json:"steps,omitempty"`   // of an external handler: what is done, and what is open
}

// Verdict says how a dry run went.
type Verdict string

// Verdicts.
const (
	Passes     Verdict = "passes"     // the handler did its work, and the transaction could have been committed
	Fails      Verdict = "fails"      // it fails again
	External   Verdict = "external"   // it calls other systems, and is not run: Steps says which calls are done
	Suspect    Verdict = "suspect"    // it may end the process, and is not run
	Gone       Verdict = "gone"       // it is not held any more
	Broken     Verdict = "broken"     // the dry run could not be made
	Unanswered Verdict = "unanswered" // no process took it, or none told in time
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

// Try has events that match run dry: of each cause up to each, by a process that has the
// handler, in a transaction that checks its deferred constraints and is rolled back.
// Nothing stays of it but what no transaction takes back, as the next values of
// sequences. Handlers that call other systems are not run. It waits for the answers for
// as long as wait says; what is not answered by then says so.
func (s *Store) Try(ctx context.Context, f Filter, o Options, each int, wait time.Duration) (trials []Trial, err error) {
	o = o.defaults()
	if err := errors.Join(s.err, f.validate(), o.validate()); err != nil {
		return nil, err
	}
	if trials, err = s.sample(ctx, f, o, each); err != nil || len(trials) == 0 {
		return trials, err
	}
	var handlers []string
	var held []int64
	byHeld := make(map[int64]*Trial, len(trials))
	for i := range trials {
		t := &trials[i]
		handlers, held, byHeld[t.ID] = append(handlers, t.Handler), append(held, t.ID), t
	}
	rows, _ := s.db.Query(ctx, s.sql.trialAsk, handlers, held) // ForEachRow reports the error
	asked := make(map[int64]*Trial, len(trials))
	var id, of int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &of}, func() error {
		asked[id] = byHeld[of]
		return nil
	}); err != nil {
		return nil, fmt.Errorf("deadletter: ask for dry runs: %w", s.advise(err))
	}
	defer func() { err = errors.Join(err, s.forget(ctx, asked)) }()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return trials, s.await(waiting, asked)
}

func (s *Store) sample(ctx context.Context, f Filter, o Options, each int) ([]Trial, error) {
	var limit *int
	if o.Limit > 0 {
		limit = &o.Limit
	}
	rows, _ := s.db.Query(ctx, s.sql.sample, f.arguments(limit, each)...) // CollectRows reports the error
	trials, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Trial, err error) {
		var cause *string
		err = row.Scan(&t.ID, &t.Handler, &t.EventID, &t.Type, &t.Was, &cause)
		t.Cause, t.Verdict = value(cause), Unanswered
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("deadletter: choose events to try: %w", s.advise(err))
	}
	return trials, nil
}

// await waits for the answers.
func (s *Store) await(ctx context.Context, asked map[int64]*Trial) error {
	ids := make([]int64, 0, len(asked))
	for id := range asked {
		ids = append(ids, id)
	}
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		open, err := s.answers(ctx, ids, asked)
		if err != nil && ctx.Err() == nil || open == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// answers reads what was told so far, and returns how many are open.
func (s *Store) answers(ctx context.Context, ids []int64, asked map[int64]*Trial) (open int, err error) {
	rows, _ := s.db.Query(ctx, s.sql.trialAnswers, ids) // ForEachRow reports the error
	var id int64
	var by *string
	var outcome []byte
	open = len(ids)
	var external []*Trial
	_, err = pgx.ForEachRow(rows, []any{&id, &by, &outcome}, func() error {
		if outcome == nil {
			return nil
		}
		open--
		t := asked[id]
		if err := json.Unmarshal(outcome, t); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if t.Verdict == External && t.Steps == nil {
			external = append(external, t)
		}
		return nil
	})
	if err != nil {
		return open, fmt.Errorf("deadletter: read dry runs: %w", s.advise(err))
	}
	for _, t := range external {
		w, err := s.whole(ctx, t.ID)
		if err == nil {
			t.Steps, err = s.steps(ctx, w.Handler, w.DedupeKey)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return open, fmt.Errorf("deadletter: %w", s.advise(err))
		}
	}
	return open, nil
}

// forget removes what was asked for.
func (s *Store) forget(ctx context.Context, asked map[int64]*Trial) error {
	ids := make([]int64, 0, len(asked))
	for id := range asked {
		ids = append(ids, id)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := s.db.Exec(ctx, s.sql.trialForget, ids); err != nil {
		return fmt.Errorf("deadletter: remove dry runs: %w", s.advise(err))
	}
	return nil
}
