package schema_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/schema"
)

// encoded returns a pool on a new database with another encoding than UTF8.
func encoded(t *testing.T, encoding, name string) *pgxpool.Pool {
	t.Helper()
	at := devtest.Postgres(t).URL()
	exec := func(sql string) {
		conn, err := pgx.Connect(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE DATABASE " + name + " ENCODING '" + encoding + "' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	to, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	to.Path = "/" + name
	pool, err := pgxpool.New(t.Context(), to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A database of another encoding than UTF8 gets no tables, and the error names the encoding.
func TestOnlyDatabasesOfUTF8(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"LATIN1", "EUC_JP", "SQL_ASCII"} {
		pool := encoded(t, encoding, devtest.EmptyPool(t).Config().ConnConfig.Database+"_"+strings.ToLower(encoding))
		_, migrate := schema.Migrate(t.Context(), pool, "")
		_, status := schema.Status(t.Context(), pool, "")
		for what, err := range map[string]error{"Migrate": migrate, "Require": schema.Require(t.Context(), pool, ""), "Status": status} {
			if !errors.Is(err, schema.ErrEncoding) || !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "has the encoding "+encoding) {
				t.Errorf("%s = %v, want %v", what, err, schema.ErrEncoding)
			}
		}
		var there bool
		if err := pool.QueryRow(t.Context(), "SELECT to_regnamespace('postroom') IS NOT NULL").Scan(&there); err != nil || there {
			t.Errorf("Migrate has created the schema: %t, %v", there, err)
		}
		pool.Close()
		if _, err := devtest.EmptyPool(t).Exec(t.Context(), "DROP DATABASE "+pool.Config().ConnConfig.Database); err != nil {
			t.Error(err)
		}
	}
}

// If row-level security is active on a table for a role, the parts of that role do not say that there
// are no tables or that a grant is missing. They name row-level security, the tables and the role.
func TestRowSecurityIsNamed(t *testing.T) {
	t.Parallel()
	owner := devtest.Pool(t)
	pool, role := devtest.RolePool(t, owner)
	exec := func(sql string) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("SELECT postroom.grant_producer('" + role + "'), postroom.grant_relay('" + role + "'), postroom.grant_inbox('" + role + "'), postroom.grant_operator('" + role + "')")
	if err := schema.Require(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	in := inbox.New(pool, nil, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "billing"}, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return nil }))
	write := func() error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return outbox.New(outbox.Config{Source: "/shop"}).Write(t.Context(), tx, postroom.NewEvent("order.placed", 1))
		})
	}
	for _, table := range []string{"migration", "inbox", "outbox"} {
		exec("ALTER TABLE postroom." + table + " ENABLE ROW LEVEL SECURITY")
		_, migrate := schema.Migrate(t.Context(), pool, "")
		_, status := schema.Status(t.Context(), pool, "")
		for what, err := range map[string]error{
			"Require": schema.Require(t.Context(), pool, ""), "Status": status, "Migrate": migrate,
			"the relay's Check": pglog.New(pool).Check(t.Context()), "the inbox's Check": in.Check(t.Context()),
		} {
			if !errors.Is(err, schema.ErrRowSecurity) || !errors.Is(err, postroom.ErrUnrecoverable) ||
				!strings.Contains(err.Error(), ", on "+table+": ") || !strings.Contains(err.Error(), "ALTER ROLE "+role+" BYPASSRLS") {
				t.Errorf("%s with row-level security on %s = %v, want %v", what, table, err, schema.ErrRowSecurity)
			}
		}
		if err := schema.Require(t.Context(), owner, ""); err != nil {
			t.Errorf("Require by the owner, for whom it is not active = %v", err)
		}
		if err := write(); table == "outbox" && (err == nil || !strings.Contains(err.Error(), "row-level security is active") || strings.Contains(err.Error(), "grant_")) {
			t.Errorf("Write = %v, want that row-level security is active", err)
		}
		exec("ALTER TABLE postroom." + table + " DISABLE ROW LEVEL SECURITY")
	}
	if err := write(); err != nil {
		t.Error(err)
	}
}
