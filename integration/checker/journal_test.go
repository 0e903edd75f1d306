package checker

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// The history is read back by time. A torn last line is left out. Any other torn line is an
// error.
func TestJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, process := range []string{"a", "b"} {
		j, err := OpenJournal(dir, process)
		if err != nil {
			t.Fatal(err)
		}
		j.Note(Record{What: Transaction, Phase: Invoked, ID: process, Events: []Event{{ID: "e", Key: 1, N: 2}}})
		j.Note(Record{What: Transaction, Phase: OK, ID: process})
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	torn := filepath.Join(dir, "c-1.jsonl")
	if err := os.WriteFile(torn, []byte(`{"process": "c", "what": "call"}`+"\n"+`{"process": "c", "wha`), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := ReadHistory(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range all {
		got = append(got, r.Process+" "+string(r.Phase))
	}
	if want := []string{"c ", "a invoked", "a ok", "b invoked", "b ok"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	if r := all[1]; r.Life != os.Getpid() || !reflect.DeepEqual(r.Events, []Event{{ID: "e", Key: 1, N: 2}}) {
		t.Errorf("read %+v", r)
	}
	if err := os.WriteFile(torn, []byte("{\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadHistory(dir); err == nil {
		t.Error("a broken line was read")
	}
}
