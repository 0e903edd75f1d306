package house

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// step is a row of the tables in docs/explanation/architecture.md: the number of a step or a
// question, then a function and its file.
var step = regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([A-Za-z]+)\\.([A-Za-z]+)` \\| `([^`]+)` \\|")

// Each function that architecture.md names exists in the file that it names. No function is twice
// in a walk.
func TestArchitectureNamesWhatExists(t *testing.T) {
	t.Parallel()
	sections := strings.Split(readText(t, "docs/explanation/architecture.md"), "\n## ")[1:]
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		rows := step.FindAllStringSubmatch(section, -1)
		if len(rows) == 0 {
			t.Errorf("%s: no row names a function", title)
		}
		if tables := strings.Count(section, "\n| "); tables != len(rows)+2 { // the header has two lines
			t.Errorf("%s: %d of %d rows name a function and its file", title, len(rows), tables-2)
		}
		seen := make(map[string]bool)
		for _, row := range rows {
			typ, method, file := row[2], row[3], row[4]
			if name := file + " " + typ + "." + method; seen[name] {
				t.Errorf("%s: %s is there twice", title, name)
			} else {
				seen[name] = true
			}
			if !hasMethod(t, file, typ, method) {
				t.Errorf("%s: %s has no method %s of %s", title, file, method, typ)
			}
		}
	}
}

func hasMethod(t *testing.T, path, typ, method string) bool {
	t.Helper()
	for _, f := range files(t, func(f *file) bool { return isGo(f) && f.path == path }) {
		for _, decl := range f.syntax.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv != nil && d.Name.Name == method && receiver(d) == typ {
				return true
			}
		}
	}
	return false
}
