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

// names returns the texts in backquotes.
func names(text string) (all []string) {
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}
