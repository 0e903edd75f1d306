package sagas_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/sagas"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// fill inserts an instance of saga a for each element of minutes, which has waited that long, and
// one instance each of b and c, which are not stuck.
func fill(t *testing.T, pool *pgxpool.Pool, minutes ...int) {
	t.Helper()
	exec(t, pool, `INSERT INTO postroom.saga_definition (name, version, steps, stuck)
		VALUES ('a', 1, '[]', '1 min'), ('a', 2, '[]', '1 h'), ('b', 1, '[]', '30 days'), ('c', 1, '[]', '1 h'), ('d', 1, '[]', '1 h')`)
	exec(t, pool, `INSERT INTO postroom.saga (name, key, version, state, step, data, input, correlation_id, owner, waits_since, waits_hour, ended_at)
		SELECT name, name || n, 1, state, 'pay' || n, '{}', '', 'c', gen_random_uuid(), at, date_bin('1 hour', at, 'epoch'), CASE WHEN state = 'done' THEN now() END
		FROM (SELECT 'a' AS name, n, CASE WHEN n % 2 = 0 THEN 'compensating' ELSE 'running' END AS state, now() - make_interval(mins => m) AS at
		      FROM unnest($1::int[]) WITH ORDINALITY AS w (m, n)
		      UNION ALL VALUES ('b', 1, 'running', now() - interval '1 day'), ('c', 1, 'done', now() - interval '1 day'),
		                       ('e', 1, 'running', now() - interval '5 min')) i`, minutes) // no process has run e
}

func TestStuck(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	fill(t, pool, 59, 61, 5, 190, 62)
	var stuck []sagas.Stuck
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		stuck, err = sagas.StuckOf(t.Context(), tx, "postroom")
		return err
	})
	if err != nil || len(stuck) != 1 {
		t.Fatalf("stuck are %+v, %v; want those of a", stuck, err)
	}
	s := stuck[0]
	if s.Saga != "a" || s.Instances != 3 || s.Key != "a4" || s.Step != "pay4" || time.Since(s.Since).Round(time.Minute) != 190*time.Minute {
		t.Errorf("stuck are %+v", s)
	}
	for n, want := range map[int64]string{1: "1 instance of saga a is stuck: a4 has", 3: "3 instances of saga a are stuck: the first, a4, has", 9_000: "9000 instances or more of saga a are stuck"} {
		s.Instances, s.More = n, n == 9_000
		if text, _ := s.Finding(); !strings.HasPrefix(text, want) || !strings.Contains(text, "for step pay4 for 3h10m") {
			t.Errorf("%d: %s", n, text)
		}
	}

	counts, hidden, err := sagas.CountsOf(t.Context(), pool, "postroom")
	if err != nil || hidden || len(counts) != 5 {
		t.Fatalf("counts are %+v, %t, %v", counts, hidden, err)
	}
	a := counts[0]
	if a.Saga != "a" || a.Running != 3 || a.Compensating != 2 || a.Stuck != 3 || time.Duration(a.OldestSeconds*float64(time.Second)).Round(time.Minute) != 190*time.Minute {
		t.Errorf("a has %+v", a)
	}
	if b := counts[1]; b.Running != 1 || b.Stuck != 0 || b.OldestSeconds < 86400 {
		t.Errorf("b has %+v", b)
	}
	if c := counts[2]; c.Running+c.Compensating+c.Stuck != 0 || c.OldestSeconds != 0 {
		t.Errorf("c, which has ended: %+v", c)
	}
	if e := counts[4]; e.Saga != "e" || e.Running != 1 || e.Stuck != 0 {
		t.Errorf("e, which no process has run: %+v", e)
	}
}

// If a relay's role may not count sagas, the relay still measures everything else.
func TestCountsWithoutRights(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, role := devtest.RolePool(t, pool)
	exec(t, pool, fmt.Sprintf("SELECT postroom.grant_relay('%s')", role))
	if _, hidden, err := sagas.CountsOf(t.Context(), as, "postroom"); hidden || err != nil {
		t.Errorf("a relay may not count, %v", err)
	}
	exec(t, pool, "REVOKE SELECT ON postroom.saga_known FROM "+role)
	if _, hidden, err := sagas.CountsOf(t.Context(), as, "postroom"); !hidden || err != nil {
		t.Errorf("a role without the right counts, %v", err)
	}
}

// Each statement finds its rows with an index, even if the server planned it before it had
// statistics of the tables.
func TestPlans(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	fill(t, pool, slices.Repeat([]int{5}, 20_000)...)
	exec(t, pool, `INSERT INTO postroom.saga_step (name, key, revision, step, direction, what, next_step, command_id)
		SELECT name, key, 1, step, 'do', 'begun', step, 'x' || key FROM postroom.saga`)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, pool, "ANALYZE postroom.saga, postroom.saga_step, postroom.saga_definition")
		}
		for file, args := range map[string][]any{"step_of": {"x7", []string{"x8", ""}}, "stuck": nil, "counts": nil} {
			sql := devtest.SQL(t, "sql/"+file+".sql")
			rows, _ := pool.Query(t.Context(), "EXPLAIN "+sql, append([]any{pgx.QueryExecModeExec}, args...)...) // CollectRows reports the error
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(plan, "\n"); strings.Contains(text, "Seq Scan on saga ") || strings.Contains(text, "Seq Scan on saga_step") || !strings.Contains(text, "Index") {
				t.Errorf("%s, analyzed %t:\n%s", file, analyzed, text)
			}
		}
	}
}

func TestStepsInWords(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]sagas.Step{
		"command to undo step pay of saga a, key k":                                              {Kind: sagas.Command, Direction: "undo"},
		"counted as failed for step pay of saga a, key k":                                        {Kind: sagas.Reply, Outcome: "failed"},
		"caused by the command to do step pay of saga a, key k; it has not counted as the reply": {Kind: sagas.Reply, Direction: "do"},
		"deadline, after which the saga gave up step pay of saga a, key k":                       {Kind: sagas.Deadline, Outcome: "deadline"},
		"deadline of step pay of saga a, key k; it has not come, or the step had ended":          {Kind: sagas.Deadline},
		"decision skip, carried out on step pay of saga a, key k":                                {Kind: sagas.Decision, Outcome: "skip"},
		"decision on step pay of saga a, key k; it has not been carried out":                     {Kind: sagas.Decision},
	} {
		s.Saga, s.Key, s.Step = "a", "k", "pay"
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
