package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
)

// insertEvent returns a statement that appends an event as a writer in SQL
// would. set replaces or adds columns, each with an SQL expression.
func insertEvent(name string, set map[string]string) string {
	row := map[string]string{
		"source":   "'/shop'",
		"event_id": "gen_random_uuid()::text",
		"digest":   "decode('00112233445566778899aabbccddeeff', 'hex')",
		"type":     "'order.placed'",
		"subject":  "'order.placed'",
		"data":     "'{}'",
	}
	maps.Copy(row, set)
	columns := slices.Sorted(maps.Keys(row))
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = row[c]
	}
	return fmt.Sprintf("INSERT INTO %s.outbox (%s) VALUES (%s)", name, strings.Join(columns, ", "), strings.Join(values, ", "))
}

// event returns an event that set has changed. Without the change, both Validate and the database
// accept it.
func event(set func(ev *postroom.Event)) postroom.Event {
	ev := postroom.NewEvent("order.placed", struct{}{})
	set(&ev)
	return ev
}

func headers(pairs ...string) map[string]string {
	h := make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = pairs[i+1]
	}
	return h
}

// numbered returns n headers, each of a name of 4 bytes and the given value.
func numbered(n int, value string) map[string]string {
	h := make(map[string]string, n)
	for i := range n {
		h[fmt.Sprintf("h%03d", i)] = value
	}
	return h
}

