package outbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/text"
)

var (
	// ErrNoEvents is returned where a rewind would have no events.
	ErrNoEvents = errors.New("the log has no such events")

	// ErrNoRewind is returned where a rewind does not exist, or does not run.
	ErrNoRewind = errors.New("no such rewind")
)

// DefaultRewindRate is how many events of a rewind are published in a second, where
// nothing else is said.
const DefaultRewindRate = 1000

// maxRewindRate is a rate that no broker reaches.
const maxRewindRate = 1e6

// RewindOrder says which events are to be published again.
type RewindOrder struct {
	// Since and Until are when the events were written: from Since on, and before
	// Until. Zero: from the beginning of the log, up to its end.
	Since, Until time.Time

	// Types and Keys are those of the events, exactly. None: all.
	Types, Keys []string

	// Rate is how many events are published in a second, at the most.
	//
	// Defaults to DefaultRewindRate.
	Rate float64

	// Actor is who wants it, and Reason why. They are kept.
	Actor, Reason string

	// Name is what makes two orders of the same types and keys the same: while a
	// rewind of that name runs, another order of it is that rewind.
	//
	// Defaults to Since and Until.
	Name string
}

// RewindState is how a rewind stands.
type RewindState string

// States of a rewind.
const (
	RewindRunning   RewindState = "running"
	RewindDone      RewindState = "done"      // all its events were published, skipped or held
	RewindCancelled RewindState = "cancelled" // by an operator
)

// Rewind is a range of the log that is published again.
type Rewind struct {
	ID        int64     `json:"id"`
	Kind      string    `json:"kind"` // rewind, or reconcile: what a comparison found
	CreatedAt time.Time `json:"created_at"`
	Actor     string    `json:"actor"`
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	Types     []string  `json:"types,omitempty"`
	Keys      []string  `json:"keys,omitempty"`
	First     int64     `json:"first_seq"`
	Last      int64     `json:"last_seq"`
	Rate      float64   `json:"rate"`

	State     RewindState `json:"state"`
	Events    int64       `json:"events"`    // how many there were when it was asked for; one that was committed late comes in addition
	Published int64       `json:"published"` // of them
	Skipped   int64       `json:"skipped"`   // they were held or discarded, or not published for the first time
	Held      int64       `json:"held"`      // the broker refused them; they are held, or were
	EndedAt   time.Time   `json:"ended_at,omitzero"`

	// RanAlready reports whether the same order was under way: nothing was made.
	RanAlready bool `json:"ran_already,omitempty"`

	// Log is how far back the log reached when the rewind was asked for.
	Log *LogReach `json:"log,omitempty"`
}

// Left is how many events are not published, skipped or held.
func (r Rewind) Left() int64 { return max(r.Events-r.Published-r.Skipped-r.Held, 0) }

// LogReach says how far back a log reaches.
type LogReach struct {
	FirstSeq int64     `json:"first_seq"` // of the oldest event there is; zero where there is none
	BeginsAt time.Time `json:"begins_at,omitzero"`

	// Gone reports whether events that were asked for can be missing: retention
	// removed what was written before BeginsAt.
	Gone bool `json:"gone"`
}

// RewindPreview says what a rewind would publish.
type RewindPreview struct {
	Events   int64     `json:"events"`
	First    int64     `json:"first_seq"`
	Last     int64     `json:"last_seq"`
	Earliest time.Time `json:"earliest,omitzero"` // when the first of them was written
	Latest   time.Time `json:"latest,omitzero"`
	Log      LogReach  `json:"log"`

	// Running is the rewind that is under way with the same order, if any.
	Running *Rewind `json:"running,omitempty"`
}

func (o RewindOrder) defaults() RewindOrder {
	o.Rate = cmp.Or(o.Rate, DefaultRewindRate)
	o.Types, o.Keys = slices.Clone(o.Types), slices.Clone(o.Keys)
	slices.Sort(o.Types)
	slices.Sort(o.Keys)
	o.Types, o.Keys = slices.Compact(o.Types), slices.Compact(o.Keys)
	return o
}

