package postroom_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// mostSteps is how many steps a walk of the architecture may have.
const mostSteps = 10

// step is a row of the tables in docs/explanation/architecture.md: the number of a step or a
// question, then a function and its file.
var step = regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([A-Za-z]+)\\.([A-Za-z]+)` \\| `([^`]+)` \\|")

// Each function that architecture.md names exists in the file that it names. A walk has few steps,
// and no function is in it twice.
func TestArchitectureNamesWhatExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/explanation/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")[1:]
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		rows := step.FindAllStringSubmatch(section, -1)
		if len(rows) == 0 || len(rows) > mostSteps {
			t.Errorf("%s: %d functions, want 1 to %d", title, len(rows), mostSteps)
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

func hasMethod(t *testing.T, file, typ, method string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return false
	}
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == method && receiver(f) == typ {
			return true
		}
	}
	return false
}