// row returns the columns that an event sets, as SQL expressions.
func row(t testing.TB, ev postroom.Event) map[string]string {
	t.Helper()
	set := map[string]string{"type": literal(ev.Type), "subject": literal(ev.Type), "event_id": literal(ev.ID)}
	optional := func(column, value string) {
		if value != "" {
			set[column] = literal(value)
		}
	}
	optional("source", ev.Source)
	optional("subject", ev.Subject)
	optional("key", ev.Key)
	optional("content_type", ev.ContentType)
	optional("correlation_id", ev.CorrelationID)
	optional("causation_id", ev.CausationID)
	optional("trace_parent", ev.TraceParent)
	optional("trace_state", ev.TraceState)
	for column, at := range map[string]time.Time{"occurred_at": ev.Time, "not_before": ev.NotBefore} {
		if at = at.UTC(); !at.IsZero() {
			set[column] = fmt.Sprintf("make_timestamptz(%d, %d, %d, 0, 0, 0, 'UTC')", at.Year(), at.Month(), at.Day())
		}
	}
	if ev.Headers != nil {
		text, err := json.Marshal(ev.Headers)
		if err != nil {
			t.Fatal(err)
		}
		set["headers"] = literal(string(text))
	}
	if len(ev.Data) > 2 {
		set["data"] = fmt.Sprintf("convert_to(repeat('x', %d), 'UTF8')", len(ev.Data))
	}
	return set
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// The database finds every fault that Validate finds, for writers in SQL.
func TestConstraintsMirrorValidate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	tests := []struct {
		name       string
		set        func(ev *postroom.Event)
		constraint string
	}{
		{"id too long", func(ev *postroom.Event) { ev.ID = long }, "identifier_length"},
		{"id too long in bytes", func(ev *postroom.Event) { ev.ID = strings.Repeat("ü", 128) }, "identifier_length"},
		{"id with #", func(ev *postroom.Event) { ev.ID = "a#b" }, "identifier_syntax"},
		{"id with space", func(ev *postroom.Event) { ev.ID = "a b" }, "identifier_syntax"},
		{"id with no-break space", func(ev *postroom.Event) { ev.ID = "a\u00a0b" }, "identifier_syntax"},
		{"id with newline", func(ev *postroom.Event) { ev.ID = "a\nb" }, "identifier_syntax"},
		{"id with control beyond ASCII", func(ev *postroom.Event) { ev.ID = "a\u0085b" }, "identifier_syntax"},
		{"source too long", func(ev *postroom.Event) { ev.Source = "/" + long }, "identifier_length"},
		{"source with #", func(ev *postroom.Event) { ev.Source = "/shop#1" }, "identifier_syntax"},
		{"source with tab", func(ev *postroom.Event) { ev.Source = "/shop\t" }, "identifier_syntax"},
		{"type empty", func(ev *postroom.Event) { ev.Type = "" }, "subject_syntax"},
		{"type too long", func(ev *postroom.Event) { ev.Type = long }, "subject_length"},
		{"type with empty token", func(ev *postroom.Event) { ev.Type = "order..placed" }, "subject_syntax"},
		{"type with leading dot", func(ev *postroom.Event) { ev.Type = ".order" }, "subject_syntax"},
		{"type with trailing dot", func(ev *postroom.Event) { ev.Type = "order." }, "subject_syntax"},
		{"type with space", func(ev *postroom.Event) { ev.Type = "order placed" }, "subject_syntax"},
		{"type with trailing newline", func(ev *postroom.Event) { ev.Type = "order.placed\n" }, "subject_syntax"},
		{"type with a wildcard", func(ev *postroom.Event) { ev.Type = "order.*" }, "subject_syntax"},
		{"type with the other wildcard", func(ev *postroom.Event) { ev.Type = "order.>" }, "subject_syntax"},
		{"type of the server", func(ev *postroom.Event) { ev.Type = "$JS.API.INFO" }, "subject_syntax"},
		{"type of a lease message", func(ev *postroom.Event) { ev.Type = "postroom.lease.a" }, "subject_reserved"},
		{"subject of a lease message", func(ev *postroom.Event) { ev.Subject = "postroom.lease.a.SHOP" }, "subject_reserved"},
		{"type with a letter beyond ASCII", func(ev *postroom.Event) { ev.Type = "örder" }, "subject_syntax"},
		{"subject too long", func(ev *postroom.Event) { ev.Subject = long }, "subject_length"},
		{"subject with a wildcard", func(ev *postroom.Event) { ev.Subject = ">" }, "subject_syntax"},
		{"subject with line break", func(ev *postroom.Event) { ev.Subject = "a\r\nPUB b 0" }, "subject_syntax"},
		{"key too long", func(ev *postroom.Event) { ev.Key = long }, "label_length"},
		{"key with line break", func(ev *postroom.Event) { ev.Key = "a\r\nb" }, "label_syntax"},
		{"key with DEL", func(ev *postroom.Event) { ev.Key = "a\u007fb" }, "label_syntax"},
		{"key with leading space", func(ev *postroom.Event) { ev.Key = " a" }, "label_syntax"},
		{"key with trailing space", func(ev *postroom.Event) { ev.Key = "a " }, "label_syntax"},
		{"key with trailing no-break space", func(ev *postroom.Event) { ev.Key = "a\u00a0" }, "label_syntax"},
		{"content type too long", func(ev *postroom.Event) { ev.ContentType = long }, "media_type_length"},
		{"content type with line break", func(ev *postroom.Event) { ev.ContentType = "text/plain\nNats-Rollup: all" }, "media_type_syntax"},
		{"content type of a whole event", func(ev *postroom.Event) { ev.ContentType = "Application/CloudEvents+json" }, "media_type_whole_event"},
		{"correlation id too long", func(ev *postroom.Event) { ev.CorrelationID = long }, "label_length"},
		{"correlation id with control", func(ev *postroom.Event) { ev.CorrelationID = "a\u0001" }, "label_syntax"},
		{"causation id too long", func(ev *postroom.Event) { ev.CausationID = long }, "label_length"},
		{"causation id with control", func(ev *postroom.Event) { ev.CausationID = "a\u0001" }, "label_syntax"},
		{"trace parent too long", func(ev *postroom.Event) { ev.TraceParent = long }, "label_length"},
		{"trace parent with line break", func(ev *postroom.Event) { ev.TraceParent = "00-\r\nNats-Rollup: all" }, "label_syntax"},
		{"trace state too long", func(ev *postroom.Event) { ev.TraceState = strings.Repeat("a", 513) }, "trace_state_length"},
		{"trace state with line break", func(ev *postroom.Event) { ev.TraceState = "a=1\r\nNats-Rollup: all" }, "trace_state_syntax"},
		{"trace state with trailing space", func(ev *postroom.Event) { ev.TraceState = "a=1 " }, "trace_state_syntax"},
		{"time after the year 9999", func(ev *postroom.Event) { ev.Time = date(10000) }, "instant_range"},
		{"time after the year 9999 in UTC", func(ev *postroom.Event) {
			ev.Time = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -2*3600))
		}, "instant_range"},
		{"time before the year 1", func(ev *postroom.Event) { ev.Time = date(-1) }, "instant_range"},
		{"not before a time after the year 9999", func(ev *postroom.Event) { ev.NotBefore = date(10000) }, "instant_range"},
		{"not before a time before the year 1", func(ev *postroom.Event) { ev.NotBefore = date(-1) }, "instant_range"},
		{"too much data", func(ev *postroom.Event) { ev.Data = make([]byte, postroom.MaxData+1) }, "body_length"},
		{"too many headers", func(ev *postroom.Event) { ev.Headers = numbered(65, "v") }, "headers_count"},
		{"headers too large", func(ev *postroom.Event) { ev.Headers = headers("a", strings.Repeat("v", 32768)) }, "headers_size"},
		{"headers too large together", func(ev *postroom.Event) {
			ev.Headers = headers("a", strings.Repeat(`"`, 20000), "b", strings.Repeat(`\`, 12767))
		}, "headers_size"},
		{"header without a name", func(ev *postroom.Event) { ev.Headers = headers("", "v") }, "headers_names"},
		{"header name with space", func(ev *postroom.Event) { ev.Headers = headers("a b", "v") }, "headers_names"},
		{"header name with colon", func(ev *postroom.Event) { ev.Headers = headers("a: b", "v") }, "headers_names"},
		{"header name with line break", func(ev *postroom.Event) { ev.Headers = headers("a\r\nb", "v") }, "headers_names"},
		{"header name with trailing newline", func(ev *postroom.Event) { ev.Headers = headers("a\n", "v") }, "headers_names"},
		{"header name with dot", func(ev *postroom.Event) { ev.Headers = headers("a.b", "v") }, "headers_names"},
		{"header name beyond ASCII", func(ev *postroom.Event) { ev.Headers = headers("ä", "v") }, "headers_names"},
		{"header name too long", func(ev *postroom.Event) { ev.Headers = headers(strings.Repeat("a", 129), "v") }, "headers_name_length"},
		{"header of the broker", func(ev *postroom.Event) { ev.Headers = headers("Nats-Rollup", "all") }, "headers_names"},
		{"header of the broker, other case", func(ev *postroom.Event) { ev.Headers = headers("nAtS-Msg-Id", "1") }, "headers_names"},
		{"header of CloudEvents", func(ev *postroom.Event) { ev.Headers = headers("CE-id", "1") }, "headers_names"},
		{"header of Postroom", func(ev *postroom.Event) { ev.Headers = headers("Postroom-Logged-At", "1") }, "headers_names"},
		{"trace context", func(ev *postroom.Event) { ev.Headers = headers("Traceparent", "1") }, "headers_names"},
		{"trace state", func(ev *postroom.Event) { ev.Headers = headers("tracestate", "1") }, "headers_names"},
		{"content type as header", func(ev *postroom.Event) { ev.Headers = headers("Content-Type", "1") }, "headers_names"},
		{"status", func(ev *postroom.Event) { ev.Headers = headers("STATUS", "503") }, "headers_names"},
		{"description", func(ev *postroom.Event) { ev.Headers = headers("DESCRIPTION", "x") }, "headers_names"},
		{"one bad header among good", func(ev *postroom.Event) { ev.Headers = headers("a", "1", "nats-x", "1", "z", "1") }, "headers_names"},
		{"two headers that differ in case", func(ev *postroom.Event) { ev.Headers = headers("tenant", "1", "Tenant", "2") }, "headers_case"},
		{"header value with line break", func(ev *postroom.Event) { ev.Headers = headers("a", "b\r\nNats-Rollup: all") }, "headers_values"},
		{"header value with control beyond ASCII", func(ev *postroom.Event) { ev.Headers = headers("a", "b\u0085c") }, "headers_values"},
		{"header value with leading space", func(ev *postroom.Event) { ev.Headers = headers("a", " b") }, "headers_values"},
		{"header value with trailing space", func(ev *postroom.Event) { ev.Headers = headers("a", "b\u3000") }, "headers_values"},
	}
	pool := devtest.Pool(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := event(tt.set)
			if err := ev.Validate(); !errors.Is(err, postroom.ErrInvalidEvent) {
				t.Errorf("Validate = %v, want ErrInvalidEvent", err)
			}
			wantViolation(t, pool, insertEvent("postroom", row(t, ev)), tt.constraint)
		})
	}
}

func date(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }

func wantViolation(t *testing.T, pool *pgxpool.Pool, sql, constraint string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "23514" || pg.ConstraintName != constraint {
		t.Errorf("insert = %v, want 23514 of %s", err, constraint)
	}
}

// A writer in SQL can write values that Go cannot write.
func TestConstraintsForSQLOnly(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, column, value, constraint string }{
		{"empty id", "event_id", "''", "identifier_length"},
		{"empty source", "source", "''", "identifier_length"},
		{"empty subject", "subject", "''", "subject_syntax"},
		{"empty key", "key", "''", "label_length"},
		{"empty content type", "content_type", "''", "media_type_length"},
		{"short digest", "digest", `'\x00'`, "digest_length"},
		{"long digest", "digest", "decode(repeat('00', 17), 'hex')", "digest_length"},
		{"infinite time", "occurred_at", "'infinity'", "instant_range"},
		{"infinitely early time", "occurred_at", "'-infinity'", "instant_range"},
		{"never published", "not_before", "'infinity'", "instant_range"},
		{"published for ever", "not_before", "'-infinity'", "instant_range"},
		{"never logged", "created_at", "'infinity'", "instant_range"},
		{"headers are an array", "headers", `'["a"]'`, "headers_form"},
		{"headers are a text", "headers", `'"a"'`, "headers_form"},
		{"headers are null", "headers", `'null'`, "headers_form"},
		{"headers are an array of headers", "headers", `'[{"Nats-Rollup": "all"}]'`, "headers_form"},
	}
	pool := devtest.Pool(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantViolation(t, pool, insertEvent("postroom", map[string]string{tt.column: tt.value}), tt.constraint)
		})
	}
}

// The database refuses no event that Validate accepts. Its error would not name a field.
func TestConstraintsTakeWhatValidateTakes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		set  func(ev *postroom.Event)
	}{
		{"as it comes", func(*postroom.Event) {}},
		{"longest id", func(ev *postroom.Event) { ev.ID = strings.Repeat("x", 255) }},
		{"id beyond ASCII", func(ev *postroom.Event) { ev.ID = "bestellung-№-5-😀" }},
		{"longest source", func(ev *postroom.Event) { ev.Source = strings.Repeat("/", 255) }},
		{"longest type", func(ev *postroom.Event) { ev.Type = strings.Repeat("x", 255) }},
		{"types near the reserved ones", func(ev *postroom.Event) { ev.Type, ev.Subject = "postroom.lease", "postroom.leases.a" }},
		{"type of every kind of character", func(ev *postroom.Event) { ev.Type = "a.B-0._-_.9" }},
		{"longest key", func(ev *postroom.Event) { ev.Key = strings.Repeat("ü", 127) }},
		{"key with white space and #", func(ev *postroom.Event) { ev.Key = "a #\u00a0\u3000 b" }},
		{"media type with parameters", func(ev *postroom.Event) { ev.ContentType = `text/plain; charset="utf-8"` }},
		{"first time", func(ev *postroom.Event) { ev.Time = date(1).Add(24 * time.Hour) }},
		{"last time", func(ev *postroom.Event) { ev.Time = date(10000).Add(-24 * time.Hour) }},
		{"not before the first time", func(ev *postroom.Event) { ev.NotBefore = date(1).Add(24 * time.Hour) }},
		{"not before the last time", func(ev *postroom.Event) { ev.NotBefore = date(10000).Add(-24 * time.Hour) }},
		{"most data", func(ev *postroom.Event) { ev.Data = make([]byte, postroom.MaxData) }},
		{"longest trace context", func(ev *postroom.Event) {
			ev.TraceParent, ev.TraceState = strings.Repeat("0", 255), strings.Repeat("a", 512)
		}},
		{"no headers", func(ev *postroom.Event) { ev.Headers = headers() }},
		{"most headers", func(ev *postroom.Event) { ev.Headers = numbered(64, "v") }},
		{"largest header", func(ev *postroom.Event) { ev.Headers = headers("a", strings.Repeat("v", 32767)) }},
		{"largest header, all escaped", func(ev *postroom.Event) { ev.Headers = headers("a", strings.Repeat(`"\`, 32766/2)) }},
		{"largest headers together", func(ev *postroom.Event) { ev.Headers = numbered(64, strings.Repeat(`"`, 508)) }},
		{"headers of the largest text", func(ev *postroom.Event) {
			ev.Headers = numbered(64, "")
			size := 0
			for name := range ev.Headers {
				size += len(name)
			}
			for name := range ev.Headers { // only one of them gets a value
				ev.Headers[name] = strings.Repeat(`"`, postroom.MaxHeaderBytes-size)
				break
			}
		}},
		{"longest header name", func(ev *postroom.Event) { ev.Headers = headers(strings.Repeat("a", 128), "v") }},
		{"names near the reserved ones", func(ev *postroom.Event) {
			ev.Headers = headers("nats", "1", "ce", "1", "postroom", "1", "x-nats-y", "1", "status-code", "1", "my-description", "1", "content-type-2", "1")
		}},
		{"values of every kind", func(ev *postroom.Event) {
			ev.Headers = headers("a", "", "b", `{"json": "with \\ and \" in it"}`, "c", "ü 😀 \u2028 ü", "d", "Ａ", "e", "true")
		}},
		{"values that differ in case", func(ev *postroom.Event) { ev.Headers = headers("a", "X", "b", "x") }},
	}
	pool := devtest.Pool(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := event(tt.set)
			if err := ev.Validate(); err != nil {
				t.Fatalf("Validate = %v", err)
			}
			exec(t, pool, insertEvent("postroom", row(t, ev)))
		})
	}
}

