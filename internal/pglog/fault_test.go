package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay/broker"
)

// If a row cannot be an event, it is read as an event with a fault. Values that are too large
// for an event are not read at all. That is so in each form in which the server can send values.
func TestBadRowsAreReadAsEventsWithAFault(t *testing.T) {
	t.Parallel()
	tests := []struct {
		column, value string
		fault         string // as the relay will report it
	}{
		{"event_id", "''", "ID is empty"},
		{"source", "''", "Source is empty"},
		{"subject", "''", "Subject is empty"},
		{"type", "''", "Type is empty"},
		{"event_id", "repeat('x', 100000)", "ID is more than 512 bytes, at most 255 are allowed"},
		{"type", "repeat('ä', 100000)", "Type is more than 512 bytes, at most 255 are allowed"},
		{"type", "repeat('t', 300)", "Type is 300 bytes, at most 255 are allowed"},
		{"subject", "repeat('s', 100000)", "Subject is more than 512 bytes, at most 255 are allowed"},
		{"key", "repeat('k', 100000)", "Key is more than 512 bytes, at most 255 are allowed"},
		{"key", `E'a\nb'`, "Key has a control character in it"},
		{"content_type", "repeat('c', 100000)", "ContentType is more than 512 bytes, at most 255 are allowed"},
		{"trace_state", "repeat('t', 100000)", "TraceState is more than 512 bytes, at most 512 are allowed"},
		{"occurred_at", "'infinity'", "Time is outside the years 1 to 9999"},
		{"occurred_at", "'-infinity'", "Time is outside the years 1 to 9999"},
		{"occurred_at", "'290000-01-01'", "Time is outside the years 1 to 9999"},
		{"occurred_at", "'4713-01-01 BC'", "Time is outside the years 1 to 9999"},
		{"not_before", "'infinity'", "NotBefore is outside the years 1 to 9999"},
		{"not_before", "'290000-01-01'", "NotBefore is outside the years 1 to 9999"},
		{"created_at", "'infinity'", "LoggedAt is outside the years 1 to 9999"}, // the owner can write that
		{"headers", `'{"Nats-Rollup": "all"}'`, "Headers[Nats-Rollup] is reserved"},
		{"headers", "jsonb_build_object('a', repeat('x', 60000))", "Headers are 60001 bytes together, at most 32768 are allowed"},
		{"data", "convert_to(repeat('x', 983041), 'UTF8')", "Data is more than the 983040 bytes that are allowed"},
	}
	for _, way := range []struct {
		name string
		mode pgx.QueryExecMode
		read func(t *testing.T, pool, odd *pgxpool.Pool) []broker.Event
	}{
		{"new", pgx.QueryExecModeCacheStatement, readNew},
		{"new, as text", pgx.QueryExecModeSimpleProtocol, readNew},
		{"owed", pgx.QueryExecModeCacheStatement, readBacklogPage},
		{"republished", pgx.QueryExecModeCacheStatement, readRepublished},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			for i, tt := range tests {
				set := map[string]string{"event_id": fmt.Sprintf("'event-%d'", i), "source": "'/shop'", "type": "'a'", "subject": "'a'", tt.column: tt.value}
				mustExec(t, pool, fmt.Sprintf(`INSERT INTO postroom.outbox (digest, event_id, source, type, subject, key, content_type, trace_state, occurred_at, not_before, headers, data, created_at, checked)
					VALUES (decode(repeat('00', 16), 'hex'), %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, true)`,
					set["event_id"], set["source"], set["type"], set["subject"], orElse(set["key"], "'k'"), orElse(set["content_type"], "'text/plain'"), orElse(set["trace_state"], "NULL"),
					orElse(set["occurred_at"], "NULL"), orElse(set["not_before"], "NULL"), orElse(set["headers"], "NULL"), orElse(set["data"], "'x'"), orElse(set["created_at"], "now()")))
			}
			write(t, pool, "good")
			cfg := pool.Config()
			cfg.ConnConfig.DefaultQueryExecMode = way.mode
			odd, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer odd.Close()
			events := way.read(t, pool, odd)
			if len(events) != len(tests)+1 {
				t.Fatalf("%d events were read, want %d", len(events), len(tests)+1)
			}
			for i, tt := range tests {
				ev := events[i]
				if way.name == "republished" && tt.column == "not_before" {
					continue // a republish ignores NotBefore
				}
				fault := errors.Join(ev.Fault, ev.Validate())
				if !errors.Is(fault, postroom.ErrInvalidEvent) || !strings.Contains(fault.Error(), tt.fault) {
					t.Errorf("%s %s: %v, want %q", tt.column, tt.value, fault, tt.fault)
				}
				if n := len(ev.ID) + len(ev.Source) + len(ev.Type) + len(ev.Subject) + len(ev.Key) + len(ev.ContentType) + len(ev.TraceState) + len(ev.Data); n > 1000 {
					t.Errorf("%s %s: %d bytes of it were stored", tt.column, tt.value, n)
				}
				if apart := tt.column == "key" || tt.column == "not_before"; ev.Unordered != apart {
					t.Errorf("%s %s: unordered is %t, want %t", tt.column, tt.value, ev.Unordered, apart)
				}
			}
			if ev := events[len(tests)]; ev.ID != "good" || ev.Fault != nil || ev.Unordered || ev.Validate() != nil {
				t.Errorf("the good event is %+v", ev)
			}
		})
	}
}

