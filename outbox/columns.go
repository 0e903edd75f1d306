package outbox

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/postroom/postroom"
)

// columns are events turned into one array for each column, which is how any
// number of rows travels as one statement.
type columns struct {
	id, eventType, subject, contentType []string
	key, correlation, causation         []*string
	traceParent, traceState, headers    []*string
	occurred                            []*time.Time
	digest, data                        [][]byte
}

func newColumns(n int) *columns {
	return &columns{
		id: make([]string, 0, n), eventType: make([]string, 0, n), subject: make([]string, 0, n),
		contentType: make([]string, 0, n), key: make([]*string, 0, n), correlation: make([]*string, 0, n),
		causation: make([]*string, 0, n), traceParent: make([]*string, 0, n), traceState: make([]*string, 0, n),
		headers: make([]*string, 0, n), occurred: make([]*time.Time, 0, n),
		digest: make([][]byte, 0, n), data: make([][]byte, 0, n),
	}
}

// add appends one event, which is filled and valid.
func (c *columns) add(ev postroom.Event, digest []byte) error {
	var headers *string
	if len(ev.Headers) > 0 {
		text, err := json.Marshal(ev.Headers)
		if err != nil {
			return fmt.Errorf("encode headers: %w", err)
		}
		headers = optional(string(text))
	}
	var occurred *time.Time
	if !ev.Time.IsZero() {
		occurred = &ev.Time
	}
	c.id = append(c.id, ev.ID)
	c.eventType = append(c.eventType, ev.Type)
	c.subject = append(c.subject, ev.Subject)
	c.contentType = append(c.contentType, ev.ContentType)
	c.key = append(c.key, optional(ev.Key))
	c.correlation = append(c.correlation, optional(ev.CorrelationID))
	c.causation = append(c.causation, optional(ev.CausationID))
	c.traceParent = append(c.traceParent, optional(ev.TraceParent))
	c.traceState = append(c.traceState, optional(ev.TraceState))
	c.headers = append(c.headers, headers)
	c.occurred = append(c.occurred, occurred)
	c.digest = append(c.digest, digest)
	c.data = append(c.data, append([]byte{}, ev.Data...)) // never nil, which would be NULL
	return nil
}

// arguments returns the parameters of write.sql.
func (c *columns) arguments(source string) []any {
	return []any{
		source, c.id, c.digest, c.eventType, c.subject, c.key, c.contentType, c.correlation, c.causation,
		c.occurred, c.traceParent, c.traceState, c.headers, c.data,
	}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// contentDigest is the first 16 bytes of SHA-256 over the content of an event:
// type, subject, key, data and user headers, each behind its length, so that no
// two contents read alike. Headers come in the order of their names.
func contentDigest(ev postroom.Event) []byte {
	h := sha256.New()
	digestField(h, []byte(ev.Type))
	digestField(h, []byte(ev.Subject))
	digestField(h, []byte(ev.Key))
	digestField(h, ev.Data)
	for _, name := range slices.Sorted(maps.Keys(ev.Headers)) {
		digestField(h, []byte(name))
		digestField(h, []byte(ev.Headers[name]))
	}
	return h.Sum(nil)[:16]
}

func digestField(h hash.Hash, b []byte) {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(b))) //nolint:gosec // a field is at most MaxData long
	h.Write(length[:])
	h.Write(b)
}
