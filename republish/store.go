// Package republish stores an operator's order to publish events of the log again: the
// events of a time, a type or a key, or the events that a comparison found missing in a
// stream. The leading relay carries the order out, beside live events.
package republish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/seqset"
	"github.com/postroom/postroom/schema"
)

var (
	// ErrNoEvents says that the log has none of the events of a request.
	ErrNoEvents = errors.New("the log has no such events")

	// ErrNotFound says that a republish does not exist, or is not running.
	ErrNotFound = errors.New("no such republish")

	// ErrRunning says that a republish of the same request runs, and lacks some of the events. A
	// request for the last two hours, for instance, has other events an hour later.
	ErrRunning = errors.New("a republish of the same request still runs, and has not all of the events")
)

// The mode unplanned sends a statement in one piece and keeps no plan, because the database may be
// behind a transaction pooler.
const unplanned = pgx.QueryExecModeExec

// Store starts, lists and cancels republishes of a log. It is safe for concurrent use and
// keeps no connection.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements
	log    *pglog.Log
	err    error // what is wrong with the schema's name
}

// New returns the store for the log in the schema postroom of pool's database. It does no
// I/O.
func New(pool *pgxpool.Pool) *Store {
	return &Store{pool: pool, schema: schema.DefaultName, sql: load(schema.DefaultName), log: pglog.New(pool)}
}

// WithSchema returns the store for the log in the schema with the given name. An empty name means
// postroom. If the name is invalid, all methods of the returned store return an error.
func (s *Store) WithSchema(name string) *Store {
	other := &Store{pool: s.pool, schema: name}
	//guard:a-schema-without-a-name-is-not-asked false
	if name, other.err = schema.Name(name); other.err != nil {
		return other
	}
	other.schema, other.sql, other.log = name, load(name), pglog.New(s.pool).WithSchema(name)
	return other
}

// advise adds advice to an error of the database. The parameter grant names the rights that the
// caller needs.
func (s *Store) advise(grant string, err error) error {
	return remedy.Explain(err, remedy.Use{Grant: grant, Schema: s.schema, DB: s.pool})
}

// Start stores a request. The leading relay publishes its events again, beside live events
// and in the order of the log. Each copy has the header of the republish and a new message
// id, so that the broker does not drop the copy as a duplicate. Handlers recognise the event
// by its source and id, and do not apply it twice.
//
// Start returns as soon as the request is stored. [Store.Find] returns the progress. The
// relay carries out one republish after the other. While a republish of the same request
// runs, Start returns that republish if it has all of the events, and [ErrRunning] if not. If the log
// has none of the events, Start returns [ErrNoEvents].
func (s *Store) Start(ctx context.Context, req Request) (Republish, error) {
	req = req.defaults()
	if err := errors.Join(s.err, req.validate()); err != nil {
		return Republish{}, fmt.Errorf("republish: start: %w", postroom.Unrecoverable(err))
	}
	r, err := s.start(ctx, req)
	if err != nil {
		return r, fmt.Errorf("republish: start: %w", s.advise("operator", err))
	}
	return r, nil
}

// start is Start for a valid request.
func (s *Store) start(ctx context.Context, req Request) (Republish, error) {
	p, err := s.preview(ctx, req)
	switch {
	case err != nil:
		return Republish{}, err
	case p.Running != nil:
		return p.Running.instead(p)
	case p.Events == 0:
		return Republish{Log: &p.Log}, ErrNoEvents
	}
	asked := map[string]any{"since": when(req.Since), "until": when(req.Until), "types": req.Types, "keys": req.Keys, "rate": req.Rate}
	r, err := s.create(ctx, req.digest(), asked, req.Actor, req.Reason, "range", when(req.Since), when(req.Until), texts(req.Types), texts(req.Keys),
		p.First, p.Last, nil, p.Events, req.Rate)
	if err == nil && r.AlreadyRunning { // since the preview
		return r.instead(p)
	}
	r.Log = &p.Log
	return r, err
}

// instead returns the running republish r in the place of a new one for the events of a preview, or
// ErrRunning if r lacks some of them.
func (r Republish) instead(p Preview) (Republish, error) {
	//guard:a-republish-of-other-events-is-not-the-same false
	if p.Events > 0 && (p.First < r.First || p.Last > r.Last || p.Events > r.Events) {
		return Republish{}, fmt.Errorf("%w: republish %d has the events with seqs %d to %d, and these are %d to %d", ErrRunning, r.ID, r.First, r.Last, p.First, p.Last)
	}
	r.Log = &p.Log
	return r, nil
}

// maxRanges is the most ranges of seqs in one republish. The relay reads all of them for each page of
// the republish.
const maxRanges = 5000