func (o RewindOrder) validate() error {
	var faults []error
	if !o.Since.IsZero() && !o.Until.IsZero() && !o.Since.Before(o.Until) {
		faults = append(faults, fmt.Errorf("since %s is not before until %s", o.Since.Format(time.RFC3339), o.Until.Format(time.RFC3339)))
	}
	for _, s := range slices.Concat(o.Types, o.Keys) {
		if s == "" || !text.Valid(s) {
			faults = append(faults, errors.New("a type or a key is empty, or no text"))
			break
		}
	}
	return errors.Join(append(faults, checkBy(o.Rate, o.Actor, o.Reason))...)
}

// checkBy reports what is wrong with what each order has.
func checkBy(rate float64, actor, reason string) error {
	var faults []error
	if !(rate > 0 && rate <= maxRewindRate) || math.IsNaN(rate) {
		faults = append(faults, fmt.Errorf("rate is %g, want more than 0 and %g at the most", rate, float64(maxRewindRate)))
	}
	if actor == "" || len(actor) > 255 || !text.Valid(actor) {
		faults = append(faults, errors.New("who wants it? Actor has to be 1 to 255 bytes of text"))
	}
	if len(reason) > 4096 || !text.Valid(reason) {
		faults = append(faults, errors.New("reason has to be at most 4096 bytes of text"))
	}
	return errors.Join(faults...)
}

// wish is the digest by which the same order is known again.
func (o RewindOrder) wish() string {
	name := cmp.Or(o.Name, fmt.Sprint(o.Since.UnixMicro(), o.Until.UnixMicro()))
	return digestOf("rewind", name, texts(o.Types), texts(o.Keys))
}

func digestOf(parts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", parts))
	return hex.EncodeToString(sum[:])
}

// Rewind has events published again, beside the live ones and in the order of the log,
// by whichever relay leads. Each carries the mark of the rewind and an id of its own, so
// that the broker does not take it for a duplicate; consumers know the event by its
// source and id, and do not apply it twice.
//
// It returns as soon as the wish is stored; [Log.FindRewind] says how far it is. Rewinds
// are published one after the other. While the same order runs, that one is returned. It
// returns [ErrNoEvents] where the log has none of them.
func (l *Log) Rewind(ctx context.Context, o RewindOrder) (Rewind, error) {
	o = o.defaults()
	if err := errors.Join(l.err, o.validate()); err != nil {
		return Rewind{}, fmt.Errorf("outbox: rewind: %w", postroom.Refuse(err))
	}
	r, err := l.rewind(ctx, o)
	if err != nil {
		return r, fmt.Errorf("outbox: rewind: %w", l.ForOperator().advise(err))
	}
	return r, nil
}

func (l *Log) rewind(ctx context.Context, o RewindOrder) (Rewind, error) {
	p, err := l.preview(ctx, o)
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
	r, err := l.make(ctx, o.wish(), asked, o.Actor, o.Reason, "rewind", when(o.Since), when(o.Until), texts(o.Types), texts(o.Keys),
		p.First, p.Last, nil, p.Events, o.Rate)
	r.Log = &p.Log
	return r, err
}

// Redo is Rewind for what a comparison found missing: the events with these seqs, in
// their order. Those that are not in the log are left out.
func (l *Log) Redo(ctx context.Context, seqs []int64, rate float64, actor, reason string) (Rewind, error) {
	rate = cmp.Or(rate, DefaultRewindRate)
	if err := errors.Join(l.err, checkBy(rate, actor, reason)); err != nil {
		return Rewind{}, fmt.Errorf("outbox: redo: %w", postroom.Refuse(err))
	}
	set := spansOf(slices.Clone(seqs))
	if len(set) == 0 {
		return Rewind{}, fmt.Errorf("outbox: redo: %w", ErrNoEvents)
	}
	first, last, all := set[0].lo, set[len(set)-1].hi, set.String()
	asked := map[string]any{"first_seq": first, "last_seq": last, "rate": rate}
	r, err := l.make(ctx, digestOf("reconcile", all), asked, actor, reason, "reconcile", nil, nil, nil, nil,
		first, last, all, set.size(), rate)
	if err != nil {
		return r, fmt.Errorf("outbox: redo: %w", l.ForOperator().advise(err))
	}
	return r, nil
}

