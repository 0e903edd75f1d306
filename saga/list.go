package saga

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
)

// Instance is an instance in a list.
type Instance struct {
	Saga       string    `json:"saga"`
	Key        string    `json:"key"`
	Version    int       `json:"version"`
	State      State     `json:"state"`
	Stuck      bool      `json:"stuck"`
	Step       string    `json:"step"` // the step for which the instance waits
	Revision   int64     `json:"revision"`
	StartedAt  time.Time `json:"started_at"`
	WaitsSince time.Time `json:"waits_since"`
	Deadline   time.Time `json:"deadline,omitzero"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
}

// Filter says which instances [Store.List] returns. The zero value means all instances.
type Filter struct {
	Saga   string
	Key    string
	States []State
	Step   string
	Stuck  bool // only instances that are stuck: see Definition.Stuck
}

const (
	// A search by List reads about lookAt instances at a time. The limit for such reads is rounds.
	lookAt = 20_000
	rounds = 3
)

// place is a place in a list: behind the instance with this time, saga and key.
type place struct {
	at        time.Time
	saga, key string
}

func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(p.at.UTC().Format(time.RFC3339Nano) + " " + p.saga + " " + p.key))
}

// readPlace parses a place that a page returned.
func readPlace(text string) (*place, error) {
	if text == "" {
		return nil, nil
	}
	plain, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.SplitN(string(plain), " ", 3)
	if err == nil && len(parts) == 3 && utf8.Valid(plain) && !slices.Contains(plain, 0) { // PostgreSQL has no other text
		var at time.Time
		if at, err = time.Parse(time.RFC3339Nano, parts[0]); err == nil {
			return &place{at, parts[1], parts[2]}, nil
		}
	}
	return nil, change.ErrPlace
}

// List returns a page of instances, the newest first, and where the next page begins. With the last
// page, next is empty. With Step or Stuck in the filter, List reads a limited number of instances for
// a page. So a page that is not the last can have fewer instances than its limit, or none. With Key,
// List sorts them by saga. With Stuck and without Key, those that became stuck first come first, by
// the hour.
func (s *Store) List(ctx context.Context, f Filter, p postroom.Page) (instances []Instance, next string, err error) {
	limit, errLimit := change.Limit(p)
	after, errAfter := readPlace(p.After)
	if err := errors.Join(s.err, errLimit, errAfter); err != nil {
		return nil, "", fmt.Errorf("saga: list: %w", err)
	}
	each, err := s.lookEach(ctx, f)
	if err != nil {
		return nil, "", fmt.Errorf("saga: list: %w", s.explain(err))
	}
	for range rounds {
		most := limit - len(instances)
		found, last, mark, err := s.look(ctx, f, after, each, most)
		if err != nil {
			return nil, "", fmt.Errorf("saga: list: %w", s.explain(err))
		}
		instances = append(instances, found...)
		if len(found) == most {
			mark = last
		}
		if after, next = mark, ""; mark == nil {
			break
		}
		if next = mark.String(); len(found) == most {
			break
		}
	}
	return instances, next, nil
}

// states returns a filter's states as strings. In QueryExecModeExec, which works with every pooler,
// pgx does not ask the server for types of parameters, and cannot encode a []State.
func (f Filter) states() (all []string) {
	for _, state := range f.States {
		all = append(all, string(state))
	}
	if len(all) == 0 {
		all = []string{string(Running), string(Compensating), string(Done), string(Undone)}
	}
	return all
}

// lookEach returns a number: List reads this many instances of each saga and state at a time. The
// number is 0 if List need not search.
func (s *Store) lookEach(ctx context.Context, f Filter) (n int, err error) {
	groups := 1
	switch {
	case f.Key != "", f.Step == "" && !f.Stuck: // no search is needed
		return 0, nil
	case f.Saga == "":
		if err := s.db.QueryRow(ctx, s.sql.ListSagas).Scan(&groups); err != nil {
			return 0, fmt.Errorf("count sagas: %w", err)
		}
	}
	if !f.Stuck { // if Stuck is set, the statement reads all states of a saga together
		groups *= len(f.states())
	}
	return s.lookAt / max(groups, 1), nil
}

// look searches once for instances after a place. It reads up to max(each, most) instances of each
// saga and state, or with Stuck of each saga. The parameter most also limits the result. The result
// last is the place of the last instance that it found. The result mark is the place at which it
// stopped, and nil if there are no more instances.
func (s *Store) look(ctx context.Context, f Filter, after *place, each, most int) (found []Instance, last, mark *place, err error) {
	from, at := place{}, pgtype.Timestamptz{Valid: true, InfinityModifier: pgtype.Infinity}
	if f.Stuck {
		at.InfinityModifier = pgtype.NegativeInfinity
	}
	if after != nil {
		from, at = *after, pgtype.Timestamptz{Valid: true, Time: after.at}
	}
	each = max(each, most)
	states := f.states()
	var rows pgx.Rows // ForEachRow reports the error
	switch {
	case f.Key != "":
		rows, _ = s.db.Query(ctx, s.sql.ListKey, f.Saga, states, f.Step, f.Key, f.Stuck, from.saga, most)
	case f.Stuck:
		rows, _ = s.db.Query(ctx, s.sql.ListStuck, f.Saga, states, f.Step, at, from.saga, from.key, each, most)
	default:
		rows, _ = s.db.Query(ctx, s.sql.List, f.Saga, states, f.Step, at, from.saga, from.key, each, most)
	}
	var one listRow
	_, err = pgx.ForEachRow(rows, one.columns(), func() error {
		if one.markAt != nil {
			mark = &place{*one.markAt, or(one.markSaga), or(one.markKey)}
		}
		if one.saga != nil {
			found = append(found, one.instance())
			last = &place{or(one.sorted), or(one.saga), or(one.key)}
		}
		return nil
	})
	return found, last, mark, err
}

// listRow is a row of a list: the place at which the search stopped, and an instance if the search
// found one.
type listRow struct {
	markAt                         *time.Time
	markSaga, markKey              *string
	saga, key, state, step         *string
	version                        *int
	stuck                          *bool
	revision                       *int64
	started, since, deadline, ends *time.Time
	sorted                         *time.Time
}

func (l *listRow) columns() []any {
	return []any{
		&l.markAt, &l.markSaga, &l.markKey, &l.saga, &l.key, &l.version, &l.state, &l.stuck, &l.step, &l.revision, &l.started, &l.since, &l.deadline, &l.ends, &l.sorted,
	}
}

func (l *listRow) instance() Instance {
	return Instance{
		Saga: or(l.saga), Key: or(l.key), Version: or(l.version), State: State(or(l.state)), Stuck: or(l.stuck), Step: or(l.step), Revision: or(l.revision),
		StartedAt: or(l.started), WaitsSince: or(l.since), Deadline: or(l.deadline), EndedAt: or(l.ends),
	}
}
