package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// The commands work in a database whose values are written in another style.
func TestCommandsUnderOtherStyles(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"datestyle": "German, DMY", "intervalstyle": "sql_standard", "timezone": "Europe/Amsterdam", "extra_float_digits": "-15"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withPublished(t, 10, 0)
			r.env["POSTROOM_NATS_URL"] = r.nc.ConnectedUrl()
			for _, sql := range []string{
				"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET " + name + " = %L', current_database(), '" + value + "'); END $$",
				`INSERT INTO postroom.inbox (handler, dedupe_key, digest) VALUES ('mail', '/shop e1', decode(md5('a'), 'hex'))`,
				`INSERT INTO postroom.held (handler, dedupe_key, dead_at, attempts, class, cause, failures, first_failed_at, logged_at, source, event_id, type, subject, content_type, data, raw_headers)
					VALUES ('mail', '/shop e1', now(), 5, 'error', decode(md5('a'), 'hex'), '[]', now(), now(), '/shop', 'e1', 'order.placed', 'order.placed', 'application/json', '{"a": "ä"}', '\xff00')`,
				`INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'n', '{mail}', '{1 day 02:03:04}', '{1 day 02:03:04}', '1 day 02:03:04')`,
			} {
				if _, err := r.pool.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			for _, line := range []string{
				"status", "migrate status", "audit --since 1h", "events list --since 1h", "events show e1", "dead list", "dead groups", "dead show 1", "dead show 1 --json", "dead export", "held list",
				"republish list", "republish --since 5m --dry-run", "reconcile", "reconcile --since 5m", "relay pause --reason x --for 1h", "status", "relay resume", "tables", "stream check",
				"handlers", "saga list", "doctor", "republish --since 5m --yes", "replay list", "dead discard 1 --reason x -y", "dead reopen 1 -y",
			} {
				got := postroom(t, r.env, strings.Fields(line)...)
				if got.code == exitFailed || strings.Contains(got.errors+got.out, "can't scan") || strings.Contains(got.errors+got.out, "invalid PostgreSQL") {
					t.Errorf("%s: exit status %d: %s", line, got.code, strings.TrimSpace(got.errors))
				}
			}
		})
	}
}

// So does the relay of a program that keeps no plans, as a pooler needs.
func TestRelayUnderAnotherDateStyle(t *testing.T) {
	t.Parallel()
	r := withPublished(t, 1, 0)
	r.stop()
	if _, err := r.pool.Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET datestyle = %L', current_database(), 'SQL, DMY'); END $$"); err != nil {
		t.Fatal(err)
	}
	cfg := r.pool.Config()
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := r.pool.Exec(t.Context(), "SELECT postroom.write('/shop', 'order.placed', '{}', subject => $1)", r.name+".x"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	publisher := relay.New(pool, natsjs.NewPublisher(r.nc), relay.Config{})
	go func() { defer close(done); _ = publisher.Run(ctx) }()
	defer func() { stop(); <-done }()
	devtest.Eventually(t, 30*time.Second, "the event to be published", func() bool { return r.messages(t) >= 2 })
}
