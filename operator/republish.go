package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/seqset"
)

var (
	// ErrNoEvents says that the log has none of the events of a request.
	ErrNoEvents = errors.New("the log has no such events")

	// ErrNoRepublish says that a republish does not exist, or is not running.
	ErrNoRepublish = errors.New("no such republish")

	// ErrNoFilter says that a request has no condition, and that it would publish all events again: set a
	// condition, or All.
	ErrNoFilter = errors.New("the request has no condition: set one, or All for all events of the log")

	// ErrRepublishRunning says that a republish of the same request runs, and lacks some of the events. A
	// request for the last two hours, for instance, has other events an hour later.
	ErrRepublishRunning = errors.New("a republish of the same request still runs, and has not all of the events")
)

// The mode unplanned sends a statement in one piece and keeps no plan, because the database may be
// behind a transaction pooler.
const unplanned = pgx.QueryExecModeExec

// Republish stores a request. The leading relay publishes its events again, beside live events and
// in the order of the log. Each copy has the header of the republish and a new message id, so that
// the broker does not drop the copy as a duplicate. Handlers recognise the event by its source and
// id, and do not apply it twice.
//
// Republish returns as soon as the request is stored. [Store.FindRepublish] returns the progress.
// The relay carries out one republish after the other. While a republish of the same request runs,
// Republish returns that one if it has all of the events, and [ErrRepublishRunning] if not. If the
// log has none of the events, Republish returns [ErrNoEvents].
func (s *Store) Republish(ctx context.Context, req RepublishRequest, by postroom.Audit) (Republish, error) {
	req = req.defaults()
	if err := errors.Join(s.err, req.validate(), change.Valid(by)); err != nil {
		return Republish{}, fmt.Errorf("operator: republish: %w", err)
	}
	//guard:a-republish-without-a-condition-is-refused false
	if !req.All && !req.selects() {
		return Republish{}, fmt.Errorf("operator: republish: %w", ErrNoFilter)
	}
	r, err := s.republish(ctx, req, by)
	if err != nil {
		return r, fmt.Errorf("operator: republish: %w", s.tables.Explain(err))
	}
	return r, nil
}

// republish is Republish for a valid request.
func (s *Store) republish(ctx context.Context, req RepublishRequest, by postroom.Audit) (Republish, error) {
	p, err := s.preview(ctx, req)
	switch {
	case err != nil:
		return Republish{}, err
	case p.Running != nil:
		return p.Running.instead(p)
	case p.Events == 0:
		return Republish{Log: &p.Log}, ErrNoEvents
	}
	asked := map[string]any{"since": given(req.Since), "until": given(req.Until), "types": req.Types, "keys": req.Keys, "rate": req.Rate}
	r, err := s.create(ctx, req.digest(), asked, by, "range", given(req.Since), given(req.Until), texts(req.Types), texts(req.Keys),
		p.First, p.Last, nil, p.Events, req.Rate)
	if err == nil && r.AlreadyRunning { // since the preview
		return r.instead(p)
	}
	r.Log = &p.Log
	return r, err
}

// instead returns the running republish r in the place of a new one for the events of a preview, or
// ErrRepublishRunning if r lacks some of them.
func (r Republish) instead(p RepublishPreview) (Republish, error) {
	//guard:a-republish-of-other-events-is-not-the-same false
	if p.Events > 0 && (p.First < r.First || p.Last > r.Last || p.Events > r.Events) {
		return Republish{}, fmt.Errorf("%w: republish %d has the events with seqs %d to %d, and these are %d to %d", ErrRepublishRunning, r.ID, r.First, r.Last, p.First, p.Last)
	}
	r.Log = &p.Log
	return r, nil
}

// maxRanges is the most ranges of seqs in one republish. The relay reads all of them for each page of
// the republish.
const maxRanges = 5000

// RepublishSeqs is [Store.Republish] for events that a comparison found missing: the events with
// these seqs, in the order of the seqs, at most rate of them in a second. A rate of 0 is
// [DefaultRate]. The relay ignores seqs that the log lacks, but Republish.Events counts them. If the
// seqs are more than a few thousand ranges, RepublishSeqs stores several republishes. The relay
// carries them out in the order in which they are returned. If RepublishSeqs fails, it may have
// stored some.
func (s *Store) RepublishSeqs(ctx context.Context, seqs []int64, rate float64, by postroom.Audit) (stored []Republish, err error) {
	rate = cmp.Or(rate, DefaultRate)
	if err := errors.Join(s.err, checkRate(rate), change.Valid(by)); err != nil {
		return nil, fmt.Errorf("operator: republish: %w", err)
	}
	set := seqset.Of(slices.Clone(seqs))
	if len(set) == 0 {
		//guard:a-request-of-nothing-is-refused 2 = nil
		return nil, fmt.Errorf("operator: republish: %w", ErrNoEvents)
	}
	//guard:a-republish-has-a-limited-list = slices.Values([]seqset.Set{set})
	for part := range slices.Chunk(set, maxRanges) {
		first, last, all := part[0].Lo, part[len(part)-1].Hi, part.String()
		asked := map[string]any{"first_seq": first, "last_seq": last, "rate": rate}
		r, err := s.create(ctx, digestOf("reconcile", all), asked, by, "reconcile", nil, nil, nil, nil,
			first, last, all, part.Size(), rate)
		if err != nil {
			return stored, fmt.Errorf("operator: republish: %w", s.tables.Explain(err))
		}
		stored = append(stored, r)
	}
	return stored, nil
}

