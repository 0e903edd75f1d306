package outbox

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/postroom/postroom"
)

// jsonType is the column's default, too.
const jsonType = "application/json"

// newRow is an event that is filled and valid, and what its row has besides.
type newRow struct {
	postroom.Event
	digest  []byte
	headers *string // as JSON; nil where there are none
	made    bool    // its id was made here
}

// encode sets what the row has besides the event.
func (r *newRow) encode() error {
	r.digest = contentDigest(r.Event)
	if r.Data == nil {
		r.Data = []byte{} // nil would be NULL
	}
	if len(r.Headers) > 0 {
		text, err := json.Marshal(r.Headers)
		if err != nil {
			return fmt.Errorf("encode headers: %w", err)
		}
		r.headers = optional(string(text))
	}
	return nil
}

// isNew reports whether nobody else can have written the event, and insert_new.sql has
// all that it has.
func (r *newRow) isNew() bool {
	return r.made && r.CorrelationID == "" && r.CausationID == "" && r.TraceState == "" &&
		r.headers == nil && r.Time.IsZero() && r.NotBefore.IsZero()
}

// isUsual reports whether insert_usual.sql has all that a new event has.
func (r *newRow) isUsual() bool { return r.Subject == r.Type && r.ContentType == jsonType }

// usualParameters returns the parameters of insert_usual.sql.
func (r *newRow) usualParameters() []any {
	return []any{r.Source, r.ID, r.digest, r.Type, orNull(r.Key), orNull(r.TraceParent), r.Data}
}

// newParameters returns the parameters of insert_new.sql.
func (r *newRow) newParameters() []any {
	return []any{r.Source, r.ID, r.digest, r.Type, r.Subject, orNull(r.Key), r.ContentType, orNull(r.TraceParent), r.Data}
}

// parameters returns the parameters of insert_one.sql and write_one.sql.
func (r *newRow) parameters() []any {
	parameters := []any{
		r.Source, r.ID, r.digest, r.Type, r.Subject, orNull(r.Key), r.ContentType, orNull(r.CorrelationID),
		orNull(r.CausationID), nil, nil, orNull(r.TraceParent), orNull(r.TraceState), nil, r.Data,
	}
	if !r.Time.IsZero() {
		parameters[9] = r.Time
	}
	if !r.NotBefore.IsZero() {
		parameters[10] = r.NotBefore
	}
	if r.headers != nil {
		parameters[13] = *r.headers
	}
	return parameters
}

// orNull returns s, or nil if it is empty. A driver encodes that in less time
// than a nil pointer.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// newRows are the events of one call. All have one source.
type newRows []newRow

// parameters returns the parameters of write.sql: one array for each column,
// which is how any number of rows travels as one statement.
func (rs newRows) parameters() []any {
	return []any{
		rs[0].Source,
		rs.ids(),
		rs.digests(),
		column(rs, func(r *newRow) string { return r.Type }),
		column(rs, func(r *newRow) string { return r.Subject }),
		column(rs, func(r *newRow) *string { return optional(r.Key) }),
		column(rs, func(r *newRow) string { return r.ContentType }),
		column(rs, func(r *newRow) *string { return optional(r.CorrelationID) }),
		column(rs, func(r *newRow) *string { return optional(r.CausationID) }),
		column(rs, func(r *newRow) *time.Time { return optionalTime(r.Time) }),
		column(rs, func(r *newRow) *time.Time { return optionalTime(r.NotBefore) }),
		column(rs, func(r *newRow) *string { return optional(r.TraceParent) }),
		column(rs, func(r *newRow) *string { return optional(r.TraceState) }),
		column(rs, func(r *newRow) *string { return r.headers }),
		column(rs, func(r *newRow) []byte { return r.Data }),
	}
}

func (rs newRows) ids() []string     { return column(rs, func(r *newRow) string { return r.ID }) }
func (rs newRows) digests() [][]byte { return column(rs, func(r *newRow) []byte { return r.digest }) }

func column[T any](rs newRows, value func(*newRow) T) []T {
	values := make([]T, len(rs))
	for i := range rs {
		values[i] = value(&rs[i])
	}
	return values
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// contentDigest is the first 16 bytes of SHA-256 over the content of an event:
// type, subject, key, data and user headers, each behind its length, so that no
// two contents read alike. Headers come in the order of their names. A time to
// publish at comes last, behind an '@', with which no header's name begins.
//
// postroom.content_digest (schema/sql/0001_log.sql) computes the same in SQL.
func contentDigest(ev postroom.Event) []byte {
	fields := make([]byte, 0, 256) // hashed in as few pieces as there are without a copy of the data
	fields = appendField(fields, ev.Type)
	fields = appendField(fields, ev.Subject)
	fields = appendField(fields, ev.Key)
	fields = appendLength(fields, len(ev.Data))
	h := sha256.New()
	h.Write(fields)
	h.Write(ev.Data)

	fields = fields[:0]
	if len(ev.Headers) > 0 {
		for _, name := range slices.Sorted(maps.Keys(ev.Headers)) {
			fields = appendField(fields, name)
			fields = appendField(fields, ev.Headers[name])
		}
	}
	if !ev.NotBefore.IsZero() {
		fields = appendField(fields, "@"+strconv.FormatInt(ev.NotBefore.UnixMicro(), 10))
	}
	h.Write(fields)
	return h.Sum(fields[:0])[:16:16]
}

func appendField(fields []byte, field string) []byte {
	return append(appendLength(fields, len(field)), field...)
}

func appendLength(fields []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(fields, uint32(n)) //nolint:gosec // a field is at most MaxData long
}
