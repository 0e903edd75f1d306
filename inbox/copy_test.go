package inbox_test

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postroom/postroom"
)

// amount is a parameter with a value of its own.
type amount int

func (a amount) Value() (driver.Value, error) { return int64(a), nil }

// COPY in a handler stores what COPY of pgx stores.
func TestACopyOfAHandlerIsThatOfPgx(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`CREATE TABLE ours (n int, "a ""text" text, doc jsonb, price numeric, grid int[], at timestamptz, raw bytea)`)
	b.exec("CREATE TABLE theirs (LIKE ours)")
	columns := []string{"n", `a "text`, "doc", "price", "grid", "at", "raw"}
	rows := [][]any{
		{nil, nil, nil, nil, nil, nil, nil},
		{(*int)(nil), (*string)(nil), json.RawMessage(`{"a":1}`), pgtype.Numeric{}, []int32{}, time.Now(), []byte{}},
		{amount(7), "", map[string]int{"a": 2}, "1.50", "{{1,2},{3,4}}", "2026-01-02 03:04:05Z", []byte("\x00\xff")},
		{"8", strings.Repeat("ä", 200_000), `"text"`, 1.25, [][]int32{{1}, {2}}, time.Time{}, nil},
	}
	for range 3000 {
		rows = append(rows, []any{1, "many", nil, 2, []int32{3}, time.Now(), []byte("b")})
	}
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"public", "ours"}, columns, pgx.CopyFromRows(rows))
		if n != int64(len(rows)) {
			t.Errorf("%d rows, want %d", n, len(rows))
		}
		return err
	}))
	b.publish("1")
	b.run()
	b.eventually("the event to be decided", func() bool { return b.ledger("h") == 1 })
	if _, err := b.pool.CopyFrom(t.Context(), pgx.Identifier{"theirs"}, columns, pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
	var ours, missing int
	err := b.pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM ours), (SELECT count(*) FROM (TABLE theirs EXCEPT ALL TABLE ours) t)").Scan(&ours, &missing)
	if err != nil || ours != len(rows) || missing != 0 {
		t.Errorf("%d rows, %d other than those of pgx, error %v; want %d rows", ours, missing, err, len(rows))
	}
}

// badRows are the rows of a COPY that fails: the method Values returns values and err, and Err
// returns later.
type badRows struct {
	values     []any
	err, later error
	n          int
}

func (r *badRows) Next() bool             { r.n++; return r.later == nil && r.n < 3 }
func (r *badRows) Values() ([]any, error) { return r.values, r.err }
func (r *badRows) Err() error             { return r.later }

// A COPY that fails stores nothing, and says why. The transaction goes on behind a savepoint.
func TestACopyOfAHandlerThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("CREATE TABLE ours (n int NOT NULL)")
	for name, tt := range map[string]struct {
		table string
		rows  badRows
		says  string
	}{
		"no such table":            {table: "nothing", says: "does not exist"},
		"too many values":          {rows: badRows{values: []any{1, 2}}, says: "expected 1 values, got 2 values"},
		"a value of another type":  {rows: badRows{values: []any{make(chan int)}}, says: "unable to encode"},
		"a value that is refused":  {rows: badRows{values: []any{nil}}, says: "not-null"},
		"an error of the values":   {rows: badRows{err: errors.New("no values")}, says: "no values"},
		"an end within the values": {rows: badRows{values: []any{1}, err: io.EOF}, says: "EOF"},
		"an error of the rows":     {rows: badRows{later: errors.New("no rows")}, says: "no rows"},
	} {
		b.in.Handle(b.subscription(strings.ReplaceAll(name, " ", "-")), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			table := tt.table
			if table == "" {
				table = "ours"
			}
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.CopyFrom(ctx, pgx.Identifier{table}, []string{"n"}, &tt.rows)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: CopyFrom = %v, want %q", name, err, tt.says)
			}
			return effect("h").Handle(ctx, tx, ev)
		}))
	}
	b.publish("1")
	b.run()
	b.eventually("all to be decided", func() bool { return b.effects("h")["1"] == 7 })
	var n int
	if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM ours").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, error %v; want none", n, err)
	}
}
