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

	"github.com/postroom/postroom"
)

// holding says how an event is held.
type holding struct {
	failure  *failure       // nil where nothing failed
	attempts int            // made so far
	after    *time.Duration // when the next one is due; nil for a dead event
	solitary bool
	raw      bool // keep the headers as they came
}

// now is the wait of an event that is due at once.
var now = new(time.Duration)

// failed returns how an event is held after an attempt that failed.
func (c *consumer) failed(attempts int, f failure) holding {
	return holding{failure: &f, attempts: attempts, after: f.next(&c.sub, attempts)}
}

// aside returns how a delivery is held that must not take the straight path, and
// whether it is one.
func (c *consumer) aside(d *delivery) (holding, bool) {
	switch {
	case d.fault != nil:
		return holding{failure: d.fault, raw: d.fault.class == classUndecodable}, true
	case c.isTooOld(d):
		return holding{failure: &failure{class: classTooOld, permanent: true, text: fmt.Sprintf(
			"logged at %s: the ledger, which keeps rows for %s, cannot tell whether it was decided",
			d.ev.LoggedAt.UTC().Format(time.RFC3339), c.inbox.cfg.Ledger)}}, true
	case d.delivered > suspectAfter:
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

// store holds an event that is not decided yet, and reports whether it did: where
// it did not, another process decided it.
func (c *consumer) store(ctx context.Context, d *delivery, h holding) (bool, error) {
	args, err := c.holdArguments(d, h, true)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	tag, err := c.inbox.pool.Exec(ctx, c.inbox.sql.hold, args...)
	if err != nil {
		return false, fmt.Errorf("hold event: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// writePatience is how long a statement of ours may take.
const writePatience = 10 * time.Second

// holdArguments are the parameters of hold.sql.
func (c *consumer) holdArguments(d *delivery, h holding, decide bool) ([]any, error) {
	var class, document, raw any
	var print []byte
	if f := h.failure; f != nil {
		text, err := f.document()
		if err != nil {
			return nil, fmt.Errorf("encode failure: %w", err)
		}
		class, document, print = f.class, text, f.fingerprint(c.sub.Name)
	}
	ev := d.ev
	var headers any
	if len(ev.Headers) > 0 {
		text, err := json.Marshal(ev.Headers)
		if err != nil {
			return nil, fmt.Errorf("encode headers: %w", err)
		}
		headers = text
	}
	if h.raw {
		raw = rawHeaders(d.msg.Headers())
	}
	var pos any
	if d.seq > 0 {
		pos = int64(min(d.seq, 1<<62)) //nolint:gosec // bounded just here
	}
	return []any{
		c.sub.Name, d.key, d.digest, decide, pos, h.after, h.attempts, h.solitary, class, print, document,
		optionalTime(ev.LoggedAt), ev.Source, ev.ID, ev.Type, ev.Subject, optional(ev.Key), ev.ContentType,
		optional(ev.CorrelationID), optional(ev.CausationID), optionalTime(ev.Time), optional(ev.TraceParent), optional(ev.TraceState),
		headers, data(ev), raw,
	}, nil
}

func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func optionalTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// data is never NULL.
func data(ev postroom.Event) []byte {
	if ev.Data == nil {
		return []byte{}
	}
	return ev.Data
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
