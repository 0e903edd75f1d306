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
		{"rights to connect", fmt.Errorf("%w", &pgconn.ConnectError{}), remedy.Use{Grant: "relay", Schema: "postroom"}, ""},
		{"rights, of a connection that was not made", fmt.Errorf("%w: %w", &pgconn.ConnectError{}, server("42501")), remedy.Use{Grant: "relay", Schema: "postroom"}, ""},
		{"no table", server("42P01"), remedy.Use{Grant: "relay", Schema: "postroom"}, "create them: postroom migrate up"},
		{"no schema", server("3F000"), remedy.Use{Grant: "relay", Schema: "mail"}, "create them: postroom migrate up --schema mail"},
		{"an old table", server("42703"), remedy.Use{Grant: "relay", Schema: "postroom"}, "older than this program; migrate them: postroom migrate up"},
		{"an old function", server("42883"), remedy.Use{Grant: "relay", Schema: "postroom"}, "older than this program"},
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
