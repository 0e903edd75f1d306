package pglog_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

func TestSubjectsAreThoseInUse(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	want := func(subjects ...string) {
		t.Helper()
		got, err := log.Subjects(t.Context())
		if err != nil || !slices.Equal(got, subjects) {
			t.Errorf("Subjects = %q, %v, want %q", got, err, subjects)
		}
	}
	want()
	write := func(subject string, n int) {
		t.Helper()
		mustExec(t, pool, `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
			SELECT decode(repeat('00', 16), 'hex'), '/shop', gen_random_uuid()::text, 'a.b', '`+subject+`', '' FROM generate_series(1, `+strconv.Itoa(n)+`)`)
	}
	write("old.a", 900)
	write("old.b", 100)
	write("between", 1500)
	write("new.a", 999)
	write("new.b", 1)
	want("new.a", "new.b", "old.a", "old.b")

	mustExec(t, pool, "UPDATE postroom.relay SET high = 1000")
	want("between", "new.a", "new.b")
	mustExec(t, pool, "UPDATE postroom.relay SET high = 1000000")
	want("new.a", "new.b")

	if _, err := log.WithSchema("nobody").Subjects(t.Context()); err == nil {
		t.Error("Subjects in a schema that is not there = nil")
	}
	if _, err := log.WithSchema("pg_x").Subjects(t.Context()); err == nil || !strings.Contains(err.Error(), "schema") {
		t.Errorf("Subjects with a bad name = %v", err)
	}
}

// Subjects reads 2,000 rows of the log, however long the log is.
func TestSubjectsReadNoMoreThanTheyNeed(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	mustExec(t, pool, `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', n::text, 'a.b', 'a.b', '' FROM generate_series(1, 50000) n`)
	mustExec(t, pool, "ANALYZE postroom.outbox")
	rows, _ := pool.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) "+pglog.SQL("subjects"), pgx.QueryExecModeSimpleProtocol)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	if strings.Count(plan, " outbox_pkey ") != 2 || strings.Contains(plan, "Seq Scan on outbox") || strings.Count(plan, "actual rows=1000") < 4 {
		t.Errorf("the plan reads more than the ends of the primary key:\n%s", plan)
	}
}
