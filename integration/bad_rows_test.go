package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/relay"
)

// badRow is a row of the log that breaks the rules of events. It has, in SQL, the values of
// the columns that differ from a good row.
type badRow map[string]string

// badRows are rows that a producer can insert if it claims to have checked them.
func badRows(subject string) map[string]badRow {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	randomText := func(n int) string {
		letters := make([]byte, n)
		for i := range letters {
			letters[i] = byte('!' + 1 + random.IntN(90))
		}
		return quoted(string(letters))
	}
	soon := "now() + interval '1 hour'"
	return map[string]badRow{
		"not before infinity":              {"not_before": "'infinity'"},
		"not before infinity, keyed":       {"not_before": "'infinity'", "key": "'k'"},
		"not before infinity, no subject":  {"not_before": "'infinity'", "subject": "''"},
		"not before the year 290000":       {"not_before": "'290000-01-01'"},
		"occurred at infinity":             {"occurred_at": "'infinity'"},
		"occurred at minus infinity":       {"occurred_at": "'-infinity'"},
		"occurred at the year 290000":      {"occurred_at": "'290000-01-01'"},
		"occurred 4713 BC":                 {"occurred_at": "'4713-01-01 BC'"},
		"large key":                        {"key": randomText(12000)},
		"large key, scheduled":             {"key": randomText(12000), "not_before": soon},
		"key with a control character":     {"key": `E'a\x01b'`},
		"key with a new line":              {"key": `E'a\nb'`},
		"no subject":                       {"subject": "''"},
		"no subject, keyed":                {"subject": "''", "key": "'no subject'"},
		"no subject, scheduled":            {"subject": "''", "not_before": soon},
		"subject with an empty token":      {"subject": quoted(subject + "..b")},
		"subject with a wildcard":          {"subject": "'>'"},
		"subject with a token wildcard":    {"subject": quoted(subject + ".*")},
		"subject with a space":             {"subject": quoted(subject + " b")},
		"subject with a line break":        {"subject": "E'a\\r\\nPUB b 0\\r\\n'"},
		"subject of 1 MB":                  {"subject": "repeat('a', 1000000)"},
		"no type":                          {"type": "''"},
		"type of 1 MB":                     {"type": "repeat('t', 1000000)"},
		"type of noise":                    {"type": randomText(100000)},
		"header of the broker's":           {"headers": `'{"Nats-Msg-Id": "x"}'`},
		"header name with a line break":    {"headers": `'{"a\r\nb": "x"}'`},
		"header value with a line break":   {"headers": `'{"a": "x\r\ny"}'`},
		"headers of 60 kB":                 {"headers": "jsonb_build_object('a', repeat('x', 60000))"},
		"data of 2 MB":                     {"data": "convert_to(repeat('x', 2000000), 'UTF8')"},
		"data of 20 MB":                    {"data": "convert_to(repeat('x', 20000000), 'UTF8')"},
		"content type of 1 MB":             {"content_type": "repeat('c', 1000000)"},
		"content type of a whole event":    {"content_type": "'application/cloudevents+json'"},
		"correlation id with a line break": {"correlation_id": `E'a\nb'`},
		"large correlation id":             {"correlation_id": randomText(20000)},
		"large causation id":               {"causation_id": "repeat('x', 100000)"},
		"trace parent of 1 MB":             {"trace_parent": "repeat('x', 1000000)"},
		"trace state of 1 MB":              {"trace_state": "repeat('x', 1000000)"},
		"no id":                            {"event_id": "''"},
		"id with a number sign":            {"event_id": "'a#b'"},
		"id of 100 kB":                     {"event_id": "repeat('x', 100000)"},
		"id that clears the screen":        {"event_id": `E'\x1b[2J'`},
		"no source":                        {"source": "''"},
		"source of 100 kB":                 {"source": "repeat('s', 100000)"},
		"everything at once": {
			"type": randomText(50000), "subject": randomText(50000), "key": randomText(12000), "content_type": randomText(50000),
			"correlation_id": randomText(50000), "trace_parent": randomText(50000), "trace_state": randomText(50000),
			"headers": `'{"a\r\nb": "\u0001"}'`, "occurred_at": "'infinity'", "not_before": "'infinity'",
		},
	}
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// insertRow inserts a row as a producer does that claims to have checked it.
func (o *refusalRig) insertRow(pool *pgxpool.Pool, name string, set badRow) {
	o.Helper()
	values := badRow{
		"digest": "decode(repeat('00', 16), 'hex')", "source": "'/office'", "event_id": quoted(name), "type": "'a'",
		"subject": quoted(o.subject("a")), "data": "'{}'", "checked": "true",
	}
	maps.Copy(values, set)
	columns := slices.Sorted(maps.Keys(values))
	list := make([]string, len(columns))
	for i, column := range columns {
		list[i] = values[column]
	}
	sql := fmt.Sprintf("INSERT INTO postroom.outbox (%s) VALUES (%s)", strings.Join(columns, ", "), strings.Join(list, ", "))
	if _, err := pool.Exec(o.Context(), sql); err != nil {
		o.Fatalf("%s: %v", name, err)
	}
}

// producer returns a pool of a role that may only write events.
func (o *refusalRig) producer() *pgxpool.Pool {
	o.Helper()
	role := pgx.Identifier{"producer_" + strings.ToLower(o.name)}.Sanitize()
	o.exec("CREATE ROLE " + role)
	o.exec("SELECT postroom.grant_producer('" + role + "')")
	cfg := o.pool.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		return err
	}
	pool, err := pgxpool.NewWithConfig(o.Context(), cfg)
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() {
		pool.Close()
		ctx, cancel := context.WithTimeout(context.Background(), devtest.Patience(o, 10*time.Second))
		defer cancel()
		_, err := o.pool.Exec(ctx, "DROP OWNED BY "+role)
		if err == nil {
			_, err = o.pool.Exec(ctx, "DROP ROLE "+role)
		}
		if err != nil {
			o.Error(err)
		}
	})
	return pool
}

