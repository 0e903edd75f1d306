package saga_test

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/saga"
)

// insertMany makes n instances of each of three sagas, most of them running, at three steps; some began at
// one moment, and a third of those that have not ended has been stuck for 2 to 7 hours.
func insertMany(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	for _, sql := range []string{
		"INSERT INTO postroom.saga_definition (name, version, steps, stuck) SELECT 's' || n, 1, '[]', '1 h' FROM generate_series(1, 3) n",
		`INSERT INTO postroom.saga (name, key, version, state, step, data, input, correlation_id, owner, started_at, waits_since, waits_hour, ended_at)
			SELECT name, key, 1, state, step, '{}', '', 'c', gen_random_uuid(), started, since, date_bin('1 hour', since, 'epoch'), CASE WHEN state IN ('done', 'undone') THEN now() END
			FROM (SELECT 's' || s AS name, 'k' || n AS key, CASE WHEN n % 11 = 7 THEN 'undone' WHEN n % 7 = 0 THEN 'compensating' WHEN n % 5 = 3 THEN 'done' ELSE 'running' END AS state, 'step' || n % 5 % 3 AS step,
			             now() - interval '1 day' - n / 3 * interval '1 min' AS started,
			             now() - CASE WHEN n % 3 = 0 THEN interval '2 h' + n % 6 * interval '1 h' ELSE interval '10 min' END AS since
			      FROM generate_series(1, 3) s, generate_series(1, ` + fmt.Sprint(n) + `) n) i`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// A producer may begin instances before the first process runs their saga. The tools show them, and
// after an hour they are stuck.
func TestInstancesOfASagaThatNoProcessHasRun(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	insertMany(t, pool, 3)
	begin := `INSERT INTO postroom.saga (name, key, version, state, step, data, input, correlation_id, owner, waits_since, waits_hour)
		SELECT $1, key, 1, 'running', 'pay', '{}', '', 'c', gen_random_uuid(), now() - age, date_bin('1 hour', now() - age, 'epoch')
		FROM (VALUES ('o-1', interval '2 h'), ('o-2', interval '1 min')) i (key, age)`
	for _, name := range []string{"early", "s", "s10", "zz"} { // before, between and after the names of others
		if _, err := pool.Exec(t.Context(), begin, name); err != nil {
			t.Fatal(err)
		}
	}
	store := saga.NewStore(pool, saga.StoreConfig{})
	for _, c := range []struct {
		filter saga.Filter
		want   string
	}{
		{saga.Filter{Step: "pay"}, "early o-1, early o-2, s o-1, s o-2, s10 o-1, s10 o-2, zz o-1, zz o-2"},
		{saga.Filter{Step: "pay", Stuck: true}, "early o-1, s o-1, s10 o-1, zz o-1"},
		{saga.Filter{Key: "o-1"}, "early o-1, s o-1, s10 o-1, zz o-1"},
		{saga.Filter{Saga: "s"}, "s o-1, s o-2"},
	} {
		page, _, err := store.List(t.Context(), c.filter, postroom.Page{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range page {
			got = append(got, i.Saga+" "+i.Key)
			if stuck := i.Key == "o-1"; i.Stuck != stuck {
				t.Errorf("%+v: %s %s is stuck: %t", c.filter, i.Saga, i.Key, i.Stuck)
			}
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%+v lists %s, want %s", c.filter, strings.Join(got, ", "), c.want)
		}
	}
}

// A sequence of pages has each instance once, in order, however few instances each page reads.
func TestPagesOfLists(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	insertMany(t, pool, 40)
	store := saga.NewStore(pool, saga.StoreConfig{})
	everything, next, err := store.List(t.Context(), saga.Filter{}, postroom.Page{Limit: 1000})
	if err != nil || len(everything) != 120 || next != "" {
		t.Fatalf("%d instances, next %q, %v", len(everything), next, err)
	}
	name := func(i saga.Instance) string { return i.Saga + " " + i.Key }
	for _, f := range []saga.Filter{
		{},
		{Saga: "s2"},
		{States: []saga.State{saga.Undone, saga.Running}},
		{Step: "step2"},
		{Saga: "s1", Step: "step0", States: []saga.State{saga.Compensating}},
		{Step: "none"},
		{Key: "k7"},
		{Key: "k3", Stuck: true},
		{Stuck: true},
		{Stuck: true, Step: "step1"},
		{Stuck: true, Saga: "s3", States: []saga.State{saga.Running}},
	} {
		var want []saga.Instance
		for _, i := range everything {
			if (f.Saga == "" || f.Saga == i.Saga) && (f.Key == "" || f.Key == i.Key) && (f.Step == "" || f.Step == i.Step) && (!f.Stuck || i.Stuck) &&
				(len(f.States) == 0 || slices.Contains(f.States, i.State)) {
				want = append(want, i)
			}
		}
		slices.SortFunc(want, func(a, b saga.Instance) int {
			switch {
			case f.Key != "":
				return cmp.Compare(a.Saga, b.Saga)
			case f.Stuck:
				return cmp.Or(a.WaitsSince.Truncate(time.Hour).Compare(b.WaitsSince.Truncate(time.Hour)), cmp.Compare(name(a), name(b)))
			}
			return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(name(b), name(a)))
		})
		for _, lookAt := range []int{1, 7, 100, 20_000} {
			store.LookAt(lookAt)
			var got []string
			p := postroom.Page{Limit: 3}
			for pages := 0; ; pages++ {
				page, next, err := store.List(t.Context(), f, p)
				if err != nil || pages > 150 {
					t.Fatalf("%+v, page %d: %v", f, pages, err)
				}
				for _, i := range page {
					got = append(got, name(i))
				}
				if p.After = next; p.After == "" {
					break
				}
			}
			if names := slices.Collect(func(yield func(string) bool) {
				for _, i := range want {
					if !yield(name(i)) {
						return
					}
				}
			}); !slices.Equal(got, names) {
				t.Errorf("%+v, looking at %d:\n%q, want\n%q", f, lookAt, got, names)
			}
		}
	}
}

// A text that no list returned is a fault of the page, also if PostgreSQL cannot have it.
func TestListRefusesWhatIsNoPlace(t *testing.T) {
	t.Parallel()
	store := saga.NewStore(devtest.Pool(t), saga.StoreConfig{})
	for _, place := range []string{"x", "2020-01-01T00:00:00Z a", "2020-01-01T00:00:00Z a\x00 b", "2020-01-01T00:00:00Z a \xff"} {
		after := base64.RawURLEncoding.EncodeToString([]byte(place))
		if _, _, err := store.List(t.Context(), saga.Filter{}, postroom.Page{After: after}); !errors.Is(err, postroom.ErrPage) {
			t.Errorf("List after %q = %v, want ErrPage", place, err)
		}
	}
}

// No list reads the table from its beginning, even with a plan that was made before the server knew
// the size of the table.
func TestPlansOfLists(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	insertMany(t, pool, 5_000)
	first, last := "'infinity'::timestamptz", "'-infinity'::timestamptz"
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			if _, err := pool.Exec(t.Context(), "ANALYZE postroom.saga, postroom.saga_definition"); err != nil {
				t.Fatal(err)
			}
		}
		for _, list := range []struct{ file, types, call string }{
			{"list", "text, text[], text, timestamptz, text, text, int, int", "'', '{running,done}', '', " + first + ", '', '', 100, 100"},
			{"list", "text, text[], text, timestamptz, text, text, int, int", "'s1', '{running}', 'none', " + first + ", '', '', 2000, 100"},
			{"list_stuck", "text, text[], text, timestamptz, text, text, int, int", "'', '{running}', '', " + last + ", '', '', 2000, 100"},
			{"list_key", "text, text[], text, text, bool, text, int", "'', '{running}', '', 'k7', true, '', 100"},
		} {
			sql := devtest.SQL(t, "sql/"+list.file+".sql")
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			results, err := conn.Conn().PgConn().Exec(t.Context(), fmt.Sprintf("PREPARE q (%s) AS %s; EXPLAIN EXECUTE q (%s); DEALLOCATE q", list.types, sql, list.call)).ReadAll()
			conn.Release()
			if err != nil {
				t.Fatal(err)
			}
			var plan []string
			for _, row := range results[1].Rows {
				plan = append(plan, string(row[0]))
			}
			if text := strings.Join(plan, "\n"); strings.Contains(text, "Seq Scan on saga ") || !strings.Contains(text, "Index") {
				t.Errorf("%s, analyzed %t:\n%s", list.file, analyzed, text)
			}
		}
	}
}
