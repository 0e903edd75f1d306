package sqlfile_test

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/postroom/postroom/internal/sqlfile"
)

type statements struct {
	Lock, JobItems string
}

func files(names ...string) fstest.MapFS {
	all := make(fstest.MapFS)
	for _, name := range names {
		all[name] = &fstest.MapFile{Data: []byte("-- " + name)}
	}
	return all
}

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := sqlfile.Read[statements](files("sql/lock.sql", "sql/job_items.sql", "lock.sql", "sql/README.md"))
	if want := (statements{Lock: "-- sql/lock.sql", JobItems: "-- sql/job_items.sql"}); err != nil || got != want {
		t.Errorf("Read = %+v, %v, want %+v", got, err, want)
	}
	named := map[string]string{"lock": "-- SQL/LOCK.SQL", "job_items": "-- SQL/JOB_ITEMS.SQL"}
	if upper := sqlfile.Names(sqlfile.Map(got, strings.ToUpper)); !maps.Equal(upper, named) {
		t.Errorf("in capitals: %v, want %v", upper, named)
	}
	if got.Lock != "-- sql/lock.sql" {
		t.Errorf("Map changed its argument: %+v", got)
	}
}

// A field without a file would be an empty statement, which succeeds and does nothing.
func TestMissingFile(t *testing.T) {
	t.Parallel()
	_, err := sqlfile.Read[statements](files("sql/lock.sql"))
	wantError(t, err, "job_items.sql")
}

func TestUnusedFile(t *testing.T) {
	t.Parallel()
	_, err := sqlfile.Read[statements](files("sql/lock.sql", "sql/job_items.sql", "sql/old.sql"))
	wantError(t, err, "sql/old.sql")
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("error is %v, want one about %s", err, part)
	}
}

func TestMustReadPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if v, _ := recover().(string); !strings.Contains(v, "lock.sql") {
			t.Errorf("panicked with %q", v)
		}
	}()
	sqlfile.MustRead[statements](files())
}