// create stores a republish with its audit row. If a republish with the same digest runs, it
// returns that one. The slice args has the parameters of republish.sql from kind to rate.
func (s *Store) create(ctx context.Context, digest string, asked map[string]any, by postroom.Audit, args ...any) (Republish, error) {
	details, err := json.Marshal(asked)
	if err != nil {
		return Republish{}, fmt.Errorf("encode request: %w", err)
	}
	args = slices.Concat([]any{unplanned, by.Actor, by.Reason}, args, []any{digest, string(details)})
	for {
		r, err := s.change(ctx, s.sql.Republish, args...)
		if !errors.Is(err, pgx.ErrNoRows) {
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

// change runs a statement that changes a republish, and returns this republish.
func (s *Store) change(ctx context.Context, sql string, args ...any) (r Republish, err error) {
	err = s.tables.InTx(ctx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, sql, args...) // CollectOneRow reports the error
		r, err = pgx.CollectOneRow(rows, scanRepublish)
		return err
	})
	return r, err
}

// PreviewRepublish returns what [Store.Republish] would publish, and whether the log may lack some
// of the events. It changes nothing. It reads the events of the requested time in several steps.
func (s *Store) PreviewRepublish(ctx context.Context, req RepublishRequest) (RepublishPreview, error) {
	req = req.defaults()
	if err := errors.Join(s.err, req.validate()); err != nil {
		return RepublishPreview{}, fmt.Errorf("operator: preview: %w", err)
	}
	p, err := s.preview(ctx, req)
	if err != nil {
		return p, fmt.Errorf("operator: preview: %w", s.tables.Explain(err))
	}
	return p, nil
}

// Republishes returns a page of the republishes, the newest first, and where the next page begins.
// With the last page, next is empty.
func (s *Store) Republishes(ctx context.Context, p postroom.Page) (republishes []Republish, next string, err error) {
	limit, errLimit := change.Limit(p)
	before, errAfter := change.Before(p)
	if err := errors.Join(s.err, errLimit, errAfter); err != nil {
		return nil, "", fmt.Errorf("operator: republishes: %w", err)
	}
	republishes, err = s.list(ctx, nil, nil, before, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("operator: republishes: %w", s.tables.Explain(err))
	}
	republishes, next = change.Next(republishes, limit, func(r Republish) int64 { return r.ID })
	return republishes, next, nil
}

// FindRepublish returns a republish by its id, or [ErrNoRepublish].
func (s *Store) FindRepublish(ctx context.Context, id int64) (Republish, error) {
	if s.err != nil {
		return Republish{}, s.err
	}
	all, err := s.list(ctx, &id, nil, nil, 1)
	if err == nil && len(all) == 0 {
		err = ErrNoRepublish
	}
	if err != nil {
		return Republish{}, fmt.Errorf("operator: find republish %d: %w", id, s.tables.Explain(err))
	}
	return all[0], nil
}

// CancelRepublish ends a republish. About a second later, the relay stops sending the events to the
// broker. The broker may still store events that were sent before. If the republish is not running,
// CancelRepublish returns [ErrNoRepublish].
func (s *Store) CancelRepublish(ctx context.Context, id int64, by postroom.Audit) (Republish, error) {
	if err := errors.Join(s.err, change.Valid(by)); err != nil {
		return Republish{}, fmt.Errorf("operator: cancel republish: %w", err)
	}
	r, err := s.change(ctx, s.sql.CancelRepublish, unplanned, id, by.Actor, by.Reason)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w runs", ErrNoRepublish)
	}
	if err != nil {
		return Republish{}, fmt.Errorf("operator: cancel republish %d: %w", id, s.tables.Explain(err))
	}
	return r, nil
}

// list runs republishes.sql. A condition that is nil selects all republishes.
func (s *Store) list(ctx context.Context, id *int64, digest *string, before *int64, limit int) ([]Republish, error) {
	rows, _ := s.db.Query(ctx, s.sql.Republishes, unplanned, id, digest, before, limit) // CollectRows reports the error
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
