package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Claims has the statements that claim held events for a process.
type Claims struct{ *DB }

// readHeld reads held events.
func readHeld(rows pgx.Rows) ([]delivery.HeldEvent, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (delivery.HeldEvent, error) {
		h := delivery.HeldEvent{Task: delivery.Task{Retried: true}}
		ev := &h.Event
		var key, correlation, causation, parent, state, blocking, class, text *string
		var pos *int64
		var last *int
		var snoozed *float64 // seconds
		err := row.Scan(&h.Handler, &h.ID, &h.Epoch, &h.Attempt, &h.Solitary, &h.Key, (*delivery.Instant)(&ev.LoggedAt), &ev.Source, &ev.ID,
			&ev.Type, &ev.Subject, &key, &ev.ContentType, &correlation, &causation, (*delivery.Instant)(&ev.Time), &parent, &state, &h.Headers, &ev.Data, &h.Raw, &h.Revision, &last, &blocking, &pos, &h.Followed, &snoozed,
			&h.RanOut, &class, &text)
		ev.Key, ev.CorrelationID, ev.CausationID = value(key), value(correlation), value(causation)
		ev.TraceParent, ev.TraceState = value(parent), value(state)
		h.Blocking, h.Pos, h.Last = value(blocking), value(pos), value(last)
		h.Class, h.Text = value(class), value(text)
		h.Snoozed = time.Duration(min(value(snoozed), maxSnoozed) * float64(time.Second))
		return h, err
	})
}

// maxSnoozed limits the time, in seconds, for which an event has been snoozed, because an operator
// may have written any time into the event's row.
const maxSnoozed = 1e9

// intoHeld returns a function that reads rows with readHeld and stores the events in *into.
func intoHeld(into *[]delivery.HeldEvent) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = readHeld(rows)
		return err
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// claimArguments are the parameters that claim.sql and claim_alone.sql have in common.
func claimArguments(process string, w *delivery.Wishes) []any {
	return []any{process, w.Handlers, w.Most, w.Leases, w.Types, w.Subjects, w.Spared}
}

// Claim claims events for a process, asks what is due next, and takes requested dry runs,
// in one round trip.
func (db Claims) Claim(ctx context.Context, process string, w *delivery.Wishes, room int) (claims []delivery.HeldEvent, asked []delivery.DryRun, next delivery.Due, err error) {
	err = db.sendClaim(ctx, func(batch *pgx.Batch) {
		batch.Queue(db.sql.Claim, append(claimArguments(process, w), w.Bytes, w.Idle)...).Query(intoHeld(&claims))
		open := w.Unpaused()
		batch.Queue(db.sql.Due, open.Handlers, open.Types, open.Subjects, open.Spared).QueryRow(func(row pgx.Row) error {
			return row.Scan(&next.Wait, &next.Alone)
		})
		batch.Queue(db.sql.Trials, process, w.Handlers, room, w.Types, w.Subjects).Query(func(rows pgx.Rows) error {
			var tr delivery.DryRun
			_, err := pgx.ForEachRow(rows, []any{&tr.ID, &tr.Handler, &tr.Held}, func() error {
				asked = append(asked, tr)
				return nil
			})
			return err
		})
	})
	if err != nil {
		return nil, nil, delivery.Due{}, fmt.Errorf("claim held events: %w", err)
	}
	return claims, asked, next, nil
}

// ClaimAlone claims one event that may end the process.
func (db Claims) ClaimAlone(ctx context.Context, process string, w *delivery.Wishes) (claims []delivery.HeldEvent, err error) {
	err = db.sendClaim(ctx, func(batch *pgx.Batch) {
		batch.Queue(db.sql.ClaimAlone, claimArguments(process, w)...).Query(intoHeld(&claims))
	})
	if err != nil {
		return nil, fmt.Errorf("claim an event that runs alone: %w", err)
	}
	return claims, nil
}

// sendClaim sends statements that claim or postpone events, in one transaction and one round trip.
func (db Claims) sendClaim(ctx context.Context, queue func(batch *pgx.Batch)) error {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(db.sql.Plan)
	queue(batch)
	return db.pool.SendBatch(ctx, batch).Close()
}

// Postpone looks at the events of a handler that have been due longest; the parameter most limits
// their number. It postpones the events with a key of p, and returns their number for each key.
func (db Claims) Postpone(ctx context.Context, handler string, p delivery.Postponement, most int) (map[string]int, error) {
	moved := make(map[string]int, len(p.Keys))
	err := db.sendClaim(ctx, func(batch *pgx.Batch) {
		batch.Queue(db.sql.Postpone, handler, p.Keys, p.First, p.Pace, most, p.Since).Query(func(rows pgx.Rows) error {
			var key string
			var n int
			_, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error {
				moved[key] = n
				return nil
			})
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("postpone held events: %w", err)
	}
	return moved, nil
}

// Orphans gives up those claims of a process that the process does not know of. It asks the function
// knows about each claim after it has read the claims, because a worker may make a claim meanwhile.
func (db Claims) Orphans(ctx context.Context, process string, handlers []string, knows func(id, epoch int64) bool) error {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	var id, epoch int64
	unknown := &pgx.Batch{}
	rows, _ := db.pool.Query(ctx, db.sql.Orphans, process, handlers) // ForEachRow reports the error
	_, err := pgx.ForEachRow(rows, []any{&id, &epoch}, func() error {
		//guard:orphans-are-unknown-to-their-process true
		if !knows(id, epoch) {
			unknown.Queue(db.sql.Release, id, epoch, time.Duration(0))
		}
		return nil
	})
	if err == nil && unknown.Len() > 0 {
		err = db.pool.SendBatch(ctx, unknown).Close()
	}
	if err != nil {
		return fmt.Errorf("give back claims whose answer was lost: %w", err)
	}
	return nil
}

// GiveBack gives attempts back to events of a handler, and returns the events that got them.
func (db Claims) GiveBack(ctx context.Context, handler string, events []string, attempts []int) (given []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	read := func(rows pgx.Rows) (err error) {
		given, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(db.sql.GiveBack, handler, events, attempts).Query(read)
	id, err := db.known(ctx, batch)
	//guard:attempts-are-given-back-once 1 false
	if id != "" && err != nil && !delivery.IsRefused(err) { // it may have committed
		rows, _ := db.pool.Query(ctx, db.sql.Given, handler, events, id) // CollectRows reports the error
		err = read(rows)
	}
	if err != nil {
		return nil, fmt.Errorf("give attempts back: %w", err)
	}
	return given, nil
}

// Renew renews claims, and returns the ids of the claims that this process still has.
func (db Claims) Renew(ctx context.Context, ids, epochs []int64, lease time.Duration) (kept []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(db.sql.Plan)
	batch.Queue(db.sql.Renew, ids, epochs, lease).Query(func(rows pgx.Rows) (err error) {
		kept, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err := db.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("renew claims: %w", err)
	}
	return kept, nil
}

// Release gives up a claim. The event is due again after the given time.
func (db Claims) Release(ctx context.Context, id, epoch int64, after time.Duration) error {
	_, err := db.pool.Exec(ctx, db.sql.Release, id, epoch, after)
	return delivery.Written(err)
}
