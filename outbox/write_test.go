package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/schema"
)

func rowCount(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.outbox").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// For each kind of bad event, the test checks the error, the state of the caller's transaction, and
// that nothing was written.
func TestWriteRefusesBadEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "taken")
	good := postroom.NewEvent("order.placed", 1)
	with := func(change func(*postroom.Event)) []postroom.Event {
		bad := named("bad")
		change(&bad)
		return []postroom.Event{good, bad}
	}
	tests := []struct {
		name    string
		events  []postroom.Event
		field   string // the field that the error names
		is      error
		aborted bool // whether the caller's transaction is aborted
	}{
		{"no type", with(func(e *postroom.Event) { e.Type = "" }), "Type", postroom.ErrInvalidEvent, false},
		{"type with an empty token", with(func(e *postroom.Event) { e.Type = "a..b" }), "Type", postroom.ErrInvalidEvent, false},
		{"subject with a wildcard", with(func(e *postroom.Event) { e.Subject = "a.*" }), "Subject", postroom.ErrInvalidEvent, false},
		{"subject with a space", with(func(e *postroom.Event) { e.Subject = "a b" }), "Subject", postroom.ErrInvalidEvent, false},
		{"id with a hash", with(func(e *postroom.Event) { e.ID = "a#b" }), "ID", postroom.ErrInvalidEvent, false},
		{"id too long", with(func(e *postroom.Event) { e.ID = strings.Repeat("x", postroom.MaxID+1) }), "ID", postroom.ErrInvalidEvent, false},
		{"another source", with(func(e *postroom.Event) { e.Source = "/bank" }), "Source", postroom.ErrInvalidEvent, false},
		{"key with a line break", with(func(e *postroom.Event) { e.Key = "a\r\nNats-Rollup: all" }), "Key", postroom.ErrInvalidEvent, false},
		{"data too large", with(func(e *postroom.Event) { e.Data = make([]byte, postroom.MaxData+1) }), "Data", postroom.ErrInvalidEvent, false},
		{"data that is no JSON", []postroom.Event{good, postroom.NewEvent("a.b", func() {})}, "Data", postroom.ErrInvalidEvent, false},
		{"text that is no JSON", with(func(e *postroom.Event) { e.Data = []byte("Müller") }), "ContentType", postroom.ErrInvalidEvent, false},
		{"text that is no JSON, with a parameter", with(func(e *postroom.Event) { e.ContentType, e.Data = "Application/JSON; charset=utf-8", []byte("{") }), "ContentType", postroom.ErrInvalidEvent, false},
		{"text that is no JSON, of another format", with(func(e *postroom.Event) { e.ContentType, e.Data = "application/problem+json", []byte("x") }), "ContentType", postroom.ErrInvalidEvent, false},
		{"header of the broker", with(func(e *postroom.Event) { e.Headers = map[string]string{"nats-rollup": "all"} }), "Headers[nats-rollup]", postroom.ErrInvalidEvent, false},
		{"header with a line break", with(func(e *postroom.Event) { e.Headers = map[string]string{"x": "a\nb"} }), "Headers[x]", postroom.ErrInvalidEvent, false},
		{"one id, two contents in a call", []postroom.Event{named("x"), {ID: "x", Type: "other"}}, "x", postroom.ErrEventConflict, false},
		{"the id of another event", with(func(e *postroom.Event) { e.ID, e.Data = "taken", []byte("[]") }), "taken", postroom.ErrEventConflict, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			err = shop.Write(t.Context(), tx, tt.events...)
			if !errors.Is(err, tt.is) {
				t.Errorf("Write = %v, want %v", err, tt.is)
			}
			var of *postroom.EventError
			if !errors.As(err, &of) || !strings.Contains(err.Error(), tt.field) {
				t.Errorf("Write = %v, want an EventError that names %s", err, tt.field)
			}
			_, err = tx.Exec(t.Context(), "SELECT 1")
			if aborted := err != nil; aborted != tt.aborted {
				t.Errorf("transaction aborted = %t (%v), want %t", aborted, err, tt.aborted)
			}
			_ = tx.Commit(t.Context()) // an aborted transaction rolls back instead, and says so
			if n := rowCount(t, pool); n != 1 {
				t.Errorf("%d rows after the commit, want the one that was there", n)
			}
		})
	}
}

func TestWriteReportsEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return shop.Write(t.Context(), tx,
			postroom.Event{ID: "one", Type: "a..b", Key: "\x00"}, named("two"), postroom.Event{ID: "three", Source: "/bank", Type: "a"})
	})
	for _, want := range []string{"one", "Type", "Key", "three", "Source"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Write = %v, want %s in it", err, want)
		}
	}
}

func TestWriteAgainChangesNothing(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	ev := postroom.Event{ID: "one", Type: "order.placed", Key: "k", Data: []byte("7"), Headers: map[string]string{"a": "1", "b": "2"}}
	again := func(change func(*postroom.Event)) error {
		other := ev
		change(&other)
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, other) })
	}
	if err := again(func(*postroom.Event) {}); err != nil {
		t.Fatal(err)
	}
	same := []func(*postroom.Event){
		func(*postroom.Event) {},
		func(e *postroom.Event) { e.Subject = e.Type },
		func(e *postroom.Event) { e.Time, e.CorrelationID, e.TraceParent = time.Now(), "c", "t" },
	}
	for i, change := range same {
		if err := again(change); err != nil {
			t.Errorf("same content %d: %v, want a no-op", i, err)
		}
	}
	other := []func(*postroom.Event){
		func(e *postroom.Event) { e.Type = "order.paid" },
		func(e *postroom.Event) { e.Subject = "elsewhere" },
		func(e *postroom.Event) { e.Key = "" },
		func(e *postroom.Event) { e.Data = nil },
		func(e *postroom.Event) { e.Headers = nil },
		func(e *postroom.Event) { e.Headers = map[string]string{"a": "1b", "": "2"} },
	}
	for i, change := range other {
		if err := again(change); err == nil {
			t.Errorf("other content %d: written again without an error", i)
		}
	}
	if n := rowCount(t, pool); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

