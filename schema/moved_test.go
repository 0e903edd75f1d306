package schema_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// The documentation has statements that move the tables to another schema. After them, the tables
// are like those that a migration creates in that schema.
func TestDocumentedMoveToAnotherSchema(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/howto/tenant-schemas.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sql\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/howto/tenant-schemas.md has no SQL")
	}
	pool := devtest.Pool(t)
	exec(t, pool, string(block[1]))

	if err := schema.Require(t.Context(), pool, "shop_events"); err != nil {
		t.Fatal(err)
	}
	if _, err := schema.Migrate(t.Context(), pool, "fresh_events"); err != nil {
		t.Fatal(err)
	}
	const functions = `SELECT string_agg(replace(pg_get_functiondef(oid), $1, 'SCHEMA'), E'\n' ORDER BY proname, replace(oid::regprocedure::text, $1, 'SCHEMA'))
		FROM pg_proc WHERE pronamespace = $1::regnamespace`
	var moved, fresh string
	if err := pool.QueryRow(t.Context(), functions, "shop_events").Scan(&moved); err != nil {
		t.Fatal(err)
	}
	if err := pool.QueryRow(t.Context(), functions, "fresh_events").Scan(&fresh); err != nil {
		t.Fatal(err)
	}
	if moved != fresh {
		t.Errorf("functions that were moved:\n%s\nthat a migration made:\n%s", moved, fresh)
	}
	exec(t, pool, `SELECT shop_events.write(source => '/shop', type => 'order.placed', data => '{}'::jsonb, key => '7')`)
	exec(t, pool, insertEvent("shop_events", nil))
}
