package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
)

// way is a way of writing events in one transaction, which is committed unless
// an error comes first.
type way struct {
	name  string
	write func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error
}

// ways are all ways to write. Each test runs for each of them.
var ways = []way{
	{"Write", func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return shop.Write(ctx, tx, events...) })
	}},
	{"Queue, alone", func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error {
		var batch pgx.Batch
		if err := shop.Queue(&batch, events...); err != nil {
			return err
		}
		return pool.SendBatch(ctx, &batch).Close()
	}},
	{"Queue, one by one in a transaction", func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var batch pgx.Batch
			for _, ev := range events {
				if err := shop.Queue(&batch, ev); err != nil {
					return err
				}
			}
			return tx.SendBatch(ctx, &batch).Close()
		})
	}},
	{"Queue, simple protocol", func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error {
		return onConn(ctx, pool, pgx.QueryExecModeSimpleProtocol, func(conn *pgx.Conn) error {
			var batch pgx.Batch
			if err := shop.Queue(&batch, events...); err != nil {
				return err
			}
			return conn.SendBatch(ctx, &batch).Close()
		})
	}},
	{"WriteSQL, pgx", func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error {
		return writeSQL(ctx, stdlib.OpenDB(*pool.Config().ConnConfig), events)
	}},
	{"WriteSQL, pgx and simple protocol", func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error {
		cfg := pool.Config().ConnConfig.Copy()
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		return writeSQL(ctx, stdlib.OpenDB(*cfg), events)
	}},
	{"WriteSQL, plain driver", func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error {
		return writeSQL(ctx, sql.OpenDB(plainDriver{pool.Config().ConnConfig}), events)
	}},
	{"WriteSQL, statements prepared by a library", func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error {
		return writeSQLAs(ctx, stdlib.OpenDB(*pool.Config().ConnConfig), events, func(tx *sql.Tx) outbox.SQLTx { return &preparedTx{inner: tx} })
	}},
	{"SQL function", func(ctx context.Context, pool *pgxpool.Pool, events ...postroom.Event) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			for _, ev := range events {
				if _, err := callWrite(ctx, tx, ev); err != nil {
					return err
				}
			}
			return nil
		})
	}},
}

func onConn(ctx context.Context, pool *pgxpool.Pool, mode pgx.QueryExecMode, f func(*pgx.Conn) error) error {
	cfg := pool.Config().ConnConfig.Copy()
	cfg.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(ctx))
}

func writeSQL(ctx context.Context, db *sql.DB, events []postroom.Event) error {
	return writeSQLAs(ctx, db, events, func(tx *sql.Tx) outbox.SQLTx { return tx })
}

// preparedTx is a transaction like that of GORM with PrepareStmt. It prepares each statement first,
// and does not return its *sql.Tx.
type preparedTx struct{ inner *sql.Tx }

func (p *preparedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	stmt, err := p.inner.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return p.inner.StmtContext(ctx, stmt).ExecContext(ctx, args...)
}
func (p *preparedTx) Commit() error   { return p.inner.Commit() }
func (p *preparedTx) Rollback() error { return p.inner.Rollback() }

