package remedy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/remedy"
)

// server is an error with an SQLSTATE, like the errors of drivers.
type server string

func (s server) Error() string    { return "ERROR (SQLSTATE " + string(s) + ")" }
func (s server) SQLState() string { return string(s) }

// noConn is a transaction without a connection.
type noConn struct{}

func (noConn) Conn() *pgx.Conn { return nil }

// security is the error of a statement that row-level security does not allow, of the given function
// of the server.
func security(routine string) error { return &pgconn.PgError{Code: "42501", Routine: routine} }

func TestExplain(t *testing.T) {
	as := func(role string) *pgxpool.Pool {
		cfg, err := pgxpool.ParseConfig("host=127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		cfg.ConnConfig.User = role
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg) // a pool does not connect before it is used
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	tests := []struct {
		name string
		err  error
		use  remedy.Use
		want string // empty: as it is
	}{
		{"rights", server("42501"), remedy.Use{Grant: "relay", Schema: "postroom", DB: as("app")}, "SELECT postroom.grant_relay('app')"},
		{"of a role with an odd name", server("42501"), remedy.Use{Grant: "inbox", Schema: "mail", DB: as(`My "app's"`)}, `SELECT mail.grant_inbox('"My ""app''s"""')`},
		{"of a role that is not known", server("42501"), remedy.Use{Grant: "producer", Schema: "postroom"}, `SELECT postroom.grant_producer('"the role of this connection"')`},
		{"nor by a transaction without a connection", server("42501"), remedy.Use{Grant: "producer", Schema: "postroom", DB: noConn{}}, `grant_producer('"the role of this connection"')`},
		{"row-level security hides a row", security("check_enable_rls"), remedy.Use{Grant: "relay", Schema: "postroom", DB: as("app")}, "or as a superuser: ALTER ROLE app BYPASSRLS"},
		{"row-level security refuses a row", security("ExecWithCheckOptions"), remedy.Use{Grant: "producer", Schema: "postroom"}, "ALTER TABLE … DISABLE ROW LEVEL SECURITY"},
		{"rights to connect", fmt.Errorf("%w", &pgconn.ConnectError{}), remedy.Use{Grant: "relay", Schema: "postroom"}, ""},
		{"rights, of a connection that was not made", fmt.Errorf("%w: %w", &pgconn.ConnectError{}, server("42501")), remedy.Use{Grant: "relay", Schema: "postroom"}, ""},
		{"no table", server("42P01"), remedy.Use{Grant: "relay", Schema: "postroom"}, "in the schema postroom of this database; create them: postroom migrate up"},
		{"no table of a known database", server("42P01"), remedy.Use{Grant: "relay", Schema: "postroom", DB: as("app")}, `in the schema postroom of database "" at 127.0.0.1:5432; create them: postroom migrate up`},
		{"no schema", server("3F000"), remedy.Use{Grant: "relay", Schema: "mail"}, "create them: postroom migrate up --schema mail"},
		{"an old table", server("42703"), remedy.Use{Grant: "relay", Schema: "postroom"}, "older than this program; migrate them: postroom migrate up"},
		{"an old function", server("42883"), remedy.Use{Grant: "relay", Schema: "postroom"}, "older than this program"},
		{"a standby", server("25006"), remedy.Use{Grant: "inbox", Schema: "postroom"}, "connect to its primary server"},
		{"another fault of the database", server("40001"), remedy.Use{}, ""},
		{"another error", errors.New("EOF"), remedy.Use{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wrapped := fmt.Errorf("read: %w", tt.err)
			got := remedy.Explain(wrapped, tt.use)
			if tt.want == "" {
				if got != wrapped { //nolint:errorlint // the very error
					t.Errorf("Explain = %v, want %v as it is", got, wrapped)
				}
				return
			}
			if !errors.Is(got, tt.err) || !strings.HasPrefix(got.Error(), wrapped.Error()) || !strings.Contains(got.Error(), tt.want) {
				t.Errorf("Explain = %v, want %v with %q", got, wrapped, tt.want)
			}
			if tt.use.Schema == "postroom" && strings.Contains(got.Error(), "--schema") {
				t.Errorf("Explain = %v, which names the schema that is the default", got)
			}
			if again := remedy.Explain(fmt.Errorf("outbox: %w", got), remedy.Use{Grant: "other"}); strings.Contains(again.Error(), "other") {
				t.Errorf("explained twice: %v", again)
			}
		})
	}
	if err := remedy.Explain(nil, remedy.Use{}); err != nil {
		t.Errorf("Explain(nil) = %v", err)
	}
}

// IsUndefined is true only if a table, schema, column or function does not exist.
func TestIsUndefined(t *testing.T) {
	for code, want := range map[string]bool{"42P01": true, "3F000": true, "42703": true, "42883": true, "42501": false, "40001": false} {
		if got := remedy.IsUndefined(fmt.Errorf("look: %w", server(code))); got != want {
			t.Errorf("IsUndefined(%s) = %t, want %t", code, got, want)
		}
	}
	if remedy.IsUndefined(nil) || remedy.IsUndefined(errors.New("away")) {
		t.Error("an error that is not of the database is described as an undefined object")
	}
}

// The driver names the statements that it prepares, and a pooler may lose these. A statement that the
// user's code named says nothing about a pooler.
func TestIsUnprepared(t *testing.T) {
	for _, tt := range []struct {
		code, message string
		want          bool
	}{
		{"42P05", `prepared statement "stmtcache_0a1b" already exists`, true},
		{"26000", `prepared statement "stmtcache_0a1b" does not exist`, true},
		{"26000", `prepared statement "stmt_0a1b" does not exist`, true},
		{"26000", "unnamed prepared statement does not exist", true},
		{"42P05", `prepared statement "mine" already exists`, false},
		{"26000", `prepared statement "mine" does not exist`, false},
		{"42P01", `relation "stmtcache_0a1b" does not exist`, false},
	} {
		err := fmt.Errorf("write: %w", &pgconn.PgError{Code: tt.code, Message: tt.message})
		if got := remedy.IsUnprepared(err); got != tt.want {
			t.Errorf("%s %s: IsUnprepared = %t, want %t", tt.code, tt.message, got, tt.want)
		}
		if got := strings.Contains(remedy.Explain(err, remedy.Use{Grant: "inbox", Schema: "postroom"}).Error(), "default_query_exec_mode=exec"); got != tt.want {
			t.Errorf("%s %s: Explain names the parameter: %t, want %t", tt.code, tt.message, got, tt.want)
		}
	}
}
