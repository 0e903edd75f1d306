package schema_test

import (
	"fmt"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// A valid event can be written whatever the database's settings were when it was migrated.
func TestMigrateUnderOtherStrings(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"standard_conforming_strings": "off", "transform_null_equals": "on", "array_nulls": "off", "check_function_bodies": "off", "backslash_quote": "off", "escape_string_warning": "off",
		"default_toast_compression": "lz4", "default_transaction_isolation": "serializable", "quote_all_identifiers": "off", "timezone": "Europe/Amsterdam", "intervalstyle": "sql_standard", "bytea_output": "escape", "lc_messages": "C", "plpgsql.extra_errors": "all",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := devtest.EmptyPool(t)
			exec(t, url, fmt.Sprintf("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET %s = %%L', current_database(), '%s'); END $$", name, value))
			url.Reset()
			if _, err := schema.Migrate(t.Context(), url, ""); err != nil {
				t.Fatal(err)
			}
			for _, sql := range []string{
				"SELECT postroom.write('/shop', 'a', '{}', key => 'k', id => 'e1', headers => jsonb_build_object('a', repeat('\"', 20000)))",
				"SELECT postroom.write('/shop', 'a', '{}', key => 'k', id => 'e1', headers => jsonb_build_object('a', repeat('\"', 20000)))",
				"INSERT INTO postroom.outbox (source, event_id, digest, type, subject, data) VALUES ('/shop', 'e2', decode(repeat('00', 16), 'hex'), 'a', 'a', '')",
				"SELECT postroom.write('/shop', 'a', '{}', id => 'e3', not_before => now() + interval '1 hour')",
				"SELECT postroom.cancel('/shop', 'e3')",
			} {
				if _, err := url.Exec(t.Context(), sql); err != nil {
					t.Errorf("%.100s: %v", sql, err)
				}
			}
		})
	}
}