func readNew(t *testing.T, _, odd *pgxpool.Pool) []broker.Event {
	t.Helper()
	_, _, page := read(t, lead(t, pglog.New(odd)), 100)
	return page.Events
}

// readBacklogPage reads events that a former relay read and did not record as acknowledged.
func readBacklogPage(t *testing.T, pool, odd *pgxpool.Pool) []broker.Event {
	t.Helper()
	mustExec(t, pool, "UPDATE postroom.relay SET high = 1000000, pending = '{[1,1000000]}', snap = pg_current_snapshot()")
	mustExec(t, pool, "SELECT setval('postroom.outbox_seq_seq', 1000000)")
	return readNew(t, pool, odd)
}

// readRepublished republishes an event that a former relay published and should have refused.
func readRepublished(t *testing.T, pool, odd *pgxpool.Pool) []broker.Event {
	t.Helper()
	mustExec(t, pool, "UPDATE postroom.relay SET high = 1000000, snap = pg_current_snapshot()")
	mustExec(t, pool, "SELECT setval('postroom.outbox_seq_seq', 1000000)")
	log := pglog.New(odd)
	startRepublish(t, log, operator.RepublishRequest{All: true})
	_, page := again(t, lead(t, log), 100)
	return page.Events
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// If an event was held in another form than in the log, it is not sent when an operator
// releases it, although that form may look like an event.
func TestEventHeldInAnotherFormIsNotSent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	mustExec(t, pool, `INSERT INTO postroom.outbox (digest, event_id, source, type, subject, headers, data, trace_state, checked)
		VALUES (decode(repeat('00', 16), 'hex'), 'a', '/shop', 'a', 'a', '{"tenant": "a"}', 'x', repeat('t', 600), true)`)
	term := lead(t, pglog.New(pool))
	for range 2 {
		_, _, page := read(t, term, 10)
		if len(page.Events) != 1 || page.Events[0].Fault == nil {
			t.Fatalf("read %+v, want an event with a fault", page.Events)
		}
		hold(t, term, dead(), page.Events...)
		wantHeld(t, pool, "a dead 1")
		var raw string
		err := pool.QueryRow(t.Context(), "SELECT octet_length(j ->> 'trace_state') || ' ' || (j -> 'headers' ->> 'tenant') FROM postroom.held, CAST(convert_from(raw_headers, 'UTF8') AS jsonb) j").Scan(&raw)
		if err != nil || raw != "600 a" {
			t.Errorf("its values are stored as %q, %v", raw, err)
		}
		mustExec(t, pool, "UPDATE postroom.held SET dead_at = NULL, next_at = now() - interval '1 s'")
	}
}

// Subjects returns no bad subjects, because the broker is asked about each.
func TestSubjectsSkipsBadSubjects(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for i, subject := range []string{"''", "'>'", "'a.*'", "'a..b'", "'a b'", "E'a\\nb'", "repeat('a', 256)", "repeat('a', 1000000)", "'$JS.API.>'", "'order.placed'"} {
		mustExec(t, pool, fmt.Sprintf(`INSERT INTO postroom.outbox (digest, event_id, source, type, subject, data, checked)
			VALUES (decode(repeat('00', 16), 'hex'), 'event-%d', '/shop', 'a', %s, 'x', true)`, i, subject))
	}
	subjects, err := pglog.New(pool).Subjects(context.Background())
	if err != nil || strings.Join(subjects, " ") != "order.placed" {
		t.Errorf("Subjects = %.200q, %v", subjects, err)
	}
}
