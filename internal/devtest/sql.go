package devtest

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// overlayVariable names the file of the go command's -overlay. Who builds a test with changed copies of
// files sets it.
const overlayVariable = "POSTROOM_TEST_OVERLAY"

// SQL returns the text of an SQL file: of the first path that exists. It is the text that the test was
// built with, also if that is a changed copy. So a test that explains a statement of its package, or
// knows it by its first line, explains what the package executes.
func SQL(t testing.TB, paths ...string) string {
	t.Helper()
	for _, path := range paths {
		text, err := os.ReadFile(built(t, path))
		if err == nil {
			return string(text)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	t.Fatalf("none of %q exists", paths)
	return ""
}

// built returns the path of the text that the test was built with.
func built(t testing.TB, path string) string {
	t.Helper()
	name := os.Getenv(overlayVariable)
	if name == "" {
		return path
	}
	text, err := os.ReadFile(name) //nolint:gosec // the file of whoever runs the test
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if changed, ok := overlay.Replace[full]; ok {
		return changed
	}
	return path
}