// Go and the database agree on each character that could be white space or a
// control character, wherever in a text it stands.
func TestConstraintsAgreeOnCharacters(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, `
		CREATE FUNCTION takes(domain text, value text) RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN
		    EXECUTE format('SELECT %L::postroom.%I', value, domain);
		    RETURN true;
		EXCEPTION WHEN check_violation THEN
		    RETURN false;
		END $$`)

	var chars []rune
	for _, span := range [][2]rune{
		{0x01, 0x250},
		{0x61c, 0x61c},
		{0x1680, 0x1680},
		{0x180e, 0x180e},
		{0x1fff, 0x2070},
		{0x2fff, 0x3001},
		{0xfeff, 0xfeff},
		{0xfff9, 0xfffd},
		{0x1f600, 0x1f600},
		{0xe0001, 0xe0001},
	} {
		for r := span[0]; r <= span[1]; r++ {
			chars = append(chars, r)
		}
	}
	var texts []string
	for _, r := range chars {
		texts = append(texts, string(r)+"b", "a"+string(r)+"b", "a"+string(r))
	}

	domains := []struct {
		name string
		set  func(ev *postroom.Event, s string)
	}{
		{"identifier", func(ev *postroom.Event, s string) { ev.ID = s }},
		{"subject", func(ev *postroom.Event, s string) { ev.Type = s }},
		{"label", func(ev *postroom.Event, s string) { ev.Key = s }},
		{"media_type", func(ev *postroom.Event, s string) { ev.ContentType = s }},
		{"trace_state", func(ev *postroom.Event, s string) { ev.TraceState = s }},
		{"headers", func(ev *postroom.Event, s string) { ev.Headers = headers("a", s) }},
		{"headers", func(ev *postroom.Event, s string) { ev.Headers = headers(s, "v") }},
	}
	for _, domain := range domains {
		values := make([]string, len(texts))
		want := make([]bool, len(texts))
		for i, s := range texts {
			ev := event(func(ev *postroom.Event) { domain.set(ev, s) })
			want[i] = ev.Validate() == nil
			values[i] = s
			if ev.Headers != nil {
				object, err := json.Marshal(ev.Headers)
				if err != nil {
					t.Fatal(err)
				}
				values[i] = string(object)
			}
		}
		rows, _ := pool.Query(t.Context(), "SELECT takes($1, v) FROM unnest($2::text[]) WITH ORDINALITY AS u (v, n) ORDER BY n",
			domain.name, values) // CollectRows reports the error
		got, err := pgx.CollectRows(rows, pgx.RowTo[bool])
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s %+q: the database takes it = %t, Validate = %t", domain.name, values[i], got[i], want[i])
			}
		}
	}
}

