package deadletter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Export writes the events that match to w, a line of JSON for each, with everything
// that is known of them: as data where the body is JSON, as text where it is UTF-8, as
// data_base64 otherwise. It returns how many there are. Where w has a method Flush, as a
// bufio.Writer has, that is called at the end.
func (s *Store) Export(ctx context.Context, f Filter, w io.Writer, progress func(n int64)) (int64, error) {
	if err := errors.Join(s.err, f.validate()); err != nil {
		return 0, err
	}
	n, _, err := s.export(ctx, s.db, f, w, progress)
	if err != nil {
		return n, fmt.Errorf("deadletter: export: %w", s.advise(err))
	}
	return n, nil
}

// queryer is a database, or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// export writes events, and returns how many and, of discarded ones, their ids.
func (s *Store) export(ctx context.Context, db queryer, f Filter, w io.Writer, progress func(n int64)) (n int64, ids []int64, err error) {
	sql := s.sql.export
	if f.Discarded {
		sql = s.sql.exportDiscarded
	}
	rows, _ := db.Query(ctx, sql, f.arguments()...) // ForEachRow reports the error
	var properties, data, raw []byte
	_, err = pgx.ForEachRow(rows, []any{&properties, &data, &raw}, func() error {
		line, id, err := exported(properties, data, raw)
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		n++
		if f.Discarded {
			ids = append(ids, id)
		}
		if progress != nil && n%1000 == 0 {
			progress(n)
		}
		return nil
	})
	if buffered, ok := w.(interface{ Flush() error }); ok && err == nil {
		if err = buffered.Flush(); err != nil {
			err = fmt.Errorf("write: %w", err)
		}
	}
	return n, ids, err
}

// exported is the line of an event.
func exported(properties, data, raw []byte) (line []byte, id int64, err error) {
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
	case json.Valid(data) && utf8.Valid(data): // the former takes any bytes within quotes
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

// Purge removes discarded events for good that were discarded before a time, when it
// has written them to w: what is in the archive for long is of use to nobody, and keeps
// its ledger rows. Replays that ended before then go with them; the audit stays. Where
// w fails, or its method Flush if it has one, nothing is removed. Nor is it after any
// other error than [ErrUnsure], after which what was written has to be kept. A purged
// event that comes again is an event like any other, once its ledger row has expired.
func (s *Store) Purge(ctx context.Context, before time.Time, w io.Writer, by By, progress func(n int64)) (int64, error) {
	complete := false // but for the commit
	if err := errors.Join(s.err, by.validate()); err != nil {
		return 0, err
	}
	var n int64
	err := s.once(ctx, func(tx pgx.Tx) error { // what is written is written
		_, ids, err := s.export(ctx, tx, Filter{Discarded: true, Until: before}, w, progress)
		if err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, s.sql.purge, ids).Scan(&n); err != nil {
			return fmt.Errorf("remove from the archive: %w", err)
		}
		if n != int64(len(ids)) {
			return errors.New("somebody else reopened or purged some of them meanwhile; try again")
		}
		old, err := tx.Exec(ctx, s.sql.purgeHistory, before)
		if err != nil {
			return fmt.Errorf("remove old replays: %w", err)
		}
		if n == 0 && old.RowsAffected() == 0 {
			return ErrNothing
		}
		_, err = s.audit(ctx, tx, action{name: "purge", by: by, events: n, details: map[string]any{"before": before, "replays": old.RowsAffected()}})
		complete = err == nil
		return err
	})
	if complete && err != nil && !isRefused(err) {
		err = fmt.Errorf("%w: %w", ErrUnsure, err)
	}
	if err != nil {
		return 0, fmt.Errorf("deadletter: purge: %w", s.advise(err))
	}
	return n, nil
}

// isRefused reports whether the server said that it did not commit. One that shuts down
// says something else, and may have committed.
func isRefused(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, pgx.ErrTxCommitRollback) || errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "57")
}
