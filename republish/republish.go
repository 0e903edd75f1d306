// Package republish has events of the log published again, by an operator's wish: all of
// a time, a type or a key, or those that a comparison found missing in a stream. Whichever
// relay leads publishes them, beside the live ones.
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
	// ErrNoEvents is returned where a rewind would have no events.
	ErrNoEvents = errors.New("the log has no such events")

	// ErrNoRewind is returned where a rewind does not exist, or does not run.
	ErrNoRewind = errors.New("no such rewind")
)

// unplanned sends a statement in one piece, and keeps no plan of it: the database may be
// behind a transaction pooler.
const unplanned = pgx.QueryExecModeExec

// Rewinds makes rewinds of a log, says how they stand, and cancels them. It is safe for concurrent use and holds no connection.
type Rewinds struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements
	log    *pglog.Log
	err    error // what is wrong with the schema's name
}

// New returns the rewinds of the log in the schema postroom of pool's
// database. It does no I/O.
func New(pool *pgxpool.Pool) *Rewinds {
	return &Rewinds{pool: pool, schema: schema.DefaultName, sql: load(schema.DefaultName), log: pglog.New(pool)}
}

// WithSchema returns those of the schema of the given name, empty meaning postroom.
// All methods report an invalid name.
func (rs *Rewinds) WithSchema(name string) *Rewinds {
	other := &Rewinds{pool: rs.pool, schema: name}
	if name, other.err = schema.Name(name); other.err != nil {
		return other
	}
	other.schema, other.sql, other.log = name, load(name), pglog.New(rs.pool).WithSchema(name)
	return other
}

// advise returns an error of the database with what to do about it, for somebody who is
// granted what a part of Postroom needs.
func (rs *Rewinds) advise(grant string, err error) error {
	return remedy.Explain(err, remedy.Use{Grant: grant, Schema: rs.schema, DB: rs.pool})
}

// Rewind has events published again, beside the live ones and in the order of the log,
// by whichever relay leads. Each carries the mark of the rewind and an id of its own, so
// that the broker does not take it for a duplicate; consumers know the event by its
// source and id, and do not apply it twice.
//
// It returns as soon as the wish is stored; [Rewinds.Find] says how far it is. Rewinds
// are published one after the other. While the same order runs, that one is returned. It
// returns [ErrNoEvents] if the log has none of them.
func (rs *Rewinds) Rewind(ctx context.Context, o Order) (Rewind, error) {
	o = o.defaults()
	if err := errors.Join(rs.err, o.validate()); err != nil {
		return Rewind{}, fmt.Errorf("outbox: rewind: %w", postroom.Unrecoverable(err))
	}
	r, err := rs.rewind(ctx, o)
	if err != nil {
		return r, fmt.Errorf("outbox: rewind: %w", rs.advise("operator", err))
	}
	return r, nil
}

func (rs *Rewinds) rewind(ctx context.Context, o Order) (Rewind, error) {
	p, err := rs.preview(ctx, o)
	switch {
	case err != nil:
		return Rewind{}, err
	case p.Running != nil:
		p.Running.Log = &p.Log
		return *p.Running, nil
	case p.Events == 0:
		return Rewind{Log: &p.Log}, ErrNoEvents
	}
	asked := map[string]any{"since": when(o.Since), "until": when(o.Until), "types": o.Types, "keys": o.Keys, "rate": o.Rate}
	r, err := rs.make(ctx, o.wish(), asked, o.Actor, o.Reason, "rewind", when(o.Since), when(o.Until), texts(o.Types), texts(o.Keys),
		p.First, p.Last, nil, p.Events, o.Rate)
	r.Log = &p.Log
	return r, err
}

// Redo is Rewind for what a comparison found missing: the events with these seqs, in
// their order. Those that are not in the log are left out.
func (rs *Rewinds) Redo(ctx context.Context, seqs []int64, rate float64, actor, reason string) (Rewind, error) {
	rate = cmp.Or(rate, DefaultRate)
	if err := errors.Join(rs.err, checkBy(rate, actor, reason)); err != nil {
		return Rewind{}, fmt.Errorf("outbox: redo: %w", postroom.Unrecoverable(err))
	}
	set := seqset.Of(slices.Clone(seqs))
	if len(set) == 0 {
		return Rewind{}, fmt.Errorf("outbox: redo: %w", ErrNoEvents)
	}
	first, last, all := set[0].Lo, set[len(set)-1].Hi, set.String()
	asked := map[string]any{"first_seq": first, "last_seq": last, "rate": rate}
	r, err := rs.make(ctx, digestOf("reconcile", all), asked, actor, reason, "reconcile", nil, nil, nil, nil,
		first, last, all, set.Size(), rate)
	if err != nil {
		return r, fmt.Errorf("outbox: redo: %w", rs.advise("operator", err))
	}
	return r, nil
}

