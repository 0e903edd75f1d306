package deadcmd

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/caller"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// die adds the dead events e1, e2 and so on, from one number to another.
func die(t *testing.T, pool *pgxpool.Pool, from, to int) {
	t.Helper()
	for _, sql := range []string{
		"INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', '/shop e' || i FROM generate_series($1::int, $2::int) i",
		`INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'h', '/shop e' || i, now() - interval '1 hour', 'error', now(), '/shop', 'e' || i, 'a.b', 'a.b', 'application/json', '1'
		FROM generate_series($1::int, $2::int) i`,
	} {
		if _, err := pool.Exec(t.Context(), sql, from, to); err != nil {
			t.Fatal(err)
		}
	}
}

// While a person reads the question, some of the events can leave the set, and others can join it,
// even with an earlier time of death: a replay that was cancelled makes such events dead again. A
// command changes only events that it counted.
func TestAChangeIsOfTheEventsThatWereCounted(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 3} {
		pool := devtest.Pool(t)
		die(t, pool, 1, 3)
		d := &commands{caller.New(func(name string) string {
			return map[string]string{"POSTROOM_DATABASE_URL": pool.Config().ConnString()}[name]
		})}
		d.Yes, d.Reason = true, "test orders"
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		var out bytes.Buffer
		cmd.SetOut(&out)
		change := func(f deadletter.Filter, verb, gone string, join func(), do changeFunc) {
			t.Helper()
			err := d.change(cmd, f, limit, verb, func(s *deadletter.Store, ctx context.Context, f deadletter.Filter, o deadletter.ChangeOptions, by postroom.Audit) (int64, error) {
				if _, err := pool.Exec(ctx, gone); err != nil {
					t.Fatal(err)
				}
				join()
				return do(s, ctx, f, o, by)
			})
			if err != nil {
				t.Fatalf("%s: %v", verb, err)
			}
		}
		want := func(table string, want ...string) {
			t.Helper()
			var got []string
			if err := pool.QueryRow(t.Context(), "SELECT array_agg(event_id ORDER BY event_id) FROM postroom."+table).Scan(&got); err != nil || !slices.Equal(got, want) {
				t.Errorf("limit %d: the table %s has %v, %v; want %v", limit, table, got, err, want)
			}
		}
		change(deadletter.Filter{Handler: "h"}, "discard", "DELETE FROM postroom.held WHERE event_id IN ('e1', 'e2')", func() { die(t, pool, 4, 5) }, (*deadletter.Store).Discard)
		want("archive", "e3")
		want("held", "e4", "e5")

		discard := func() {
			if _, err := deadletter.New(pool, deadletter.Config{}).Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, d.audit()); err != nil {
				t.Fatal(err)
			}
		}
		discard()
		die(t, pool, 6, 7)
		change(deadletter.Filter{Discarded: true}, "reopen", "DELETE FROM postroom.archive WHERE event_id IN ('e3', 'e4')", discard, (*deadletter.Store).Reopen)
		want("archive", "e6", "e7")
		want("held", "e5")
	}
}