// Every column of the log with texts, bytes or times has a bound. It applies if the writer does not
// claim to have checked the event.
func TestEveryColumnOfTheLogIsBounded(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	rows, _ := pool.Query(t.Context(), `
		SELECT a.attname::text, format_type(coalesce(nullif(ty.typbasetype, 0), ty.oid), NULL)
		FROM pg_attribute a
		JOIN pg_type ty ON ty.oid = a.atttypid
		WHERE a.attrelid = 'postroom.outbox'::regclass AND a.attnum > 0 AND NOT a.attisdropped`) // CollectRows reports the error
	type column struct{ Name, Type string }
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	if err != nil {
		t.Fatal(err)
	}
	tooMuch := map[string]string{
		"text": "repeat('x', 513)", "bytea": "decode(repeat('00', 983041), 'hex')", "jsonb": `jsonb_build_object('a', repeat('x', 32768))`,
		"timestamp with time zone": "'infinity'",
	}
	bounded := 0
	for _, c := range columns {
		value, ok := tooMuch[c.Type]
		if !ok {
			continue
		}
		bounded++
		_, err := pool.Exec(t.Context(), insertEvent("postroom", map[string]string{c.Name: value}))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "23514" {
			t.Errorf("too much in %s: %v, want 23514", c.Name, err)
		}
	}
	if bounded < 15 {
		t.Errorf("looked at %d columns of %v", bounded, columns)
	}
}