func TestWriteKeepsTheOrderOfItsArguments(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	var events []postroom.Event
	var want []string
	for i := range 500 {
		id := fmt.Sprint("e", (i*7919)%500) // in no order that an index would give
		events, want = append(events, named(id)), append(want, id)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, events...) })
	if err != nil {
		t.Fatal(err)
	}
	ids, _, _ := read(t, lead(t, pglog.New(pool)), 1000)
	wantIDs(t, ids, want...)
}

func TestWriteIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	queries := &queryCount{}
	cfg.Tracer = queries
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	queries.n = 0
	if err := shop.Write(t.Context(), tx, named("a"), named("b"), named("c")); err != nil {
		t.Fatal(err)
	}
	if queries.n != 1 {
		t.Errorf("three events took %d queries, want 1", queries.n)
	}
}

type queryCount struct{ n int }

func (q *queryCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	q.n++
	return ctx
}
func (q *queryCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// If the log already has an event, a second statement compares it. That statement is sent even if
// the caller's context ended meanwhile, because otherwise the transaction would not be aborted.
func TestWriteComparesInASecondStatement(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "there")
	for _, tt := range []struct {
		name       string
		ev         postroom.Event
		want       error
		statements int
	}{
		{"new", named("new"), nil, 1},
		{"there", named("there"), nil, 2},
		{"ErrEventConflict", postroom.Event{ID: "there", Type: "other"}, postroom.ErrEventConflict, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			once := &endsAfterExec{Tx: tx, cancel: cancel}
			if err := shop.Write(ctx, once, tt.ev); !errors.Is(err, tt.want) {
				t.Errorf("Write = %v, want %v", err, tt.want)
			}
			if once.statements != tt.statements {
				t.Errorf("%d statements, want %d", once.statements, tt.statements)
			}
			if err := tx.Commit(t.Context()); errors.Is(err, pgx.ErrTxCommitRollback) != (tt.want != nil) {
				t.Errorf("Commit = %v", err)
			}
		})
	}
}

// endsAfterExec ends its caller's context after each statement.
type endsAfterExec struct {
	pgx.Tx

	cancel     context.CancelFunc
	statements int
}

func (e *endsAfterExec) Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	defer e.cancel()
	e.statements++
	return e.Tx.Exec(ctx, sql, arguments...)
}

// After a conflict only the savepoint is lost.
func TestConflictInsideASavepoint(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "taken")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
			return shop.Write(t.Context(), tx, named("beside"), postroom.Event{ID: "taken", Type: "other"})
		})
		if !errors.Is(err, postroom.ErrEventConflict) {
			t.Errorf("inside the savepoint: %v, want ErrEventConflict", err)
		}
		return shop.Write(t.Context(), tx, named("after"))
	})
	if err != nil {
		t.Fatal(err)
	}
	ids, _, _ := read(t, lead(t, pglog.New(pool)), 10)
	wantIDs(t, ids, "taken", "after")
}

func TestWriteFillsWhatIsEmpty(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return shop.Write(ctx, tx, postroom.Event{Type: "order.placed"}) })
	if err != nil {
		t.Fatal(err)
	}
	_, _, page := read(t, lead(t, pglog.New(pool)), 10)
	ev := page.Events[0]
	if len(ev.ID) != 36 || ev.ID[14] != '7' {
		t.Errorf("ID = %q, want a UUIDv7", ev.ID)
	}
	if ev.Source != "/shop" || ev.Subject != "order.placed" || ev.ContentType != "application/json" {
		t.Errorf("Source, Subject, ContentType = %q, %q, %q", ev.Source, ev.Subject, ev.ContentType)
	}
	if !strings.Contains(ev.TraceParent, span.TraceID().String()) {
		t.Errorf("TraceParent = %q, want the caller's trace", ev.TraceParent)
	}
}

func TestConfigFaultsAreReportedTogether(t *testing.T) {
	t.Parallel()
	bad := outbox.New(outbox.Config{Source: "", Schema: "no such; schema"})
	for name, err := range map[string]error{
		"Write":    bad.Write(t.Context(), nil, named("a")),
		"Queue":    bad.Queue(nil, named("a")),
		"WriteSQL": bad.WriteSQL(t.Context(), nil, named("a")),
		"Check":    bad.Check(t.Context(), nil),
	} {
		for _, field := range []string{"Source", "Schema"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%s = %v, want %s in it", name, err, field)
			}
		}
	}
}

func TestOutboxInAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	for _, name := range []string{"billing_postroom", "other"} {
		if _, err := schema.Migrate(t.Context(), pool, name); err != nil {
			t.Fatal(err)
		}
		out := outbox.New(outbox.Config{Source: "/shop", Schema: name})
		if err := out.Check(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return out.Write(t.Context(), tx, named("in-"+name)) })
		if err != nil {
			t.Fatal(err)
		}
		ids, _, _ := read(t, lead(t, pglog.New(pool).WithSchema(name)), 10)
		wantIDs(t, ids, "in-"+name)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, named("a")) })
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		t.Errorf("Write to a schema that does not exist = %v, want the server's error", err)
	}
}