// StartSeqs is Start for events that a comparison found missing: the events with these seqs, in the
// order of the seqs. The relay ignores seqs that the log lacks, but Republish.Events counts them. If
// the seqs are more than a few thousand ranges, StartSeqs starts several republishes. The relay carries
// them out in the order in which they are returned. If StartSeqs fails, it may have started some.
func (s *Store) StartSeqs(ctx context.Context, seqs []int64, rate float64, actor, reason string) (started []Republish, err error) {
	rate = cmp.Or(rate, DefaultRate)
	if err := errors.Join(s.err, checkBy(rate, actor, reason)); err != nil {
		return nil, fmt.Errorf("republish: start: %w", postroom.Unrecoverable(err))
	}
	set := seqset.Of(slices.Clone(seqs))
	if len(set) == 0 {
		//guard:a-request-of-nothing-is-refused 2 = nil
		return nil, fmt.Errorf("republish: start: %w", ErrNoEvents)
	}
	//guard:a-republish-has-a-limited-list = slices.Values([]seqset.Set{set})
	for part := range slices.Chunk(set, maxRanges) {
		first, last, all := part[0].Lo, part[len(part)-1].Hi, part.String()
		asked := map[string]any{"first_seq": first, "last_seq": last, "rate": rate}
		r, err := s.create(ctx, digestOf("reconcile", all), asked, actor, reason, "reconcile", nil, nil, nil, nil,
			first, last, all, part.Size(), rate)
		if err != nil {
			return started, fmt.Errorf("republish: start: %w", s.advise("operator", err))
		}
		started = append(started, r)
	}
	return started, nil
}

// create stores a republish with its audit row. If a republish with the same digest runs, it
// returns that one. The slice args has the parameters of start.sql from kind to rate.
func (s *Store) create(ctx context.Context, digest string, asked map[string]any, actor, reason string, args ...any) (Republish, error) {
	details, err := json.Marshal(asked)
	if err != nil {
		return Republish{}, fmt.Errorf("encode request: %w", err)
	}
	args = slices.Concat([]any{unplanned, actor, reason}, args, []any{digest, string(details)})
	for {
		rows, _ := s.pool.Query(ctx, s.sql.Start, args...) // CollectOneRow reports the error
		r, err := pgx.CollectOneRow(rows, scanRepublish)
		if !errors.Is(err, pgx.ErrNoRows) {
			remedy.Renew(ctx, s.pool, err)
			return r, err
		}
		running, err := s.list(ctx, nil, &digest, nil, 1)
		if err != nil {
			return Republish{}, err
		}
		if len(running) == 1 {
			running[0].AlreadyRunning = true
			return running[0], nil
		}
		// the running republish ended just now: try again
	}
}

// Preview returns what Start would publish, and whether the log may lack some of the
// events. It changes nothing. It reads the events of the requested time in several steps.
func (s *Store) Preview(ctx context.Context, req Request) (Preview, error) {
	req = req.defaults()
	req.Actor = cmp.Or(req.Actor, "preview")
	if err := errors.Join(s.err, req.validate()); err != nil {
		return Preview{}, fmt.Errorf("republish: preview: %w", postroom.Unrecoverable(err))
	}
	p, err := s.preview(ctx, req)
	if err != nil {
		return p, fmt.Errorf("republish: preview: %w", s.advise("operator", err))
	}
	return p, nil
}

// List returns at most limit republishes, the newest first. If before is not zero, List
// returns only republishes with lower ids.
func (s *Store) List(ctx context.Context, limit int, before int64) ([]Republish, error) {
	if s.err != nil {
		return nil, fmt.Errorf("republish: %w", postroom.Unrecoverable(s.err))
	}
	var below *int64
	if before != 0 {
		below = &before
	}
	all, err := s.list(ctx, nil, nil, below, limit)
	if err != nil {
		return nil, fmt.Errorf("republish: %w", s.advise("operator", err))
	}
	return all, nil
}

// Find returns a republish by its id, or [ErrNotFound].
func (s *Store) Find(ctx context.Context, id int64) (Republish, error) {
	if s.err != nil {
		return Republish{}, fmt.Errorf("republish: %w", postroom.Unrecoverable(s.err))
	}
	all, err := s.list(ctx, &id, nil, nil, 1)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Republish{}, fmt.Errorf("republish: find %d: %w", id, s.advise("operator", err))
	}
	return all[0], nil
}

// Cancel ends a republish. About a second later, the relay stops sending the events to the broker.
// The broker may still store events that were sent before. If the republish is not running, Cancel
// returns [ErrNotFound].
func (s *Store) Cancel(ctx context.Context, id int64, actor, reason string) (Republish, error) {
	if err := errors.Join(s.err, checkBy(1, actor, reason)); err != nil {
		return Republish{}, fmt.Errorf("republish: cancel: %w", postroom.Unrecoverable(err))
	}
	rows, _ := s.pool.Query(ctx, s.sql.Cancel, unplanned, id, actor, reason) // CollectOneRow reports the error
	r, err := pgx.CollectOneRow(rows, scanRepublish)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w runs", ErrNotFound)
	}
	if err != nil {
		remedy.Renew(ctx, s.pool, err)
		return Republish{}, fmt.Errorf("republish: cancel %d: %w", id, s.advise("operator", err))
	}
	return r, nil
}

// list runs list.sql. A condition that is nil selects all republishes.
func (s *Store) list(ctx context.Context, id *int64, digest *string, before *int64, limit int) ([]Republish, error) {
	rows, _ := s.pool.Query(ctx, s.sql.List, unplanned, id, digest, before, limit) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, scanRepublish)
	if err != nil {
		return nil, fmt.Errorf("read republishes: %w", err)
	}
	return all, nil
}

// texts returns the given list, or nil if it is empty.
func texts(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}
