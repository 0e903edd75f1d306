package house

import (
	"regexp"
	"testing"
)

var readsSQL = regexp.MustCompile(`os\.(ReadFile|Open)\(.*\bsql\b`)

// A test that reads an SQL file from the disk does not see the changed copy that a run of the mutants
// builds it with.
func TestTestsReadTheSQLTheyAreBuiltWith(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, func(f *file) bool { return f.test && f.dir != "internal/house" && f.dir != "integration/mutants" }) {
		for _, at := range readsSQL.FindAllIndex(f.text, -1) {
			t.Errorf("%s: %s: take the text from devtest.SQL", f.path, f.text[at[0]:at[1]])
		}
	}
}
