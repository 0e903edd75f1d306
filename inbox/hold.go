package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// aside returns how a delivery is held that must not take the straight path, and
// whether it is one.
func (c *loop) aside(d *delivery.Delivery) (delivery.Holding, bool) {
	switch {
	case d.Fault != nil:
		return delivery.Holding{Failure: d.Fault, Raw: d.Fault.Class == delivery.ClassUndecodable}, true
	case d.Place.Rewound && c.isOrdered():
		return delivery.AsLate, true
	case c.isTooOld(d):
		return delivery.Holding{Failure: &delivery.Failure{Class: delivery.ClassTooOld, Permanent: true, Text: fmt.Sprintf(
			"logged at %s: the ledger, which keeps rows for %s, cannot tell whether it was decided",
			d.Event.LoggedAt.UTC().Format(time.RFC3339), c.inbox.cfg.Ledger)}}, true
	case d.Place.Delivered > suspectAfter || d.Source.Suspects():
		// It may be what ends the processes that take it, or it only stood beside that.
		return delivery.Holding{After: delivery.AtOnce, Solitary: true}, true
	}
	return delivery.Holding{}, false
}

// suspectAfter is how often an event is delivered before it is run alone. The
// broker counts deliveries, not attempts, and those of a process killer's
// neighbours too.
const suspectAfter = 3

// isTooOld reports whether a ledger row of the event may have expired. What was
// in the stream when the handler was new never had one.
func (c *loop) isTooOld(d *delivery.Delivery) bool {
	return !d.Place.Ageless && d.Age(c.inbox.clock.now()) > c.inbox.cfg.AgeGate
}

// store holds events that are not decided yet, or one that is, and returns what became
// of each.
func (in *Inbox) store(ctx context.Context, events ...owed) ([]delivery.Fate, error) {
	hold, err := in.holdStatement(!events[0].h.Decided, events...) // one that is decided comes alone
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	var fates []delivery.Fate
	batch := &pgx.Batch{}
	batch.Queue(in.sql.generic)
	batch.Queue(hold.sql, hold.args...).Query(func(rows pgx.Rows) (err error) {
		fates, err = pgx.CollectRows(rows, pgx.RowTo[delivery.Fate])
		return err
	})
	if err := in.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("hold events: %w", err)
	}
	return fates, nil
}

// writePatience is how long a statement of ours may take.
const writePatience = 10 * time.Second

// owed is an event that is to be held.
type owed struct {
	c *loop
	d *delivery.Delivery
	h delivery.Holding
}

// columns are the parameters of hold.sql but for the fourth.
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
}

// holdStatement is hold.sql for some events.
func (in *Inbox) holdStatement(decide bool, events ...owed) (*statement, error) {
	var cs columns
	for _, o := range events {
		if err := cs.add(o); err != nil {
			return nil, err
		}
	}
	return &statement{sql: in.sql.hold, args: []any{
		cs.handlers, cs.keys, cs.digests, decide, cs.positions, cs.after, cs.attempts, cs.solitary, cs.classes, cs.fingerprints, cs.failures,
		cs.logged, cs.sources, cs.ids, cs.types, cs.subjects, cs.eventKeys, cs.contentTypes, cs.correlations, cs.causations,
		cs.occurred, cs.parents, cs.states, cs.headers, cs.data, cs.raw, cs.blocking, cs.behind, cs.epochs,
	}}, nil
}

func (cs *columns) add(o owed) (err error) {
	var class *string
	var fingerprint, raw []byte
	var document, headers string
	if f := o.h.Failure; f != nil {
		class, fingerprint = &f.Class, f.Fingerprint(o.c.sub.Name, o.d.Event)
		if document, err = f.Document(); err != nil {
			return fmt.Errorf("encode failure: %w", err)
		}
	}
	ev := &o.d.Event
	if len(ev.Headers) > 0 {
		text, err := json.Marshal(ev.Headers)
		if err != nil {
			return fmt.Errorf("encode headers: %w", err)
		}
		headers = string(text)
	}
	if o.h.Raw {
		raw = delivery.RawHeaders(o.d.Msg.Headers())
	}
	data := ev.Data
	if data == nil {
		data = []byte{} // it is never NULL
	}
	cs.handlers, cs.keys, cs.digests = append(cs.handlers, o.c.sub.Name), append(cs.keys, o.d.Key), append(cs.digests, o.d.Digest)
	cs.positions, cs.after = append(cs.positions, optional(o.d.Pos)), append(cs.after, o.h.After)
	cs.attempts = append(cs.attempts, int32(min(o.h.Attempts, maxAttempts))) //nolint:gosec // bounded just here
	cs.solitary, cs.classes = append(cs.solitary, o.h.Solitary), append(cs.classes, class)
	cs.fingerprints, cs.failures = append(cs.fingerprints, fingerprint), append(cs.failures, optional(document))
	cs.logged, cs.sources, cs.ids = append(cs.logged, optional(ev.LoggedAt)), append(cs.sources, ev.Source), append(cs.ids, ev.ID)
	cs.types, cs.subjects, cs.eventKeys = append(cs.types, ev.Type), append(cs.subjects, ev.Subject), append(cs.eventKeys, optional(ev.Key))
	cs.contentTypes = append(cs.contentTypes, ev.ContentType)
	cs.correlations, cs.causations = append(cs.correlations, optional(ev.CorrelationID)), append(cs.causations, optional(ev.CausationID))
	cs.occurred = append(cs.occurred, optional(ev.Time))
	cs.parents, cs.states = append(cs.parents, optional(ev.TraceParent)), append(cs.states, optional(ev.TraceState))
	cs.headers, cs.data, cs.raw = append(cs.headers, optional(headers)), append(cs.data, data), append(cs.raw, raw)
	cs.blocking, cs.behind = append(cs.blocking, optional(o.c.blocks(o.d, o.h))), append(cs.behind, o.h.Behind)
	cs.epochs = append(cs.epochs, o.d.Epoch())
	return nil
}

// same reports whether what was decided under the identity of an event is that
// event, and not another. A row that has expired since says nothing against it.
func (c *loop) same(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, t delivery.Task,
) (same bool, err error) {
	if t.Digest == nil {
		return true, nil
	}
	err = db.QueryRow(ctx, c.inbox.sql.decided, c.sub.Name, t.Key, t.Digest).Scan(&same)
	if err != nil {
		return false, fmt.Errorf("compare ledger row: %w", err)
	}
	return same, nil
}
