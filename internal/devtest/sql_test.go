package devtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

// A test gets the text that it was built with: of a changed copy, if there is one.
func TestSQLIsWhatTheTestWasBuiltWith(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	same, other, changed := write("same.sql", "same"), write("other.sql", "other"), write("changed", "changed")
	t.Setenv("POSTROOM_TEST_OVERLAY", write("overlay.json", fmt.Sprintf(`{"Replace": {%q: %q}}`, other, changed)))
	t.Chdir(dir)
	for path, want := range map[string]string{same: "same", "same.sql": "same", other: "changed", "other.sql": "changed"} {
		if got := devtest.SQL(t, "missing.sql", path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