func TestInboxConstraints(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, values, constraint string }{
		{"empty handler", "'', 'k', NULL", "inbox_handler_check"},
		{"handler too long", "repeat('h', 129), 'k', NULL", "inbox_handler_check"},
		{"empty key", "'h', '', NULL", "inbox_dedupe_key_check"},
		{"key too long", "'h', repeat('k', 1025), NULL", "inbox_dedupe_key_check"},
		{"short digest", `'h', 'k', '\x00'`, "digest_length"},
	}
	pool := devtest.Pool(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantViolation(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key, digest) VALUES ("+tt.values+")", tt.constraint)
		})
	}
	t.Run("a second instance", func(t *testing.T) {
		wantViolation(t, pool, "INSERT INTO postroom.instance (only_one) VALUES (false)", "instance_only_one_check")
	})
	t.Run("a second relay", func(t *testing.T) {
		wantViolation(t, pool, "INSERT INTO postroom.relay (only_one, cluster) VALUES (false, 1)", "relay_only_one_check")
	})
}

// The test tries the shortest and the longest lengths that a text may have, and lengths outside
// these.
func TestLengthsOfTexts(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, domain := range []string{"identifier", "label", "media_type"} {
		for n, ok := range map[int]bool{0: false, 1: true, 254: true, 255: true, 256: false, 257: false, 70_000: false} {
			_, err := pool.Exec(t.Context(), fmt.Sprintf("SELECT repeat('x', %d)::postroom.%s", n, domain))
			var pg *pgconn.PgError
			if errors.As(err, &pg) == ok || !ok && pg.ConstraintName != domain+"_length" {
				t.Errorf("%s of %d bytes: %v, want it taken: %t", domain, n, err, ok)
			}
		}
	}
}

// indexesOfLocale names the indexes that sort text in another way than by its bytes,
// also those that a later migration adds.
const indexesOfLocale = `
	SELECT coalesce(string_agg(DISTINCT i.indexrelid::regclass::text, ' ' ORDER BY i.indexrelid::regclass::text), '')
	FROM pg_index i
	JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'postroom'::regnamespace,
	     unnest(i.indcollation::oid[]) AS by
	WHERE by NOT IN (0, '"C"'::regcollation)`

// The order of a locale changes with the operating system. The order of an index must not.
func TestNoIndexDependsOnTheLocale(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if got := one[string](t, pool, indexesOfLocale); got != "" {
		t.Errorf("indexes that an upgrade of the locale breaks: %s", got)
	}
}
