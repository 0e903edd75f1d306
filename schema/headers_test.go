package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

// badHeaders are headers that are no object of short texts, each with the constraint that refuses
// them. Some are small in a table and would cost a relay much.
func badHeaders() map[string][2]string {
	list := func(value string, n int) string {
		return `{"a": [` + strings.Repeat(value+",", n-1) + value + `]}`
	}
	return map[string][2]string{
		"a list":                      {`["a"]`, "headers_form"},
		"a list of headers":           {`[{"a": "b"}]`, "headers_form"},
		"a text":                      {`"a"`, "headers_form"},
		"a long text":                 {`"` + strings.Repeat(`\u0001`, 1_000_000) + `"`, "headers_form"},
		"a number":                    {"1", "headers_form"},
		"null":                        {"null", "headers_form"},
		"a long list":                 {"[" + strings.Repeat("true,", 500_000) + "true]", "headers_form"},
		"a value is a number":         {`{"a": "b", "c": 1}`, "headers_strings"},
		"a value is null":             {`{"a": null}`, "headers_strings"},
		"a value is true":             {`{"a": true}`, "headers_strings"},
		"a value is an object":        {`{"a": {}}`, "headers_strings"},
		"a value is a list":           {`{"a": ["b"]}`, "headers_strings"},
		"nested values":               {`{"a": ` + strings.Repeat("[", 12_000) + strings.Repeat("]", 12_000) + "}", "headers_strings"},
		"a long number":               {`{"a": 1e131071}`, "headers_strings"},
		"many long numbers":           {list("1e131071", 9000), "headers_strings"}, // their text is longer than a text can be
		"zeros behind the point":      {list("1."+strings.Repeat("0", 16383), 100), "headers_strings"},
		"a value is too long":         {`{"a": "` + strings.Repeat("x", 66_048-8+1) + `"}`, "headers_text"},
		"a value is much too long":    {`{"a": "` + strings.Repeat("x", 5_000_000) + `"}`, "headers_text"},
		"too many control characters": {`{"a": "` + strings.Repeat(`\u0001`, 11_007) + `"}`, "headers_text"}, // 11 kB as jsonb
		"too many headers":            {`{"a": "", ` + strings.Join(numberedPairs(10_000), ", ") + "}", "headers_text"},
	}
}

func numberedPairs(n int) (pairs []string) {
	for i := range n {
		pairs = append(pairs, fmt.Sprintf(`"%d": ""`, i))
	}
	return pairs
}

// wantConstraint checks that an error names the constraint, and quotes nothing of the row.
func wantConstraint(t *testing.T, err error, constraint string) {
	t.Helper()
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "23514" || pg.ConstraintName != constraint {
		t.Errorf("%.300v, want 23514 of %s", err, constraint)
	} else if strings.Contains(pg.Message+pg.Detail, "secret") {
		t.Errorf("the error quotes the event: %s %s", pg.Message, pg.Detail)
	}
}

// A relay reads headers before it checks the event. So the database refuses other headers than short
// texts in every row, also if the row says that it is checked, and however a producer writes it.
func TestHeadersThatNoRelayReads(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	producer, role := devtest.RolePool(t, pool)
	exec(t, pool, fmt.Sprintf("SELECT postroom.grant_producer('%s')", role))
	const columns = "(digest, source, event_id, type, subject, data, headers, checked)"
	ways := map[string]func(headers string) error{
		"INSERT": func(headers string) error {
			_, err := producer.Exec(t.Context(), "INSERT INTO postroom.outbox "+columns+
				" VALUES (decode(repeat('00', 16), 'hex'), '/shop', gen_random_uuid()::text, 'a', 'a', 'secret', $1::jsonb, true)", headers)
			return err
		},
		"INSERT of an unchecked row": func(headers string) error {
			_, err := producer.Exec(t.Context(), "INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data, headers)"+
				" VALUES (decode(repeat('00', 16), 'hex'), '/shop', gen_random_uuid()::text, 'a', 'a', 'secret', $1)", headers)
			return err
		},
		"postroom.write": func(headers string) error {
			_, err := producer.Exec(t.Context(), "SELECT postroom.write('/shop', 'a', '\"secret\"', headers => $1)", headers)
			return err
		},
		"COPY": func(headers string) error {
			conn, err := producer.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			row := strings.Join([]string{"", "/shop", "copied", "a", "a", "secret", strings.ReplaceAll(headers, `\`, `\\`), "true"}, "\t") + "\n"
			_, err = conn.Conn().PgConn().CopyFrom(t.Context(), strings.NewReader(row), "COPY postroom.outbox "+columns+" FROM STDIN")
			return err
		},
		"INSERT and UPDATE of the owner": func(headers string) error {
			exec(t, pool, insertEvent("postroom", nil))
			_, err := pool.Exec(t.Context(), "UPDATE postroom.outbox SET headers = $1::jsonb", headers)
			return err
		},
	}
	for _, compression := range compressions(t, pool) {
		ways["INSERT of what is compressed by "+compression] = func(headers string) error {
			conn, err := producer.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			for _, sql := range []string{"DROP TABLE IF EXISTS given", "CREATE TEMP TABLE given (headers jsonb COMPRESSION " + compression + ")"} {
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := conn.Exec(t.Context(), "INSERT INTO given VALUES ($1)", headers); err != nil {
				t.Fatal(err)
			}
			var method *string
			if err := conn.QueryRow(t.Context(), "SELECT pg_column_compression(headers) FROM given").Scan(&method); err != nil {
				t.Fatal(err)
			}
			if long := strings.Contains(headers, "xxx") || strings.Contains(headers, `\u0001`); long && (method == nil || *method != compression) {
				t.Fatalf("inconclusive: the headers are not compressed: %.100s", headers)
			}
			_, err = conn.Exec(t.Context(), "INSERT INTO postroom.outbox "+columns+
				" SELECT '', '/shop', gen_random_uuid()::text, 'a', 'a', 'secret', headers, true FROM given")
			return err
		}
	}
	for way, write := range ways {
		t.Run(way, func(t *testing.T) {
			for name, bad := range badHeaders() {
				t.Run(name, func(t *testing.T) { wantConstraint(t, write(bad[0]), bad[1]) })
			}
			if way != "postroom.write" && way != "INSERT of an unchecked row" { // these check the other rules
				if err := write(`{"Nats-Rollup": "` + strings.Repeat("x", 66_048-19) + `"}`); err != nil {
					t.Errorf("the largest headers: %v", err)
				}
			}
		})
	}
}

// compressions returns the methods with which the server can compress values.
func compressions(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	return one[[]string](t, pool, "SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'")
}

// The relay also reads the headers of held events that it has to publish. An event of a handler may
// have larger ones, because other programs publish messages too.
func TestHeadersOfHeldEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', 'k')")
	hold := func(handler, dedupe, headers string) error {
		_, err := pool.Exec(t.Context(), `INSERT INTO postroom.held (handler, dedupe_key, pos, next_at, logged_at, source, event_id, type, subject, content_type, headers, data)
			VALUES ($1, nullif($2, ''), 1, now(), now(), '/shop', 'a', 'a', 'a', 'text/plain', $3::jsonb, 'secret')`, handler, dedupe, headers)
		return err
	}
	for name, bad := range badHeaders() {
		t.Run(name, func(t *testing.T) { wantConstraint(t, hold("outbox", "", bad[0]), bad[1]) })
	}
	if err := hold("h", "k", badHeaders()["a value is much too long"][0]); err != nil {
		t.Errorf("large headers of a handler's event: %v", err)
	}
}