// writeSQLAs writes events in a transaction that wrap has wrapped.
func writeSQLAs(ctx context.Context, db *sql.DB, events []postroom.Event, wrap func(tx *sql.Tx) outbox.SQLTx) (err error) {
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := shop.WriteSQL(ctx, wrap(tx), events...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// callWrite writes an event with the SQL function, as a program without Go does, and returns its
// id. It returns a conflict as Go's error, so that one test can check all ways.
func callWrite(ctx context.Context, tx pgx.Tx, ev postroom.Event) (id string, err error) {
	var headers *string
	if ev.Headers != nil {
		text, err := json.Marshal(ev.Headers)
		if err != nil {
			return "", err
		}
		headers = new(string(text))
	}
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	err = tx.QueryRow(ctx, `SELECT postroom.write('/shop', $1::text, coalesce($2::bytea, ''), key => $3, id => $4, headers => $5,
			subject => $6, content_type => $7, not_before => $8, occurred_at => $9, correlation_id => $10,
			causation_id => $11, trace_parent => $12, trace_state => $13)`,
		ev.Type, ev.Data, text(ev.Key), text(ev.ID), headers, text(ev.Subject), text(ev.ContentType), at(ev.NotBefore), at(ev.Time),
		text(ev.CorrelationID), text(ev.CausationID), text(ev.TraceParent), text(ev.TraceState)).Scan(&id)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "23PR1" {
		return "", postroom.ErrEventConflict
	}
	return id, err
}

// plainDriver is a driver that accepts only the types that every driver must accept from
// database/sql. It sends texts, as lib/pq does.
type plainDriver struct{ cfg *pgx.ConnConfig }

func (d plainDriver) Driver() driver.Driver { return nil }

func (d plainDriver) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := pgconn.ConnectConfig(ctx, &d.cfg.Config)
	return plainConn{conn}, err
}

type plainConn struct{ *pgconn.PgConn }

func (c plainConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not needed") }
func (c plainConn) Close() error                        { return c.PgConn.Close(context.Background()) }
func (c plainConn) Begin() (driver.Tx, error)           { return plainTx{c}, c.exec("BEGIN") }

func (c plainConn) exec(sql string) error {
	_, err := c.ExecContext(context.Background(), sql, nil)
	return err
}

type plainTx struct{ plainConn }

func (t plainTx) Commit() error   { return t.exec("COMMIT") }
func (t plainTx) Rollback() error { return t.exec("ROLLBACK") }

func (c plainConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	texts := make([][]byte, len(args))
	for i, arg := range args {
		switch v := arg.Value.(type) {
		case nil:
		case string:
			texts[i] = []byte(v)
		case []byte:
			texts[i] = []byte(`\x` + hex.EncodeToString(v))
		case time.Time:
			texts[i] = []byte(v.Format(time.RFC3339Nano))
		default:
			return nil, fmt.Errorf("parameter %d is a %T", i+1, v)
		}
	}
	result := c.ExecParams(ctx, query, texts, nil, nil, nil).Read()
	var pg *pgconn.PgError
	if errors.As(result.Err, &pg) {
		return nil, plainError(pg.Code)
	}
	return driver.RowsAffected(0), result.Err
}

// plainError is an error that has only a SQLSTATE.
type plainError string

func (e plainError) Error() string    { return "SQLSTATE " + string(e) }
func (e plainError) SQLState() string { return string(e) }

func openSQL(t *testing.T, pool *pgxpool.Pool) *sql.DB {
	t.Helper()
	db := stdlib.OpenDB(*pool.Config().ConnConfig)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func eachWay(t *testing.T, f func(t *testing.T, w way, pool *pgxpool.Pool)) {
	t.Helper()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f(t, w, devtest.Pool(t))
		})
	}
}