// Rows that break the rules of events, and claim to be checked, stop no other event. Each is
// dead, with its reason, in a form that every tool can read. One term of the relay publishes
// all good events beside them, and the log is pruned.
func TestBadRowsStopNoOtherEvent(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprint("atomic ", atomic), func(t *testing.T) {
			t.Parallel()
			o := openRefusalRig(t, devtest.NATS(t))
			o.stream("a", jetstream.StreamConfig{AllowAtomicPublish: atomic, Discard: jetstream.DiscardNew})
			bad, producer := badRows(o.subject("a")), o.producer()
			if atomic { // the tools are slow with this row, and see the same row in both cases
				delete(bad, "data of 20 MB")
			}
			const keys, each = 20, 10
			var names []string
			for n := range each {
				for k := range keys {
					key := fmt.Sprint("key", k)
					if n == 0 {
						names = append(names, key)
					}
					o.write(letter{kind: "a", key: key})
				}
				for i, name := range slices.Sorted(maps.Keys(bad)) {
					if i%each == n {
						o.insertRow(producer, name, bad[name])
					}
				}
			}
			o.wantVisible(bad)
			o.relay(relay.Config{Atomic: atomic, Retention: time.Millisecond, Lease: time.Minute})
			o.waitForStored("a", keys*each)
			held := o.waitForHeld(len(bad))
			for _, h := range held {
				if h.State != "dead" || h.Class != "invalid_event" || h.Attempts != 1 {
					t.Errorf("%.60q is held as %+v, want it dead of invalid_event", h.ID, h)
				}
			}
			o.wantInOrder("a", names...)
			o.write(letter{kind: "a", key: "key0"}, letter{kind: "a", key: "key1"})
			o.waitForStored("a", keys*each+2)
			devtest.Eventually(t, refusalPatience, "the log to be pruned", func() bool { return one[int](o, "SELECT count(*) FROM postroom.outbox") == 0 })
			if epoch := one[int](o, "SELECT epoch FROM postroom.relay"); epoch != 1 {
				t.Errorf("the lease was taken %d times, want once", epoch)
			}
			o.wantReadable(bad)
			o.wantOperable(len(bad))
		})
	}
}

