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
)

// exportLine returns one event as a line of JSON, and the event's id.
func exportLine(properties, data, raw []byte) (line []byte, id int64, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(properties, &fields); err != nil {
		return nil, 0, fmt.Errorf("decode properties: %w", err)
	}
	if err := json.Unmarshal(fields["id"], &id); err != nil {
		return nil, 0, fmt.Errorf("decode id: %w", err)
	}
	add := func(name string, v any) {
		if err == nil {
			fields[name], err = json.Marshal(v)
		}
	}
	switch {
	case json.Valid(data) && utf8.Valid(data): // json.Valid accepts any bytes in a string
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			return nil, 0, fmt.Errorf("write body: %w", err)
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
	if err == nil {
		line, err = json.Marshal(fields)
	}
	return append(line, '\n'), id, err
}

// notCommitted reports whether the error proves that the server did not commit. The error of a
// server that shuts down proves nothing, because the server may have committed.
func notCommitted(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, pgx.ErrTxCommitRollback) || errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "57")
}
