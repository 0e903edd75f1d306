package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/schema"
)

func TestSQLWriteFillsWhatIsNotGiven(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	var id string
	before := time.Now().Add(-time.Minute)
	err := pool.QueryRow(t.Context(), `SELECT postroom.write(source => '/shop', type => 'order.placed', data => '{"id": 7}')`).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.Version() != 7 || parsed.Variant() != uuid.RFC4122 {
		t.Errorf("id = %q (%v), want a UUIDv7", id, err)
	}
	if sec, nsec := parsed.Time().UnixTime(); time.Unix(sec, nsec).Before(before) || time.Unix(sec, nsec).After(before.Add(2*time.Minute)) {
		t.Errorf("id = %q is of %s, want about now", id, time.Unix(sec, nsec))
	}
	ids, _, page := read(t, lead(t, pglog.New(pool)), 10)
	wantIDs(t, ids, id)
	want := postroom.Event{ID: id, Source: "/shop", Type: "order.placed", Subject: "order.placed", ContentType: "application/json", Data: []byte(`{"id": 7}`)}
	got := page.Events[0].Event
	if !got.Time.Equal(got.LoggedAt) {
		t.Errorf("Time = %s, want when it was written, %s", got.Time, got.LoggedAt)
	}
	got.Time, got.LoggedAt = time.Time{}, time.Time{}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("read  %s\nwrote %s", g, w)
	}
}

func TestSQLWriteData(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, tt := range []struct{ data, want, state string }{
		{`'{"b": 1,"a":2}'`, `{"b": 1,"a":2}`, ""}, // as it is written
		{`'{"b": 1,"a":2}'::json`, `{"b": 1,"a":2}`, ""},
		{`'{"b": 1,"a":2}'::jsonb`, `{"a": 2, "b": 1}`, ""},
		{`'Müller'::text, content_type => 'text/plain'`, "Müller", ""},
		{`'Müller'::varchar(20), content_type => 'text/x+jsonl'`, "Müller", ""},
		{`'\x00ff'::bytea, content_type => 'application/octet-stream'`, "\x00\xff", ""},
		{`'{"a":1}'::varchar(20), content_type => 'Application/JSON; charset=utf-8'`, `{"a":1}`, ""},
		{`'[1]'::bytea`, `[1]`, ""},
		{`'Müller'::text`, "", "23514"},
		{`'{"a":1'::varchar(20)`, "", "23514"},
		{`'\x00ff'::bytea`, "", "23514"},
		{`'x', content_type => 'Application/JSON; charset=utf-8'`, "", "23514"},
		{`'x', content_type => 'application/problem+json'`, "", "23514"},
		{`jsonb_build_object('a', 1)`, `{"a": 1}`, ""},
		{`''`, "", ""},
		{"42", "", "42804"},
		{"NULL", "", "23502"},
		{"convert_to(repeat('x', 983041), 'UTF8')", "", "23514"},
	} {
		t.Run(tt.data, func(t *testing.T) {
			var got []byte
			_, err := pool.Exec(t.Context(), "TRUNCATE postroom.outbox; SELECT postroom.write('/shop', 'a', "+tt.data+")")
			if state := stateOf(err); state != tt.state {
				t.Fatalf("write = %v, want SQLSTATE %q", err, tt.state)
			}
			if err != nil {
				return
			}
			if err := pool.QueryRow(t.Context(), "SELECT data FROM postroom.outbox").Scan(&got); err != nil || string(got) != tt.want {
				t.Errorf("data = %q (%v), want %q", got, err, tt.want)
			}
		})
	}
}

// The error says what to do, and quotes nothing of the data.
func TestSQLWriteSaysWhatToDoAboutDataThatIsNoJSON(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, err := pool.Exec(t.Context(), "SELECT postroom.write('/shop', 'a', 'secret')")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.ConstraintName != "data_json" || !strings.Contains(pg.Hint, "content_type") || !strings.Contains(pg.Message, "application/json") {
		t.Fatalf("write = %v, want an error of data_json that names both ways out", err)
	}
	if text := fmt.Sprintf("%+v", pg); strings.Contains(text, "secret") {
		t.Errorf("the error quotes the data: %s", text)
	}
}

func stateOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestSQLWriteKeepsToTheConstraints(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, tt := range []struct{ arguments, constraint string }{
		{"source => '', type => 'a'", "identifier_length"},
		{"source => '/a b', type => 'a'", "identifier_syntax"},
		{"source => '/a', type => 'a..b'", "subject_syntax"},
		{"source => '/a', type => 'a', subject => 'a.*'", "subject_syntax"},
		{"source => '/a', type => 'a', id => 'a#b'", "identifier_syntax"},
		{"source => '/a', type => 'a', key => ''", "label_length"},
		{"source => '/a', type => 'a', content_type => 'application/cloudevents+json'", "media_type_whole_event"},
		{"source => '/a', type => 'a', not_before => 'infinity'", "instant_range"},
		{"source => '/a', type => 'a', not_before => '-infinity'", "instant_range"},
		{"source => '/a', type => 'a', not_before => '0044-03-15 BC'", "instant_range"},
		{"source => '/a', type => 'a', headers => '[]'", "headers_form"},
		{"source => '/a', type => 'a', headers => 'null'", "headers_form"},
		{`source => '/a', type => 'a', headers => '{"n": 1}'`, "headers_strings"},
		{`source => '/a', type => 'a', headers => '{"Nats-Rollup": "all"}'`, "headers_names"},
	} {
		t.Run(tt.arguments, func(t *testing.T) {
			_, err := pool.Exec(t.Context(), "SELECT postroom.write(data => '', "+tt.arguments+")")
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "23514" || pg.ConstraintName != tt.constraint {
				t.Errorf("write = %v, want 23514 of %s", err, tt.constraint)
			}
		})
	}
	if n := rowCount(t, pool); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

// SQL mostly writes events in a trigger. Here the tables are in another schema, and the search path
// has other functions with the same names in front.
func TestSQLWriteInATrigger(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	if _, err := schema.Migrate(t.Context(), pool, "mail"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `
		CREATE TABLE orders (id int PRIMARY KEY);
		CREATE FUNCTION announce() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		    PERFORM mail.write('/shop', 'order.placed', to_jsonb(NEW), key => NEW.id::text, id => 'order-' || NEW.id);
		    RETURN NULL;
		END $$;
		CREATE TRIGGER announce AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION announce();

		CREATE SCHEMA evil;
		CREATE FUNCTION evil.wrong() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'taken in'; END $$;
		CREATE FUNCTION evil.write(text, text, jsonb, key text, id text) RETURNS text LANGUAGE sql AS 'SELECT evil.wrong()';
		CREATE FUNCTION evil.content_digest(text, text, text, bytea, jsonb, timestamptz) RETURNS bytea LANGUAGE sql AS 'SELECT evil.wrong()::bytea';
		CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT evil.wrong()::bytea';
		CREATE FUNCTION evil.convert_to(text, text) RETURNS bytea LANGUAGE sql AS 'SELECT evil.wrong()::bytea';
		CREATE FUNCTION evil.convert_to(text, name) RETURNS bytea LANGUAGE sql AS 'SELECT evil.wrong()::bytea';
		CREATE FUNCTION evil.jsonb_each(jsonb) RETURNS TABLE (key text, value jsonb) LANGUAGE sql AS 'SELECT evil.wrong(), NULL::jsonb';
		CREATE TABLE evil.outbox (seq int)`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SET LOCAL search_path = evil, pg_catalog, public; INSERT INTO orders VALUES (1), (2)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	shop := outbox.New(outbox.Config{Source: "/shop", Schema: "mail"})
	same := postroom.Event{ID: "order-1", Type: "order.placed", Key: "1", Data: []byte(`{"id": 1}`)}
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, same) }); err != nil {
		t.Errorf("the same event from Go: %v, want a no-op", err)
	}
	same.Key = "other"
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, same, named("new")) })
	if !errors.Is(err, postroom.ErrEventConflict) {
		t.Errorf("another event from Go: %v, want ErrEventConflict", err)
	}
	ids, _, _ := read(t, lead(t, pglog.New(pool).WithSchema("mail")), 10)
	wantIDs(t, ids, "order-1", "order-2")
}

