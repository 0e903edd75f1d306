package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/text"
)

// exportRow is a row of export.sql, export_discarded.sql or purge_revisions.sql.
type exportRow struct {
	properties, data, raw []byte

	// The earlier revisions, the original first
	earlier, earlierData, earlierRaw [][]byte
}

// fields returns pointers to the fields, for the driver.
func (e *exportRow) fields() []any {
	return []any{&e.properties, &e.data, &e.raw, &e.earlier, &e.earlierData, &e.earlierRaw}
}

// line returns one event as a line of JSON, and the event's id.
func (e *exportRow) line() (line []byte, id int64, err error) {
	fields, err := exportFields(e.properties, e.data, e.raw)
	if err != nil {
		return nil, 0, err
	}
	if err := json.Unmarshal(fields["id"], &id); err != nil {
		return nil, 0, fmt.Errorf("decode id: %w", err)
	}
	revisions := make([]map[string]json.RawMessage, len(e.earlier))
	for i := range e.earlier {
		if revisions[i], err = exportFields(e.earlier[i], e.earlierData[i], e.earlierRaw[i]); err != nil {
			return nil, 0, err
		}
	}
	//guard:an-export-has-the-revisions false
	if len(revisions) > 0 {
		if fields["revisions"], err = json.Marshal(revisions); err != nil {
			return nil, 0, fmt.Errorf("encode revisions: %w", err)
		}
	}
	line, err = json.Marshal(fields)
	return append(text.EscapeControls(line), '\n'), id, err
}

// exportFields returns the properties of an event or a revision, with its body and its raw headers.
// If data is nil, there is no body.
func exportFields(properties, data, raw []byte) (fields map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(properties, &fields); err != nil {
		return nil, fmt.Errorf("decode properties: %w", err)
	}
	add := func(name string, v any) {
		if err == nil {
			fields[name], err = json.Marshal(v)
		}
	}
	switch {
	case data == nil:
	case json.Valid(data) && utf8.Valid(data): // json.Valid accepts any bytes in a string
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			return nil, fmt.Errorf("write body: %w", err)
		}
		fields["data"] = compact.Bytes()
	case utf8.Valid(data):
		add("text", string(data))
	default:
		add("data_base64", data)
	}
	switch {
	case raw == nil:
	case utf8.Valid(raw):
		add("raw_headers", string(raw))
	default:
		add("raw_headers_base64", raw)
	}
	return fields, err
}

// notCommitted reports whether the error proves that the server did not commit. The error of a
// server that shuts down proves nothing, because the server may have committed.
func notCommitted(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, pgx.ErrTxCommitRollback) || errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "57")
}