// make makes a rewind with its audit row, or returns the one with this wish that runs.
// The arguments from kind to rate are those of rewind.sql.
func (rs *Rewinds) make(ctx context.Context, wish string, asked map[string]any, actor, reason string, args ...any) (Rewind, error) {
	details, err := json.Marshal(asked)
	if err != nil {
		return Rewind{}, fmt.Errorf("encode order: %w", err)
	}
	args = slices.Concat([]any{unplanned, actor, reason}, args, []any{wish, string(details)})
	for {
		rows, _ := rs.pool.Query(ctx, rs.sql.Rewind, args...) // CollectOneRow reports the error
		r, err := pgx.CollectOneRow(rows, scanRewind)
		if !errors.Is(err, pgx.ErrNoRows) {
			return r, err
		}
		running, err := rs.list(ctx, nil, &wish, nil, 1)
		if err != nil {
			return Rewind{}, err
		}
		if len(running) == 1 {
			running[0].RanAlready = true
			return running[0], nil
		}
		// It ended in between.
	}
}

// Preview returns what Rewind would publish, and what of it is gone from the log.
// It changes nothing. It reads what was written in that time, a part at a time.
func (rs *Rewinds) Preview(ctx context.Context, o Order) (Preview, error) {
	o = o.defaults()
	o.Actor = cmp.Or(o.Actor, "nobody")
	if err := errors.Join(rs.err, o.validate()); err != nil {
		return Preview{}, fmt.Errorf("outbox: preview rewind: %w", postroom.Unrecoverable(err))
	}
	p, err := rs.preview(ctx, o)
	if err != nil {
		return p, fmt.Errorf("outbox: preview rewind: %w", rs.advise("operator", err))
	}
	return p, nil
}

// List returns rewinds, the last first: limit of them at the most, those before the
// given id if that is not zero.
func (rs *Rewinds) List(ctx context.Context, limit int, before int64) ([]Rewind, error) {
	if rs.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(rs.err))
	}
	var below *int64
	if before != 0 {
		below = &before
	}
	all, err := rs.list(ctx, nil, nil, below, limit)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", rs.advise("operator", err))
	}
	return all, nil
}

// Find returns a rewind by its id, and [ErrNoRewind] if there is none.
func (rs *Rewinds) Find(ctx context.Context, id int64) (Rewind, error) {
	if rs.err != nil {
		return Rewind{}, fmt.Errorf("outbox: %w", postroom.Unrecoverable(rs.err))
	}
	all, err := rs.list(ctx, &id, nil, nil, 1)
	if err == nil && len(all) == 0 {
		err = ErrNoRewind
	}
	if err != nil {
		return Rewind{}, fmt.Errorf("outbox: rewind %d: %w", id, rs.advise("operator", err))
	}
	return all[0], nil
}

// Cancel ends a rewind. What is on its way is published; nothing else of it is,
// from about a second later on. It returns [ErrNoRewind] if it does not run.
func (rs *Rewinds) Cancel(ctx context.Context, id int64, actor, reason string) (Rewind, error) {
	if err := errors.Join(rs.err, checkBy(1, actor, reason)); err != nil {
		return Rewind{}, fmt.Errorf("outbox: cancel rewind: %w", postroom.Unrecoverable(err))
	}
	rows, _ := rs.pool.Query(ctx, rs.sql.CancelRewind, unplanned, id, actor, reason) // CollectOneRow reports the error
	r, err := pgx.CollectOneRow(rows, scanRewind)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w runs", ErrNoRewind)
	}
	if err != nil {
		return Rewind{}, fmt.Errorf("outbox: cancel rewind %d: %w", id, rs.advise("operator", err))
	}
	return r, nil
}

func (rs *Rewinds) list(ctx context.Context, id *int64, wish *string, before *int64, limit int) ([]Rewind, error) {
	rows, _ := rs.pool.Query(ctx, rs.sql.Rewinds, unplanned, id, wish, before, limit) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, scanRewind)
	if err != nil {
		return nil, fmt.Errorf("read rewinds: %w", err)
	}
	return all, nil
}

// texts returns a list, nil for an empty one.
func texts(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}