// make makes a rewind with its audit row, or returns the one with this wish that runs.
// The arguments from kind to rate are those of rewind.sql.
func (l *Log) make(ctx context.Context, wish string, asked map[string]any, actor, reason string, args ...any) (Rewind, error) {
	details, err := json.Marshal(asked)
	if err != nil {
		return Rewind{}, fmt.Errorf("encode order: %w", err)
	}
	args = slices.Concat([]any{unplanned, actor, reason}, args, []any{wish, string(details)})
	for {
		rows, _ := l.pool.Query(ctx, l.sql.rewind, args...) // CollectOneRow reports the error
		r, err := pgx.CollectOneRow(rows, scanRewind)
		if !errors.Is(err, pgx.ErrNoRows) {
			return r, err
		}
		running, err := l.list(ctx, nil, &wish, nil, 1)
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

// PreviewRewind returns what Rewind would publish, and what of it is gone from the log.
// It changes nothing. It reads what was written in that time, a part at a time.
func (l *Log) PreviewRewind(ctx context.Context, o RewindOrder) (RewindPreview, error) {
	o = o.defaults()
	o.Actor = cmp.Or(o.Actor, "nobody")
	if err := errors.Join(l.err, o.validate()); err != nil {
		return RewindPreview{}, fmt.Errorf("outbox: preview rewind: %w", postroom.Refuse(err))
	}
	p, err := l.preview(ctx, o)
	if err != nil {
		return p, fmt.Errorf("outbox: preview rewind: %w", l.ForOperator().advise(err))
	}
	return p, nil
}

// Rewinds returns rewinds, the last first: limit of them at the most, those before the
// given id where that is not zero.
func (l *Log) Rewinds(ctx context.Context, limit int, before int64) ([]Rewind, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Refuse(l.err))
	}
	var below *int64
	if before != 0 {
		below = &before
	}
	all, err := l.list(ctx, nil, nil, below, limit)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", l.ForOperator().advise(err))
	}
	return all, nil
}

// FindRewind returns a rewind by its id, and [ErrNoRewind] where there is none.
func (l *Log) FindRewind(ctx context.Context, id int64) (Rewind, error) {
	if l.err != nil {
		return Rewind{}, fmt.Errorf("outbox: %w", postroom.Refuse(l.err))
	}
	all, err := l.list(ctx, &id, nil, nil, 1)
	if err == nil && len(all) == 0 {
		err = ErrNoRewind
	}
	if err != nil {
		return Rewind{}, fmt.Errorf("outbox: rewind %d: %w", id, l.ForOperator().advise(err))
	}
	return all[0], nil
}

// CancelRewind ends a rewind. What is on its way is published; nothing else of it is,
// from about a second later on. It returns [ErrNoRewind] where it does not run.
func (l *Log) CancelRewind(ctx context.Context, id int64, actor, reason string) (Rewind, error) {
	if err := errors.Join(l.err, checkBy(1, actor, reason)); err != nil {
		return Rewind{}, fmt.Errorf("outbox: cancel rewind: %w", postroom.Refuse(err))
	}
	rows, _ := l.pool.Query(ctx, l.sql.cancelRewind, unplanned, id, actor, reason) // CollectOneRow reports the error
	r, err := pgx.CollectOneRow(rows, scanRewind)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w runs", ErrNoRewind)
	}
	if err != nil {
		return Rewind{}, fmt.Errorf("outbox: cancel rewind %d: %w", id, l.ForOperator().advise(err))
	}
	return r, nil
}

func (l *Log) list(ctx context.Context, id *int64, wish *string, before *int64, limit int) ([]Rewind, error) {
	rows, _ := l.pool.Query(ctx, l.sql.rewinds, unplanned, id, wish, before, limit) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, scanRewind)
	if err != nil {
		return nil, fmt.Errorf("read rewinds: %w", err)
	}
	return all, nil
}

func scanRewind(row pgx.CollectableRow) (r Rewind, err error) {
	var since, until, ended *time.Time
	err = row.Scan(&r.ID, &r.Kind, &r.CreatedAt, &r.Actor, &r.Reason, &since, &until, &r.Types, &r.Keys, &r.First, &r.Last, &r.Rate,
		&r.State, &r.Events, &r.Published, &r.Skipped, &r.Held, &ended)
	r.Since, r.Until, r.EndedAt = timeOf(since), timeOf(until), timeOf(ended)
	return r, err
}

// timeOf returns a time, zero for none.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// when returns a time, nil for none.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// texts returns a list, nil for an empty one.
func texts(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}
