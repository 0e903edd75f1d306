package ledger

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Store holds events that are not decided yet, or one event that is decided already, and returns
// the fate of each event.
func (db *DB) Store(ctx context.Context, events ...Owed) ([]delivery.Fate, error) {
	hold, err := db.holdStatement(!events[0].H.Decided, events...) // if an event is decided, it is the only one
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	var fates []delivery.Fate
	batch := &pgx.Batch{}
	batch.Queue(db.sql.Generic)
	batch.Queue(hold.sql, hold.args...).Query(func(rows pgx.Rows) (err error) {
		fates, err = pgx.CollectRows(rows, pgx.RowTo[delivery.Fate])
		return err
	})
	for _, archive := range db.archiveStatements(events...) {
		batch.Queue(archive.sql, archive.args...)
	}
	id, err := db.known(ctx, batch)
	if err != nil {
		if id != "" && !delivery.IsRefused(err) {
			for _, o := range events {
				o.D.Doubts = append(o.D.Doubts, delivery.Doubt{ID: id, Held: &o.H})
			}
		}
		return nil, fmt.Errorf("hold events: %w", err)
	}
	return fates, nil
}

// WritePatience is how long a statement of the inbox may take.
const WritePatience = 10 * time.Second

// Owed is an event that must be held.
type Owed struct {
	Handler  string
	Blocking string // the key that it blocks or waits for; "" if there is none
	D        *delivery.Delivery
	H        delivery.Holding
}

// archiveStatements returns the statements that move discarded events to the archive.
// They must run after the statement that holds the events.
func (db *DB) archiveStatements(events ...Owed) (all []Statement) {
	for _, o := range events {
		if o.H.IsDiscarded() {
			all = append(all, db.archiveStatement(o.Handler, o.D.Key, o.H.Failure.Text))
		}
	}
	return all
}

func (db *DB) archiveStatement(handler, key, reason string) Statement {
	return Statement{sql: db.sql.Archive, args: []any{handler, key, reason}}
}

// columns has the parameters of hold.sql except the fourth.
type columns struct {
	handlers, keys                []string
	digests                       [][]byte
	positions                     []*int64
	after                         []*time.Duration
	attempts                      []int32
	solitary                      []bool
	classes                       []*string
	fingerprints                  [][]byte
	failures                      []*string
	logged                        []*time.Time
	sources, ids, types, subjects []string
	eventKeys                     []*string
	contentTypes                  []string
	correlations, causations      []*string
	occurred                      []*time.Time
	parents, states               []*string
	headers                       []*string
	data, raw                     [][]byte
	blocking                      []*string
	behind                        []bool
	epochs                        []int64
	snoozed                       []bool
}

// holdStatement returns hold.sql with parameters for some events.
func (db *DB) holdStatement(decide bool, events ...Owed) (*Statement, error) {
	var cs columns
	for _, o := range events {
		if err := cs.add(o); err != nil {
			return nil, err
		}
	}
	return &Statement{sql: db.sql.Hold, args: []any{
		cs.handlers, cs.keys, cs.digests, decide, cs.positions, cs.after, cs.attempts, cs.solitary, cs.classes, cs.fingerprints, cs.failures,
		cs.logged, cs.sources, cs.ids, cs.types, cs.subjects, cs.eventKeys, cs.contentTypes, cs.correlations, cs.causations,
		cs.occurred, cs.parents, cs.states, cs.headers, cs.data, cs.raw, cs.blocking, cs.behind, cs.epochs, cs.snoozed,
	}}, nil
}

func (cs *columns) add(o Owed) (err error) {
	var class *string
	var fingerprint, raw []byte
	var document string
	if f := o.H.Failure; f != nil {
		class, fingerprint = &f.Class, f.Fingerprint(o.Handler, o.D.Event)
		if document, err = f.Document(); err != nil {
			return fmt.Errorf("encode failure: %w", err)
		}
	}
	ev := &o.D.Event
	headers, err := delivery.EncodeHeaders(ev.Headers)
	if err != nil {
		return err
	}
	if o.H.Raw {
		raw = delivery.RawHeaders(o.D.Msg.Headers())
	}
	cs.handlers, cs.keys, cs.digests = append(cs.handlers, o.Handler), append(cs.keys, o.D.Key), append(cs.digests, o.D.Digest)
	cs.positions, cs.after = append(cs.positions, optional(o.D.Pos)), append(cs.after, o.H.After)
	cs.attempts = append(cs.attempts, int32(min(o.H.Attempts, math.MaxInt32))) //nolint:gosec // bounded just here
	cs.solitary, cs.classes = append(cs.solitary, o.H.Solitary), append(cs.classes, class)
	cs.fingerprints, cs.failures = append(cs.fingerprints, fingerprint), append(cs.failures, optional(document))
	cs.logged, cs.sources, cs.ids = append(cs.logged, optional(ev.LoggedAt)), append(cs.sources, ev.Source), append(cs.ids, ev.ID)
	cs.types, cs.subjects, cs.eventKeys = append(cs.types, ev.Type), append(cs.subjects, ev.Subject), append(cs.eventKeys, optional(ev.Key))
	cs.contentTypes = append(cs.contentTypes, ev.ContentType)
	cs.correlations, cs.causations = append(cs.correlations, optional(ev.CorrelationID)), append(cs.causations, optional(ev.CausationID))
	cs.occurred = append(cs.occurred, optional(ev.Time))
	cs.parents, cs.states = append(cs.parents, optional(ev.TraceParent)), append(cs.states, optional(ev.TraceState))
	cs.headers, cs.data, cs.raw = append(cs.headers, headers), append(cs.data, notNull(ev.Data)), append(cs.raw, raw)
	cs.blocking, cs.behind = append(cs.blocking, optional(o.Blocking)), append(cs.behind, o.H.Behind)
	cs.epochs, cs.snoozed = append(cs.epochs, o.D.Epoch()), append(cs.snoozed, o.H.Failure != nil && o.H.Failure.Snoozed)
	return nil
}

// notNull returns the data of an event for a column that is not nullable.
func notNull(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// Same reports whether the event that the inbox decided is this event, and not another event with
// the same identity. If the row has expired meanwhile, Same returns true.
func (db *DB) Same(ctx context.Context, handler string, t delivery.Task) (same bool, err error) {
	if t.Digest == nil {
		return true, nil
	}
	err = db.pool.QueryRow(ctx, db.sql.Decided, handler, t.Key, t.Digest).Scan(&same)
	if err != nil {
		return false, fmt.Errorf("compare inbox row: %w", err)
	}
	return same, nil
}
