package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

// StoreConfig tunes a Store. The zero value is ready to use.
type StoreConfig struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string
}

// Store shows sagas to operators, and accepts their decisions. It needs no definition and no Go
// type of a saga. With a *pgxpool.Pool it is safe for concurrent use, with a *pgx.Conn it is not.
type Store struct {
	db     postroom.DB
	schema string
	err    error // the fault of the config
	sql    statements
	lookAt int // about how many instances a page reads at a time if it has to search
}

// NewStore returns a store. It does no I/O and cannot fail: if the config is wrong, [Store.Check]
// and all other methods return the error.
func NewStore(db postroom.DB, cfg StoreConfig) *Store {
	name, err := schema.Name(cfg.Schema)
	if err != nil {
		return &Store{db: db, err: fmt.Errorf("saga: config: Schema: %w", err)}
	}
	return &Store{db: db, schema: name, lookAt: lookAt, sql: sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })}
}

// Check returns an error if the database lacks the tables that a store needs.
func (s *Store) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return s.explain(schema.Require(ctx, s.db, s.schema))
}

// explain adds advice for an operator to an error of the database.
func (s *Store) explain(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "operator", Schema: s.schema, DB: s.db})
}

// Story has all data about one instance.
type Story struct {
	Instance
	Note          string          `json:"note,omitempty"` // the last note: why an event did not count, or why a Local function gave up
	CorrelationID string          `json:"correlation_id"`
	CausationID   string          `json:"causation_id,omitempty"` // the event that began the instance
	Steps         []StepStatus    `json:"steps"`
	WaitsFor      []string        `json:"waits_for,omitempty"`
	Data          json.RawMessage `json:"data"` // the state
	History       []Entry         `json:"history"`
}

// Entry is one thing that happened to an instance.
type Entry struct {
	At        time.Time `json:"at"`
	Revision  int64     `json:"revision"`
	Step      string    `json:"step"`
	Direction string    `json:"direction"` // do or undo

	// The field What is one of these: begun, sent (a command was written), local (a function ran),
	// done, failed or undone (a reply arrived), gave_up, deadline, or an operator's decision:
	// retry, skip, mark_done, compensate.
	What    string `json:"what"`
	Type    string `json:"type,omitempty"`     // type of the event
	EventID string `json:"event_id,omitempty"` // id of the command that was written, or of the event that led to this entry
}

// Show returns one instance with its history, or [ErrUnknown].
func (s *Store) Show(ctx context.Context, saga, key string) (Story, error) {
	story, _, err := s.show(ctx, saga, key)
	if err != nil {
		return Story{}, err
	}
	rows, _ := s.db.Query(ctx, s.sql.Steps, saga, key) // CollectRows reports the error
	story.History, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
	if err != nil {
		return Story{}, fmt.Errorf("saga %s: read the history of key %s: %w", saga, key, s.explain(err))
	}
	return story, nil
}

// show returns one instance without its history, and the steps of the definition.
func (s *Store) show(ctx context.Context, saga, key string) (story Story, steps []outline, err error) {
	if s.err != nil {
		return Story{}, nil, s.err
	}
	story = Story{Instance: Instance{Saga: saga, Key: key}}
	var deadline, ended *time.Time
	var note, cause *string
	err = s.db.QueryRow(ctx, s.sql.Show, saga, key).Scan(&story.Version, &story.State, &story.Stuck, &story.Step, &story.Revision, &story.StartedAt,
		&story.WaitsSince, &deadline, &ended, &note, &story.CorrelationID, &cause, &story.Data, &steps)
	if errors.Is(err, pgx.ErrNoRows) {
		return Story{}, nil, fmt.Errorf("saga %s, key %s: %w", saga, key, ErrUnknown)
	}
	if err != nil {
		return Story{}, nil, fmt.Errorf("saga %s: show key %s: %w", saga, key, s.explain(err))
	}
	story.Deadline, story.EndedAt, story.Note, story.CausationID = or(deadline), or(ended), or(note), or(cause)
	story.Steps, story.WaitsFor = progress(steps, story.State, story.Step), waitsFor(steps, story.State, story.Step)
	return story, steps, nil
}

// Decision is an operator's decision about an instance.
type Decision struct {
	Saga, Key string

	// Revision is the revision of the instance that the operator saw. If the instance has changed
	// since then, the decision changes nothing.
	Revision int64

	Choice Choice

	// Type is the type of the reply, for MarkDone.
	//
	// Defaults to the first type that ends the step.
	Type string

	// Data is the data of the reply, for MarkDone.
	Data json.RawMessage

	// Instead is the event of an earlier decision for the same revision, in whose place this one
	// comes: the saga then refuses the earlier one. Use it if the saga could not carry that one out.
	Instead string
}

