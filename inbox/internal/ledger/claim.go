package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Held is a held event that was claimed, or is to be run along with one that was.
type Held struct {
	delivery.Task

	Handler   string
	ID, Epoch int64
	Solitary  bool
	Revision  int32
	Last      int // the attempt after which it is dead, where an operator said so

	Blocking string // the key that waits for it, or nothing
	Pos      int64  // in that key
	Followed bool   // others waited behind it when it was claimed

	Headers, Raw []byte // as they are stored
}

// Size is how many bytes it has in memory, by and large.
func (h *Held) Size() int64 { return int64(len(h.Event.Data) + len(h.Headers) + len(h.Raw)) }

// readHeld reads held events.
func readHeld(rows pgx.Rows) ([]Held, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Held, error) {
		h := Held{Task: delivery.Task{Retried: true}}
		ev := &h.Event
		var key, correlation, causation, parent, state, blocking *string
		var pos *int64
		var last *int
		err := row.Scan(&h.Handler, &h.ID, &h.Epoch, &h.Attempt, &h.Solitary, &h.Key, (*instant)(&ev.LoggedAt), &ev.Source, &ev.ID,
			&ev.Type, &ev.Subject, &key, &ev.ContentType, &correlation, &causation, (*instant)(&ev.Time), &parent, &state, &h.Headers, &ev.Data, &h.Raw, &h.Revision, &last, &blocking, &pos, &h.Followed)
		ev.Key, ev.CorrelationID, ev.CausationID = value(key), value(correlation), value(causation)
		ev.TraceParent, ev.TraceState = value(parent), value(state)
		h.Blocking, h.Pos, h.Last = value(blocking), value(pos), value(last)
		return h, err
	})
}

// intoHeld has readHeld read into rows.
func intoHeld(into *[]Held) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = readHeld(rows)
		return err
	}
}

// instant scans a time. NULL and infinity stay zero: a row in which somebody wrote that
// must not keep others from being claimed.
type instant time.Time

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (i *instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i = instant{}
	if v.Valid && v.InfinityModifier == pgtype.Finite {
		*i = instant(v.Time)
	}
	return nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Wishes are the parameters of claim.sql.
type Wishes struct {
	Handlers        []string
	Most            []int32
	Leases          []time.Duration
	Types, Subjects []*string
	Spared          []int32
	Bytes           []int64
	Idle            []bool
}

// arguments are those that claim.sql and claim_alone.sql have in common.
func (w *Wishes) arguments(process string) []any {
	return []any{process, w.Handlers, w.Most, w.Leases, w.Types, w.Subjects, w.Spared}
}

// Due is what due.sql returns.
type Due struct {
	Wait  *float64 // seconds; nil where nothing is held that is due later
	Alone bool
}

// Claim claims events for a process, asks what is due next, and takes dry runs that were
// asked for, in one round trip.
func (db *DB) Claim(ctx context.Context, process string, w *Wishes, room int) (claims []Held, asked []Trial, next Due, err error) {
	err = db.sendClaim(ctx, func(batch *pgx.Batch) {
		batch.Queue(db.sql.claim, append(w.arguments(process), w.Bytes, w.Idle)...).Query(intoHeld(&claims))
		batch.Queue(db.sql.due, w.Handlers, w.Types, w.Subjects, w.Spared).QueryRow(func(row pgx.Row) error {
			return row.Scan(&next.Wait, &next.Alone)
		})
		batch.Queue(db.sql.trials, process, w.Handlers, room, w.Types, w.Subjects).Query(func(rows pgx.Rows) error {
			var tr Trial
			_, err := pgx.ForEachRow(rows, []any{&tr.ID, &tr.Handler, &tr.held}, func() error {
				asked = append(asked, tr)
				return nil
			})
			return err
		})
	})
	if err != nil {
		return nil, nil, Due{}, fmt.Errorf("claim held events: %w", err)
	}
	return claims, asked, next, nil
}

// ClaimAlone claims one event that may end the process.
func (db *DB) ClaimAlone(ctx context.Context, process string, w *Wishes) (claims []Held, err error) {
	err = db.sendClaim(ctx, func(batch *pgx.Batch) {
		batch.Queue(db.sql.claimAlone, w.arguments(process)...).Query(intoHeld(&claims))
	})
	if err != nil {
		return nil, fmt.Errorf("claim an event that runs alone: %w", err)
	}
	return claims, nil
}

// sendClaim sends statements that claim, in one transaction and one round trip.
func (db *DB) sendClaim(ctx context.Context, queue func(batch *pgx.Batch)) error {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(db.sql.plan)
	queue(batch)
	return db.pool.SendBatch(ctx, batch).Close()
}

// Orphans gives back what was claimed for a process without its knowledge.
func (db *DB) Orphans(ctx context.Context, process string, handlers []string, known []int64) error {
	if _, err := db.pool.Exec(ctx, db.sql.orphans, process, handlers, append([]int64{}, known...)); err != nil {
		return fmt.Errorf("give back claims whose answer was lost: %w", err)
	}
	return nil
}

// Renew renews claims, and returns the ids of those that are still this process's.
func (db *DB) Renew(ctx context.Context, ids, epochs []int64, lease time.Duration) (kept []int64, err error) {
	batch := &pgx.Batch{}
	batch.Queue(db.sql.plan)
	batch.Queue(db.sql.renew, ids, epochs, lease).Query(func(rows pgx.Rows) (err error) {
		kept, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err := db.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("renew claims: %w", err)
	}
	return kept, nil
}

// Release gives a claim back.
func (db *DB) Release(ctx context.Context, id, epoch int64) error {
	_, err := db.pool.Exec(ctx, db.sql.release, id, epoch)
	return delivery.Written(err)
}

// Settlement is an event that is settled, with others, by itself.
type Settlement struct {
	ID, Epoch int64
	Settled   bool
}

// SettleMany is one statement for events that settle with no effects of their own.
func (db *DB) SettleMany(ctx context.Context, all []*Settlement) error {
	ids, epochs := make([]int64, len(all)), make([]int64, len(all))
	byClaim := make(map[[2]int64]*Settlement, len(all))
	for i, s := range all {
		ids[i], epochs[i], byClaim[[2]int64{s.ID, s.Epoch}] = s.ID, s.Epoch, s
	}
	batch := &pgx.Batch{}
	batch.Queue(db.sql.plan)
	batch.Queue(db.sql.settleMany, ids, epochs).Query(func(rows pgx.Rows) error {
		var of [2]int64
		_, err := pgx.ForEachRow(rows, []any{&of[0], &of[1]}, func() error {
			byClaim[of].Settled = true
			return nil
		})
		return err
	})
	return db.pool.SendBatch(ctx, batch).Close()
}

// exec runs statements in one transaction and one round trip.
func (db *DB) exec(ctx context.Context, statements []Statement) ([]pgconn.CommandTag, error) {
	batch := &pgx.Batch{}
	for _, s := range statements {
		batch.Queue(s.sql, s.args...)
	}
	results := db.pool.SendBatch(ctx, batch)
	tags := make([]pgconn.CommandTag, len(statements))
	var err error
	for i := range statements {
		if tags[i], err = results.Exec(); err != nil {
			break
		}
	}
	return tags, errors.Join(err, results.Close())
}