// An ordinary role with the rights of grant_producer can write events in every way, and can do
// nothing else.
func TestGrantedProducer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"postroom", "mail"} {
		t.Run("schema "+name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.EmptyPool(t)
			// The test must not depend on default rights.
			mustExec(t, pool, `ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
				ALTER DEFAULT PRIVILEGES REVOKE USAGE ON TYPES FROM PUBLIC`)
			if _, err := schema.Migrate(t.Context(), pool, name); err != nil {
				t.Fatal(err)
			}
			role := producerRole(t, pool, name)
			as := func(sql string) error {
				return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role+"; "+strings.ReplaceAll(sql, "postroom.", name+"."))
					return err
				})
			}
			if err := as("SELECT postroom.write('/shop', 'a', '', id => 'from-sql')"); err != nil {
				t.Errorf("the SQL function: %v", err)
			}
			producerWrites(t, pool, role, name)

			row := "'/shop', 'x', decode(repeat('00', 16), 'hex'), 'a', 'a', ''"
			if err := as("INSERT INTO postroom.outbox (source, event_id, digest, type, subject, data) VALUES (" + row + ")"); err != nil {
				t.Errorf("a plain INSERT: %v", err)
			}
			for _, sql := range []string{
				"INSERT INTO postroom.outbox (seq, source, event_id, digest, type, subject, data) OVERRIDING SYSTEM VALUE VALUES (9, " + row + ")",
				"INSERT INTO postroom.outbox (xid, source, event_id, digest, type, subject, data) VALUES ('9', " + row + ")",
				"INSERT INTO postroom.outbox (created_at, source, event_id, digest, type, subject, data) VALUES (now(), " + row + ")",
				"SELECT data FROM postroom.outbox",
				"SELECT headers FROM postroom.outbox",
				"SELECT key FROM postroom.outbox",
				"SELECT * FROM postroom.outbox",
				"UPDATE postroom.outbox SET digest = digest",
				"DELETE FROM postroom.outbox",
				"TRUNCATE postroom.outbox",
				"SELECT nextval('postroom.outbox_seq_seq')",
				"SELECT high FROM postroom.relay",
				"UPDATE postroom.relay SET high = 0",
				"SELECT FROM postroom.inbox",
				"SELECT postroom.grant_producer('" + role + "')",
				"CREATE TABLE postroom.mine (x int)",
			} {
				if state := stateOf(as(sql)); state != "42501" {
					t.Errorf("%s: %q, want 42501 insufficient privilege", sql, state)
				}
			}
		})
	}
}

// producerRole creates a role, grants it the rights of a producer, and drops it when the test ends.
func producerRole(t *testing.T, pool *pgxpool.Pool, name string) string {
	t.Helper()
	var role string
	if err := pool.QueryRow(t.Context(), "SELECT current_database() || '_Producer'").Scan(&role); err != nil {
		t.Fatal(err)
	}
	role = pgx.Identifier{role}.Sanitize() // a name that has to be quoted
	mustExec(t, pool, "CREATE ROLE "+role)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), devtest.Patience(t, 10*time.Second))
		defer cancel()
		if _, err := pool.Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // as after a migration
		mustExec(t, pool, "SELECT "+name+".grant_producer('"+role+"')")
	}
	return role
}

// producerWrites writes events as a role, in each way that Go has. It writes each event twice.
func producerWrites(t *testing.T, pool *pgxpool.Pool, role, name string) {
	t.Helper()
	cfg := pool.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		return err
	}
	producers, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producers.Close()

	shop := outbox.New(outbox.Config{Source: "/shop", Schema: name})
	if err := shop.Check(t.Context(), producers); err != nil {
		t.Errorf("Check: %v", err)
	}
	full := odd("full")
	other := postroom.Event{ID: "full", Type: "other"}
	for i, tt := range []struct {
		events []postroom.Event
		want   error
	}{
		{[]postroom.Event{full}, nil},
		{[]postroom.Event{full}, nil},
		{[]postroom.Event{full, named("new")}, nil},
		{[]postroom.Event{other}, postroom.ErrEventConflict},
		{[]postroom.Event{named("b"), other}, postroom.ErrEventConflict},
	} {
		err := pgx.BeginFunc(t.Context(), producers, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, tt.events...) })
		if !errors.Is(err, tt.want) {
			t.Errorf("Write %d: %v, want %v", i, err, tt.want)
		}
		var batch pgx.Batch
		if err := shop.Queue(&batch, tt.events...); err != nil {
			t.Fatal(err)
		}
		if err := producers.SendBatch(t.Context(), &batch).Close(); !errors.Is(err, tt.want) {
			t.Errorf("Queue %d: %v, want %v", i, err, tt.want)
		}
	}
	db := openSQL(t, pool)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SET LOCAL ROLE "+role); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(shop.WriteSQL(t.Context(), tx, named("sql-1"), named("sql-2")), tx.Commit()); err != nil {
		t.Errorf("WriteSQL: %v", err)
	}
}