// ErrOver says that the instance has changed since the revision of a decision, or that the instance
// was already done when [Saga.Compensate] was called.
var ErrOver = errors.New("the instance has changed since then")

// ErrDecided says that another decision was made for the same revision of an instance.
var ErrDecided = errors.New("another decision was made for this revision")

// decidedState is the SQLSTATE that postroom.decide_saga raises for another decision.
const decidedState = "23PR2"

// Decide writes a decision as an event for the saga, together with a row of the audit, and returns
// the id of the event. The saga carries out the decision when the relay has published the event and
// a process runs the saga. Decide returns [ErrUnknown] or [ErrOver] if the decision would change
// nothing, and [ErrDecided] if there is another decision for the revision, except with Instead. It returns another error if the decision does not fit the step, for example if Choice is
// Retry and the step sends nothing. If the saga cannot apply Data, the event becomes a dead letter
// of the saga's handler.
func (s *Store) Decide(ctx context.Context, d Decision, by postroom.Audit) (id string, err error) {
	if err := errors.Join(s.err, d.validate(), change.Valid(by)); err != nil {
		return "", fmt.Errorf("saga: decide: %w", err)
	}
	if by.Reason == "" && d.Choice != Retry {
		return "", fmt.Errorf("saga: decide: Audit.Reason is empty: give the reason for this decision (%s)", d.Choice)
	}
	story, steps, err := s.show(ctx, d.Saga, d.Key)
	if err != nil {
		return "", err
	}
	//guard:a-decision-fits-its-step = errors.Is(@1, ErrOver)
	if err := d.fits(story.Instance, steps); err != nil {
		return "", fmt.Errorf("saga %s, key %s: %w", d.Saga, d.Key, err)
	}
	var data *string
	if len(d.Data) > 0 {
		data = given(string(d.Data))
	}
	var event *string
	err = s.db.QueryRow(ctx, s.sql.Decide, d.Saga, d.Key, d.Revision, d.Choice, d.Type, data, by.Actor, by.Reason, given(d.Instead)).Scan(&event)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == decidedState {
		return "", fmt.Errorf("saga %s, key %s: %w: %s", d.Saga, d.Key, ErrDecided, refused.Detail)
	}
	if err != nil {
		return "", fmt.Errorf("saga %s: decide on key %s: %w", d.Saga, d.Key, s.explain(err))
	}
	if event != nil {
		return *event, nil
	}
	if story, _, err = s.show(ctx, d.Saga, d.Key); err != nil {
		return "", err
	}
	return "", fmt.Errorf("saga %s, key %s: %w", d.Saga, d.Key, d.over(story.Instance))
}

// over returns the error for an instance that has ended or has another revision than d.
func (d Decision) over(i Instance) error {
	return fmt.Errorf("it is %s at revision %d, and the decision is for %d: %w", i.State, i.Revision, d.Revision, ErrOver)
}

// fits returns an error if the saga could not carry out a decision. The saga would find the same
// error later, but the operator would not get it.
func (d Decision) fits(i Instance, steps []outline) error {
	at := slices.IndexFunc(steps, func(s outline) bool { return s.Name == i.Step })
	switch {
	case i.State.Ended(), i.Revision != d.Revision:
		return d.over(i)
	case d.Choice == Compensate && i.State == Compensating:
		return errors.New("it is already being undone")
	case at < 0:
		return nil // no definition is recorded
	}
	sends, ends := steps[at].Do, steps[at].Done
	if i.State == Compensating {
		sends, ends = steps[at].Undo, steps[at].Undone
	}
	switch {
	case d.Choice == Retry && (sends == "" || sends == localStep):
		return fmt.Errorf("step %s sends no command", i.Step)
	case d.Choice == MarkDone && len(ends) == 0:
		return fmt.Errorf("step %s does not wait for a reply: use %s", i.Step, Skip)
	case d.Choice == MarkDone && d.Type != "" && !slices.Contains(ends, d.Type):
		return fmt.Errorf("%s is not a reply that ends step %s: use %s", d.Type, i.Step, strings.Join(ends, " or "))
	}
	return nil
}

func (d Decision) validate() error {
	switch d.Choice {
	case Retry, Skip, Compensate:
		if d.Type != "" || len(d.Data) > 0 {
			return fmt.Errorf("%s has no Type and no Data", d.Choice)
		}
		return nil
	case MarkDone:
		if len(d.Data) > 0 && !json.Valid(d.Data) {
			return errors.New("the decision has Data that is not JSON")
		}
		return nil
	}
	return fmt.Errorf("there is no choice %q: use %s, %s, %s or %s", d.Choice, Retry, Skip, MarkDone, Compensate)
}
