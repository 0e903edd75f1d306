package inbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// holding says how an event is held.
type holding struct {
	failure  *failure       // nil where nothing failed
	attempts int            // made so far
	after    *time.Duration // when the next one is due; nil for a dead event
	solitary bool
	raw      bool // keep the headers as they came
	behind   bool // only behind an earlier event of its key
	decided  bool // its ledger row is there: a handler committed it
}

// now is the wait of an event that is due at once.
var now = new(time.Duration)

// failed returns how an event is held after an attempt that failed.
func (c *consumer) failed(attempts, most int, f failure) holding {
	return holding{failure: &f, attempts: attempts, after: f.next(&c.sub, attempts, most)}
}

// aside returns how a delivery is held that must not take the straight path, and
// whether it is one.
func (c *consumer) aside(d *delivery) (holding, bool) {
	switch {
	case d.fault != nil:
		return holding{failure: d.fault, raw: d.fault.class == classUndecodable}, true
	case d.rewound && c.isOrdered():
		return lateHolding, true
	case c.isTooOld(d):
		return holding{failure: &failure{class: classTooOld, permanent: true, text: fmt.Sprintf(
			"logged at %s: the ledger, which keeps rows for %s, cannot tell whether it was decided",
			d.ev.LoggedAt.UTC().Format(time.RFC3339), c.inbox.cfg.Ledger)}}, true
	case d.delivered > suspectAfter || d.term.suspects():
		// It may be what ends the processes that take it, or it only stood beside that.
		return holding{after: now, solitary: true}, true
	}
	return holding{}, false
}

// suspectAfter is how often an event is delivered before it is run alone. The
// broker counts deliveries, not attempts, and those of a process killer's
// neighbours too.
const suspectAfter = 3

// isTooOld reports whether a ledger row of the event may have expired. What was
// in the stream when the handler was new never had one.
func (c *consumer) isTooOld(d *delivery) bool {
	logged := d.ev.LoggedAt
	if d.stored.Before(logged) {
		logged = d.stored
	}
	return !d.ageless && c.inbox.clock.now().Sub(logged) > c.inbox.cfg.AgeGate
}

// fate is what became of an event that was to be held; hold.sql has what each means.
type fate string

const (
	fateHeld    fate = "held"
	fateDecided fate = "decided"
	fateFree    fate = "free"
	fateLate    fate = "late"
	fateStale   fate = "stale"
)

// store holds events that are not decided yet, or one that is, and returns what became
// of each.
func (in *Inbox) store(ctx context.Context, events ...owed) ([]fate, error) {
	hold, err := in.holdStatement(!events[0].h.decided, events...) // one that is decided comes alone
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	var fates []fate
	batch := &pgx.Batch{}
	batch.Queue(in.sql.generic)
	batch.Queue(hold.sql, hold.args...).Query(func(rows pgx.Rows) (err error) {
		fates, err = pgx.CollectRows(rows, pgx.RowTo[fate])
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
	c *consumer
	d *delivery
	h holding
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
	if f := o.h.failure; f != nil {
		class, fingerprint = &f.class, f.fingerprint(o.c.sub.Name, o.d.ev)
		if document, err = f.document(); err != nil {
			return fmt.Errorf("encode failure: %w", err)
		}
	}
	ev := &o.d.ev
	if len(ev.Headers) > 0 {
		text, err := json.Marshal(ev.Headers)
		if err != nil {
			return fmt.Errorf("encode headers: %w", err)
		}
		headers = string(text)
	}
	if o.h.raw {
		raw = rawHeaders(o.d.msg.Headers())
	}
	data := ev.Data
	if data == nil {
		data = []byte{} // it is never NULL
	}
	cs.handlers, cs.keys, cs.digests = append(cs.handlers, o.c.sub.Name), append(cs.keys, o.d.key), append(cs.digests, o.d.digest)
	cs.positions, cs.after = append(cs.positions, optional(o.d.pos)), append(cs.after, o.h.after)
	cs.attempts = append(cs.attempts, int32(min(o.h.attempts, maxAttempts))) //nolint:gosec // bounded just here
	cs.solitary, cs.classes = append(cs.solitary, o.h.solitary), append(cs.classes, class)
	cs.fingerprints, cs.failures = append(cs.fingerprints, fingerprint), append(cs.failures, optional(document))
	cs.logged, cs.sources, cs.ids = append(cs.logged, optional(ev.LoggedAt)), append(cs.sources, ev.Source), append(cs.ids, ev.ID)
	cs.types, cs.subjects, cs.eventKeys = append(cs.types, ev.Type), append(cs.subjects, ev.Subject), append(cs.eventKeys, optional(ev.Key))
	cs.contentTypes = append(cs.contentTypes, ev.ContentType)
	cs.correlations, cs.causations = append(cs.correlations, optional(ev.CorrelationID)), append(cs.causations, optional(ev.CausationID))
	cs.occurred = append(cs.occurred, optional(ev.Time))
	cs.parents, cs.states = append(cs.parents, optional(ev.TraceParent)), append(cs.states, optional(ev.TraceState))
	cs.headers, cs.data, cs.raw = append(cs.headers, optional(headers)), append(cs.data, data), append(cs.raw, raw)
	cs.blocking, cs.behind = append(cs.blocking, optional(o.c.blocks(o.d, o.h))), append(cs.behind, o.h.behind)
	var epoch int64
	if o.d.term != nil {
		epoch = o.d.term.epoch
	}
	cs.epochs = append(cs.epochs, epoch)
	return nil
}

// optional is nil for a zero value.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// conflicting returns the delivery as it is held when another event was decided
// under its identity.
func conflicting(d *delivery) *delivery {
	other := *d
	other.key = d.key + "#" + hex.EncodeToString(d.digest)
	return &other
}

var conflictHolding = holding{failure: &failure{
	class: classConflict, permanent: true, text: "another event with this source and id was decided before",
}}

var lateHolding = holding{failure: &failure{
	class: classLate, permanent: true, text: "later events of its key may have taken effect: the broker lost it, and it came again",
}}

// rawHeaders returns headers as lines of name and value.
func rawHeaders(header map[string][]string) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			b.WriteString(name + ": " + value + "\r\n")
		}
	}
	return b.Bytes()
}

// parseHeaders reverses rawHeaders.
func parseHeaders(raw []byte) map[string][]string {
	header := make(map[string][]string)
	for line := range strings.SplitSeq(string(raw), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			header[name] = append(header[name], value)
		}
	}
	return header
}

// same reports whether what was decided under the identity of an event is that
// event, and not another. A row that has expired since says nothing against it.
func (c *consumer) same(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, t task,
) (same bool, err error) {
	if t.digest == nil {
		return true, nil
	}
	err = db.QueryRow(ctx, c.inbox.sql.decided, c.sub.Name, t.key, t.digest).Scan(&same)
	if err != nil {
		return false, fmt.Errorf("compare ledger row: %w", err)
	}
	return same, nil
}
