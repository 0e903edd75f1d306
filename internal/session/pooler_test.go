package session_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/session"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// A pooler sets the settings that its client asked for at the start, on a connection that began
// with other settings. RESET ALL removes them, so they must be set again.
func TestSettingsOfAPoolerStay(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(devtest.PoolerURL(t, devtest.DatabaseURL(t), devstack.PoolerConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	cfg.ConnConfig.RuntimeParams["timezone"] = "Asia/Tokyo"
	cfg.ConnConfig.RuntimeParams["application_name"] = "shop"
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sessions := session.Of(db)
	for range 3 {
		useAndReset(t, db, sessions)
	}
}

func useAndReset(t *testing.T, db *pgxpool.Pool, sessions *session.Pool) {
	t.Helper()
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := sessions.Note(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SET search_path = nowhere"); err != nil {
		t.Fatal(err)
	}
	if err := sessions.Reset(t.Context(), conn.Conn()); err != nil {
		t.Fatalf("the connection is given up: %v", err)
	}
	var is string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('TimeZone') || ' ' || current_setting('application_name') || ' ' || current_setting('search_path')").Scan(&is); err != nil {
		t.Fatal(err)
	}
	if want := `Asia/Tokyo shop "$user", public`; is != want {
		t.Errorf("the session is %q, want %q", is, want)
	}
}
