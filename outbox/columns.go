package outbox

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wire"
)

// jsonType is the default content type, here and in the table.
const jsonType = "application/json"

// newRow is a complete and valid event, with the values of its row that are not in the event.
type newRow struct {
	postroom.Event
	digest  []byte
	headers *string // as JSON; nil if there are no headers
	made    bool    // this package made the event's id
}

// encode sets the fields digest and headers, and Data if Data is nil.
func (r *newRow) encode() error {
	r.digest = wire.Digest(r.Event)
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

// isNew reports whether insert_new.sql can insert the event. For this, the package must have made
// the event's id, because then the log cannot have the event yet. Also, insert_new.sql must have a
// parameter for each value of the event.
func (r *newRow) isNew() bool {
	return r.made && r.CorrelationID == "" && r.CausationID == "" && r.TraceState == "" &&
		r.headers == nil && r.Time.IsZero() && r.NotBefore.IsZero()
}

// isUsual reports whether insert_usual.sql can insert an event that isNew accepts.
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

// orNull returns s, or nil if s is empty. A driver encodes nil faster than a nil pointer.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// newRows are the events of one call. All events have the same source.
type newRows []newRow

// parameters returns the parameters of write.sql: the source, and an array for each other column.
// With arrays, one statement inserts any number of rows.
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