// wantVisible fails unless every tool can show rows that no relay has read.
func (o *refusalRig) wantVisible(bad map[string]badRow) {
	o.Helper()
	look := inspect.New(o.pool, o.nc, inspect.Config{})
	for name, set := range bad {
		if set["event_id"] == "" && set["source"] == "" {
			trace, err := look.Event(o.Context(), "/office", name)
			if err == nil {
				_, err = json.Marshal(trace)
			}
			if err != nil {
				o.Errorf("Event %s: %v", name, err)
			}
		}
	}
	if _, err := look.Status(o.Context()); err != nil {
		o.Errorf("Status: %v", err)
	}
	report, err := doctor.New(o.pool, o.nc, doctor.Config{}).Examine(o.Context())
	if err != nil {
		o.Errorf("Examine: %v", err)
	}
	for _, f := range report.Findings {
		if strings.Contains(f.Text, "could not be") || strings.Contains(f.Text, "invalid subject") {
			o.Errorf("Examine: %+v", f)
		}
	}
	next, err := pglog.New(o.pool).Entries(o.Context(), eventlog.Checkpoint{}, time.Time{}, false)
	for n := -1; err == nil && n != 0; {
		var page []eventlog.HistoryEntry
		page, err = next(o.Context())
		n = len(page)
	}
	if err != nil {
		o.Errorf("Published: %v", err)
	}
}

// wantOperable fails unless an operator can do everything with these dead events that he can
// do with others. A replay makes each of them dead again.
func (o *refusalRig) wantOperable(n int) {
	o.Helper()
	ctx, cancel := context.WithTimeout(o.Context(), refusalPatience)
	defer cancel()
	store, by := deadletter.New(o.pool, deadletter.Config{}), postroom.Audit{Actor: "test", Reason: "it is no event"}
	stored := o.count("a")
	job, err := store.CreateReplay(ctx, deadletter.Filter{All: true}, deadletter.ReplayOptions{AsNew: true}, by)
	if err == nil {
		job, err = store.RunReplay(ctx, job.ID, deadletter.RunOptions{})
	}
	if err != nil || job.Failed != n || o.count("a") != stored {
		o.Errorf("a replay ended as %+v, %v, with %d more events in the stream; want %d to fail, and none there", job, err, o.count("a")-stored, n)
	}
	if exported, err := store.Export(ctx, deadletter.Filter{}, io.Discard, deadletter.ExportOptions{}); err != nil || exported != int64(n) {
		o.Errorf("Export = %d, %v; want %d", exported, err, n)
	}
	if discarded, err := store.Discard(ctx, deadletter.Filter{All: true}, deadletter.ChangeOptions{Limit: n}, by); err != nil || discarded != int64(n) {
		o.Errorf("Discard = %d, %v; want %d", discarded, err, n)
	}
	letters, _, err := store.List(ctx, deadletter.Filter{Discarded: true}, postroom.Page{Limit: 1000})
	if err != nil || len(letters) != n {
		o.Errorf("%d discarded events are listed, %v; want %d", len(letters), err, n)
	}
}

func one[T any](o *refusalRig, sql string) T {
	o.Helper()
	rows, _ := o.pool.Query(o.Context(), sql)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		o.Fatal(err)
	}
	return v
}

// wantReadable fails unless every tool can read the held events.
func (o *refusalRig) wantReadable(bad map[string]badRow) {
	o.Helper()
	store := deadletter.New(o.pool, deadletter.Config{})
	letters, _, err := store.List(o.Context(), deadletter.Filter{}, postroom.Page{Limit: 1000})
	if err != nil || len(letters) != len(bad) {
		o.Fatalf("List = %d events, %v; want %d", len(letters), err, len(bad))
	}
	if list, err := store.Groups(o.Context(), deadletter.Filter{}); err != nil || len(list.Groups) == 0 {
		o.Errorf("Groups = %d, %v", len(list.Groups), err)
	}
	look := inspect.New(o.pool, o.nc, inspect.Config{})
	for _, l := range letters {
		for field, text := range map[string]string{"id": l.EventID, "source": l.Source, "type": l.Type, "subject": l.Subject, "key": l.Key} {
			if len(text) > 1200 {
				o.Errorf("the %s of event %d, %.40q, has %d bytes", field, l.ID, l.EventID, len(text))
			}
		}
		if l.Error == "" {
			o.Errorf("event %d, %.40q, is dead for no reason", l.ID, l.EventID)
		}
		whole, err := store.Get(o.Context(), l.ID)
		if err == nil {
			_, err = json.Marshal(whole)
		}
		if err != nil {
			o.Errorf("Show %d, %.40q: %v", l.ID, l.EventID, err)
		}
		if _, err := look.Event(o.Context(), l.Source, l.EventID); err != nil && !errors.Is(err, inspect.ErrNotFound) {
			o.Errorf("Event %.40q: %v", l.EventID, err)
		}
	}
}