// odd is an event with all attributes, and with characters that have a meaning in arrays, JSON or
// SQL.
func odd(id string) postroom.Event {
	return postroom.Event{
		ID: id, Type: "order.placed", Subject: "eu.order.placed", Key: `Müller, {"Söhne"} \ NULL '`, ContentType: `text/plain; a="\\"`,
		Data: []byte{0, 1, '"', '\\', ',', 0xff}, Headers: map[string]string{"x-tenant": `a "b" \ {c}, 😀 <&>`, "X-empty": "", "a": "NULL"},
		CorrelationID: `{process, "1"}`, CausationID: `\`, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		TraceState: "a=b,c={d}", Time: time.Date(2026, 2, 3, 4, 5, 6, 789123999, time.FixedZone("", 3600)),
		NotBefore: time.Date(1, 2, 3, 4, 5, 6, 7999, time.UTC),
	}
}

func TestEachWayWritesAnEventWhole(t *testing.T) {
	t.Parallel()
	pools, rows := make(map[string]string), sync.Mutex{}
	t.Run("write", func(t *testing.T) {
		eachWay(t, func(t *testing.T, w way, pool *pgxpool.Pool) {
			for _, events := range [][]postroom.Event{{odd("one")}, {odd("two"), named("three"), odd("four")}, {{ID: "five", Type: "a", TraceState: "a=b"}}} {
				if err := w.write(t.Context(), pool, events...); err != nil {
					t.Fatal(err)
				}
			}
			text := `SELECT jsonb_agg(to_jsonb(o) - 'checked' - '{seq,xid,created_at}'::text[] ORDER BY seq)::text FROM postroom.outbox o`
			var got string
			if err := pool.QueryRow(t.Context(), text).Scan(&got); err != nil {
				t.Fatal(err)
			}
			rows.Lock()
			defer rows.Unlock()
			pools[w.name] = got
		})
	})
	for _, w := range ways {
		if got, want := pools[w.name], pools["Write"]; got != want {
			t.Errorf("%s wrote\n%s\nWrite wrote\n%s", w.name, got, want)
		}
	}
	for _, want := range []string{`"not_before": "0001-02-03T04:05:06.000007+00:00"`, `"occurred_at": "2026-02-03T03:05:06.789123+00:00"`} {
		if !strings.Contains(pools["Write"], want) {
			t.Errorf("Write wrote %s, want %s in it", pools["Write"], want)
		}
	}
}

func TestEachWayWritesAgainWithoutHarm(t *testing.T) {
	t.Parallel()
	for _, first := range ways {
		t.Run(first.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			events := []postroom.Event{odd("one"), named("two"), {ID: "three", Type: "a.b"}}
			if err := first.write(t.Context(), pool, events...); err != nil {
				t.Fatal(err)
			}
			for _, second := range ways {
				if err := second.write(t.Context(), pool, append(events, named("new by "+strings.NewReplacer(" ", "", ",", "").Replace(second.name)))[:3]...); err != nil {
					t.Errorf("%s after %s: %v, want a no-op", second.name, first.name, err)
				}
				if err := second.write(t.Context(), pool, events[0]); err != nil {
					t.Errorf("%s of one after %s: %v, want a no-op", second.name, first.name, err)
				}
			}
			if n := rowCount(t, pool); n != 3 {
				t.Errorf("%d rows, want 3", n)
			}
		})
	}
}

// A conflict is reported as ErrEventConflict, and the transaction leaves nothing behind.
func TestEachWayRefusesAConflict(t *testing.T) {
	t.Parallel()
	other := func(id string) postroom.Event {
		return postroom.Event{ID: id, Type: "order.placed", Data: []byte("[]")}
	}
	later := named("taken")
	later.NotBefore = time.Now().Add(time.Hour)
	eachWay(t, func(t *testing.T, w way, pool *pgxpool.Pool) {
		write(t, pool, "taken", "also")
		for name, events := range map[string][]postroom.Event{
			"alone":                {other("taken")},
			"scheduled":            {later},
			"among others":         {named("new"), other("taken"), named("newer")},
			"after one that is in": {named("also"), other("taken")},
		} {
			err := w.write(t.Context(), pool, events...)
			if !errors.Is(err, postroom.ErrEventConflict) {
				t.Errorf("%s: %v, want ErrEventConflict", name, err)
			}
			if errors.Is(err, postroom.ErrInvalidEvent) {
				t.Errorf("%s: %v, which is no fault of the input", name, err)
			}
		}
		if n := rowCount(t, pool); n != 2 {
			t.Errorf("%d rows, want the 2 that were there", n)
		}
	})
}

// Two transactions write one event at the same time. The second waits for the first. Then its
// insert does nothing, and its snapshot may not see the row of the first.
func TestEachWayWaitsForTheSameEvent(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, pool *pgxpool.Pool) {
		for _, tt := range []struct {
			name   string
			events []postroom.Event
			rolls  bool // the first twin rolls back
			want   error
		}{
			{"same", []postroom.Event{named("same")}, false, nil},
			{"same among others", []postroom.Event{named("a"), named("same too"), named("b")}, false, nil},
			{"other", []postroom.Event{{ID: "other", Type: "order.placed", Data: []byte("[]")}}, false, postroom.ErrEventConflict},
			{"other, of one that rolls back", []postroom.Event{{ID: "gone", Type: "order.placed", Data: []byte("[]")}}, true, nil},
		} {
			for i := range tt.events {
				tt.events[i].ID = strings.ReplaceAll(tt.events[i].ID, " ", "-")
			}
			sharedID := tt.events[len(tt.events)/2].ID
			first := openWith(t, pool, sharedID)
			var second error
			var wg sync.WaitGroup
			wg.Go(func() { second = w.write(t.Context(), pool, tt.events...) })
			devtest.Eventually(t, 10*time.Second, "the second twin to wait", func() bool {
				var waiting int
				err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
				return err == nil && waiting == 1
			})
			if tt.rolls {
				if err := first.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				commit(t, first)
			}
			wg.Wait()
			if !errors.Is(second, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, second, tt.want)
			}
		}
	})
}

func TestEachWayKeepsTheOrderOfItsArguments(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, pool *pgxpool.Pool) {
		var events []postroom.Event
		var want []string
		for i := range 50 {
			id := fmt.Sprint("e", (i*7919)%50) // in no order that an index would give
			events, want = append(events, named(id)), append(want, id)
		}
		if err := w.write(t.Context(), pool, events...); err != nil {
			t.Fatal(err)
		}
		ids, _, _ := read(t, lead(t, pglog.New(pool)), 100)
		if !slices.Equal(ids, want) {
			t.Errorf("read %v, want %v", ids, want)
		}
	})
}

// Under a stricter isolation level, if another transaction committed the same event meanwhile,
// that is no conflict: the transaction has to be tried again.
func TestRepeatableReadTriesAgainAfterTheSameEvent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SELECT 1 FROM postroom.outbox"); err != nil {
			return err
		}
		write(t, pool, "twin")
		return shop.Write(t.Context(), tx, named("twin"))
	})
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "40001" || errors.Is(err, postroom.ErrEventConflict) {
		t.Errorf("Write = %v, want 40001", err)
	}
}
