package schema_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
)

// The reference says of every function whether users may rely on it, and so does its comment.
func TestTheReferenceListsEveryFunction(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/schema.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## What you may rely on\n")
	section, _, _ = strings.Cut(section, "\nIn Postroom's indexes")
	section, views, _ := strings.Cut(section, "\nYour queries may read these views.")
	_, after, _ := strings.Cut(views, "\nAll other functions")
	section += "\nAll other functions" + after
	relied, internal, found := strings.Cut(section, "\nAll other functions are internal.")
	if !found {
		t.Fatal("docs/reference/schema.md has no list of functions")
	}
	// In the table, the first column has the names.
	for name, listed := range map[string][]string{
		"stable":   names(strings.Join(regexp.MustCompile("(?m)^\\| `[^|]*").FindAllString(relied, -1), " ")),
		"internal": names(internal),
	} {
		pool := devtest.Pool(t)
		rows, _ := pool.Query(t.Context(), `SELECT DISTINCT proname::text FROM pg_proc
			WHERE pronamespace = 'postroom'::regnamespace AND (obj_description(oid, 'pg_proc') LIKE 'Internal. %') = $1 ORDER BY 1`, name == "internal") // CollectRows reports the error
		has, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if slices.Sort(listed); err != nil || len(has) == 0 || !slices.Equal(listed, has) {
			t.Errorf("functions that are %s:\nthe page lists %q\nthe schema has  %q (%v)", name, listed, has, err)
		}
	}
}

// The two views have each held event once, with the columns that the reference names, in the state
// that the command line shows.
func TestViewsOfHeldEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', k FROM unnest('{a,b,c,d,e}'::text[]) k")
	for _, values := range []string{
		"handler='h'; dedupe_key='a'; dead_at=now(); class='error'; cause=decode(repeat('0a', 16), 'hex'); failures='[{\"text\": \"first\"}, {\"text\": \"last\"}]'",
		"handler='h'; dedupe_key='b'; next_at=now() + interval '1 h'; class='error'",
		"handler='h'; dedupe_key='c'; chain='k'; pos=1; next_at=now()",
		"handler='h'; dedupe_key='d'; chain='k'; pos=2",
		"handler='h'; dedupe_key='e'; next_at=now() + interval '1 h'; claimed_by='p'",
		"handler='outbox'; pos=1; next_at=now() + interval '1 h'",
	} {
		exec(t, pool, insertHeld(values))
	}
	if got := one[string](t, pool, "SELECT string_agg(concat_ws(' ', handler, class, cause, error), '; ') FROM postroom.dead"); got != "h error "+strings.Repeat("0a", 16)+" last" {
		t.Errorf("dead has %s", got)
	}
	if got := one[string](t, pool, "SELECT string_agg(concat_ws(' ', handler, state, blocked_key), '; ' ORDER BY id) FROM postroom.waiting"); got != "h retrying; h due k; h waiting k; h running; outbox scheduled" {
		t.Errorf("waiting has %s", got)
	}
}

// names returns the texts in backquotes.
func names(text string) (all []string) {
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}
