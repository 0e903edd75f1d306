package outbox

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/postroom/postroom"
)

// newRow is an event that is filled and valid, and what its row has besides.
type newRow struct {
	postroom.Event
	digest  []byte
	headers *string // as JSON; nil where there are none
}

func makeRow(ev postroom.Event) (newRow, error) {
	r := newRow{Event: ev, digest: contentDigest(ev)}
	if r.Data == nil {
		r.Data = []byte{} // nil would be NULL
	}
	if len(ev.Headers) > 0 {
		text, err := json.Marshal(ev.Headers)
		if err != nil {
			return newRow{}, fmt.Errorf("encode headers: %w", err)
		}
		r.headers = optional(string(text))
	}
	return r, nil
}

// parameters returns the parameters of write_one.sql.
func (r newRow) parameters() []any {
	return []any{
		r.Source, r.ID, r.digest, r.Type, r.Subject, optional(r.Key), r.ContentType, optional(r.CorrelationID),
		optional(r.CausationID), optionalTime(r.Time), optionalTime(r.NotBefore), optional(r.TraceParent),
		optional(r.TraceState), r.headers, r.Data,
	}
}

// newRows are the events of one call. All have one source.
type newRows []newRow

// parameters returns the parameters of write.sql: one array for each column,
// which is how any number of rows travels as one statement.
func (rs newRows) parameters() []any {
	return []any{
		rs[0].Source,
		column(rs, func(r newRow) string { return r.ID }),
		column(rs, func(r newRow) []byte { return r.digest }),
		column(rs, func(r newRow) string { return r.Type }),
		column(rs, func(r newRow) string { return r.Subject }),
		column(rs, func(r newRow) *string { return optional(r.Key) }),
		column(rs, func(r newRow) string { return r.ContentType }),
		column(rs, func(r newRow) *string { return optional(r.CorrelationID) }),
		column(rs, func(r newRow) *string { return optional(r.CausationID) }),
		column(rs, func(r newRow) *time.Time { return optionalTime(r.Time) }),
		column(rs, func(r newRow) *time.Time { return optionalTime(r.NotBefore) }),
		column(rs, func(r newRow) *string { return optional(r.TraceParent) }),
		column(rs, func(r newRow) *string { return optional(r.TraceState) }),
		column(rs, func(r newRow) *string { return r.headers }),
		column(rs, func(r newRow) []byte { return r.Data }),
	}
}

func column[T any](rs newRows, value func(newRow) T) []T {
	values := make([]T, len(rs))
	for i, r := range rs {
		values[i] = value(r)
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
// postroom.content_digest (schema/sql/0002_write.sql) computes the same in SQL.
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
	if !ev.NotBefore.IsZero() {
		digestField(h, strconv.AppendInt([]byte{'@'}, ev.NotBefore.UnixMicro(), 10))
	}
	return h.Sum(nil)[:16]
}

func digestField(h hash.Hash, b []byte) {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(b))) //nolint:gosec // a field is at most MaxData long
	h.Write(length[:])
	h.Write(b)
}
