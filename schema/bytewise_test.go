package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

// indexesOfLocale names the indexes that sort text in another way than by its bytes,
// also those that a later migration adds.
const indexesOfLocale = `
	SELECT coalesce(string_agg(DISTINCT i.indexrelid::regclass::text, ' ' ORDER BY i.indexrelid::regclass::text), '')
	FROM pg_index i
	JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'postroom'::regnamespace,
	     unnest(i.indcollation::oid[]) AS by
	WHERE by NOT IN (0, '"C"'::regcollation)`

// How a locale sorts changes with the operating system; what an index has must not.
func TestNoIndexDependsOnTheLocale(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if got := one[string](t, pool, indexesOfLocale); got != "" {
		t.Errorf("indexes that an upgrade of the locale breaks: %s", got)
	}
}

// The rows that are there stay, and so do the rules among them.
func TestBytewiseMigrationIsAdditive(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	upTo(t, pool, 14)
	exec(t, pool, insertEvent("postroom", map[string]string{"event_id": "'e'", "causation_id": "'c'"}))
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', 'k')")
	exec(t, pool, insertHeld("handler='h'; dedupe_key='k'; next_at=now()"))
	exec(t, pool, "INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key) VALUES ('h', 'k', 's', 0, 'x')")
	exec(t, pool, "ANALYZE postroom.inbox")
	before := all(t, pool)
	if one[string](t, pool, indexesOfLocale) == "" {
		t.Fatal("no index depended on the locale before")
	}

	step(t, pool, 15)
	for sql, want := range before {
		if got := one[string](t, pool, sql); got != want {
			t.Errorf("%s = %s, want %s as before", sql, got, want)
		}
	}
	wantRefused(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', 'k')", "inbox_pkey")
	wantRefused(t, pool, insertHeld("handler='h'; dedupe_key='other'; next_at=now()"), "held_decided")
	wantRefused(t, pool, "DELETE FROM postroom.inbox", "held_decided")
}

// all returns queries, with what they say: the files and rows of tables, the rules
// and indexes, and what the planner knows.
func all(t *testing.T, pool *pgxpool.Pool) map[string]string {
	t.Helper()
	answers := map[string]string{}
	for _, sql := range []string{
		"SELECT pg_relation_filepath('postroom.outbox') || pg_relation_filepath('postroom.inbox') || pg_relation_filepath('postroom.held')",
		"SELECT to_jsonb(o)::text FROM postroom.outbox o",
		"SELECT to_jsonb(i)::text FROM postroom.inbox i",
		"SELECT to_jsonb(h)::text FROM postroom.held h",
		"SELECT to_jsonb(r)::text FROM postroom.receipt r",
		"SELECT string_agg(conname || ' ' || pg_get_constraintdef(oid), E'\n' ORDER BY conname) FROM pg_constraint WHERE connamespace = 'postroom'::regnamespace",
		"SELECT string_agg(indexdef, E'\n' ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'postroom'",
		"SELECT string_agg(tablename || '.' || attname, ' ' ORDER BY tablename, attname) FROM pg_stats WHERE schemaname = 'postroom' AND tablename = 'inbox'",
	} {
		answers[sql] = one[string](t, pool, sql)
	}
	return answers
}
