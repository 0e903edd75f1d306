package inspect_test

import (
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
)

// A row that a role may write does not take the status, the lists and the relay's metrics from operators.
func TestAHeldRowWithAnInfiniteTime(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"held_at", "dead_at", "first_failed_at", "logged_at", "snoozed_at", "occurred_at", "held_at = '-infinity', dead_at = NULL, next_at = now() - interval '1 hour', logged_at", "held_at = 'infinity', dead_at = NULL, key = 'k', logged_at"} {
		for _, value := range []string{"infinity", "-infinity"} {
			t.Run(column+" "+value, func(t *testing.T) {
				t.Parallel()
				pool := devtest.Pool(t)
				role, name := devtest.RolePool(t, pool)
				if _, err := pool.Exec(t.Context(), "SELECT postroom.grant_inbox('"+name+"')"); err != nil {
					t.Fatal(err)
				}
				_, err := role.Exec(t.Context(), `INSERT INTO postroom.held (handler, pos, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
					VALUES ('outbox', 1, now(), 'x', now(), '/x', 'e', 'a', 'a', 'application/json', '')`)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := role.Exec(t.Context(), "UPDATE postroom.held SET "+column+" = '"+value+"'"); err != nil {
					return // refused
				}
				if _, err := pglog.New(pool).Lag(t.Context()); err != nil {
					t.Errorf("the relay measures no lag: %v", err)
				}
				if _, err := inspect.New(pool, nil, inspect.Config{}).Status(t.Context()); err != nil {
					t.Errorf("status: %v", err)
				}
				if len(column) > 20 {
					return // it is not dead
				}
				store := deadletter.New(pool, deadletter.Config{})
				if all, _, err := store.List(t.Context(), deadletter.Filter{}, postroom.Page{Limit: 10}); err != nil || len(all) != 1 {
					t.Errorf("dead list: %v, %v", all, err)
				}
				if _, err := store.Get(t.Context(), 1); err != nil {
					t.Errorf("dead show: %v", err)
				}
				if _, err := store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, postroom.Audit{Actor: "ann", Reason: "a bad row"}); err != nil {
					t.Errorf("dead discard: %v", err)
				}
			})
		}
	}
}

// A row of a service that runs sagas does not take the status from operators, and the lag of the log from
// the relay's metrics.
func TestASagaWithAnOddTime(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"UPDATE postroom.saga_definition SET stuck = '300000 years'",
		"UPDATE postroom.saga SET waits_since = 'infinity'",
		"UPDATE postroom.saga SET waits_since = '-infinity'",
		"UPDATE postroom.saga SET deadline = 'infinity'",
		"UPDATE postroom.saga SET deadline = '-infinity'",
		"UPDATE postroom.saga SET waits_hour = '-infinity', waits_since = '-infinity'",
	} {
		t.Run(bad, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			role, name := devtest.RolePool(t, pool)
			if _, err := pool.Exec(t.Context(), "SELECT postroom.grant_sagas('"+name+"')"); err != nil {
				t.Fatal(err)
			}
			for _, sql := range []string{
				"INSERT INTO postroom.saga_definition (name, version, steps, stuck) VALUES ('a', 1, '[]', '1 hour')",
				`INSERT INTO postroom.saga (name, key, version, state, step, data, input, correlation_id, owner, waits_hour)
					VALUES ('a', 'k', 1, 'running', 's', '', '', 'c', gen_random_uuid(), now() - interval '1 day')`,
			} {
				if _, err := role.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := role.Exec(t.Context(), bad); err != nil {
				return // refused
			}
			if _, err := pglog.New(pool).Lag(t.Context()); err != nil {
				t.Errorf("the relay measures no lag: %v", err)
			}
			if _, err := inspect.New(pool, nil, inspect.Config{}).Status(t.Context()); err != nil {
				t.Errorf("status: %v", err)
			}
		})
	}
}

// A row that an inbox may write does not take the tools from operators.
func TestAnOddNode(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'n', '{NULL}', '{NULL}', '{NULL}', '1 day')",
		"INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'n', '{{a},{b}}', '{1 day,1 day}', '{1 day,1 day}', '1 day')",
		"INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window, paused) VALUES (gen_random_uuid(), 'n', '{a}', '{1 day}', '{1 day}', '1 day', '[7]')",
		"INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window, paused) VALUES (gen_random_uuid(), 'n', '{a}', '{1 day}', '{1 day}', '1 day', '{\"a\": {\"since\": \"infinity\"}}')",
		"INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window, seen_at, started_at) VALUES (gen_random_uuid(), 'n', '{a}', '{1 day}', '{1 day}', '1 day', 'infinity', '-infinity')",
		"INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'n', '{a}', '{300000 years}', '{300000 years}', '300000 years')",
		"INSERT INTO postroom.subscription (handler, stream, stream_created, types) VALUES ('a', 's', 'infinity', '{NULL}')",
		"INSERT INTO postroom.subscription (handler, stream, stream_created, floor_at, created_at) VALUES ('a', 's', now(), 'infinity', '-infinity')",
		"INSERT INTO postroom.subscription (handler, stream, stream_created, reader, reader_until, floor_stored_at) VALUES ('a', 's', now(), 'r', 'infinity', 'infinity')",
		"INSERT INTO postroom.subscription (handler, stream, stream_created, reader, reader_until) VALUES ('a', 's', now(), 'r', 'infinity')",
		"INSERT INTO postroom.subscription (handler, stream, stream_created, floor, backfill_through) VALUES ('a', 's', now(), 9223372036854775807, 9223372036854775807)",
		"INSERT INTO postroom.dedupe_window (handler, kept, expired_before) VALUES ('a', '300000 years', 'infinity')",
		"INSERT INTO postroom.filter (kind, name, since, taken_at, passed_at, passed, types) VALUES ('sender', 'a', 'infinity', '-infinity', 'infinity', 'x', '{NULL}')",
		"UPDATE postroom.sweep SET due_at = 'infinity'",
		"UPDATE postroom.sweep SET due_at = '-infinity'",
	} {
		t.Run(bad, func(t *testing.T) {
			t.Parallel()
			pool, nc := devtest.Pool(t), devtest.NATS(t)
			role, name := devtest.RolePool(t, pool)
			if _, err := pool.Exec(t.Context(), "SELECT postroom.grant_inbox('"+name+"')"); err != nil {
				t.Fatal(err)
			}
			if _, err := role.Exec(t.Context(), bad); err != nil {
				return // refused
			}
			if _, err := operator.New(pool, operator.Config{}).Handlers(t.Context()); err != nil {
				t.Errorf("the handlers that can be paused: %v", err)
			}
			i := inspect.New(pool, nc, inspect.Config{})
			if _, err := i.Status(t.Context()); err != nil {
				t.Errorf("status: %v", err)
			}
			if _, err := i.Handlers(t.Context()); err != nil {
				t.Errorf("handlers: %v", err)
			}
			if _, _, err := deadletter.New(pool, deadletter.Config{}).Preview(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{}); err != nil {
				t.Errorf("preview of a replay: %v", err)
			}
		})
	}
}
