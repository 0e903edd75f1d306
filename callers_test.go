package postroom_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	callersLine = regexp.MustCompile(`(?s)-- Called +by:? +(.*?)(?:\n--\n|\n[^-]|$)`)
	callerName  = regexp.MustCompile(`\b[A-Za-z]\w*(?:\.[A-Za-z]\w*)+\b|\b[a-z]+[A-Z]\w*\b|\b\w+\.sql\b`)
)

// The header of an SQL file says which code runs it. The functions, methods and SQL files that it
// names exist.
func TestSQLFilesNameTheirCallers(t *testing.T) {
	t.Parallel()
	known := declaredFunctions(t)
	headers := 0
	walkFiles(t, ".sql", func(path string, text []byte) {
		if strings.Contains(path, "testdata") {
			return
		}
		known[filepath.Base(path)] = true
	})
	walkFiles(t, ".sql", func(path string, text []byte) {
		m := callersLine.FindStringSubmatch(string(text))
		if m == nil {
			return
		}
		headers++
		for _, name := range callerName.FindAllString(strings.TrimSuffix(strings.TrimSpace(m[1]), "."), -1) {
			parts := strings.Split(name, ".")
			if !known[strings.Join(parts[max(0, len(parts)-2):], ".")] { // the last two parts of package.Type.Method
				t.Errorf("%s is called by %s, which does not exist", path, name)
			}
		}
	})
	if headers < 200 {
		t.Errorf("%d SQL files say who calls them: the test looks for it in the wrong way", headers)
	}
}

// declaredFunctions returns the names of the functions, methods and fields of all modules,
// including tests: a function as name and as package.name, a method or a field as Type.name.
func declaredFunctions(t *testing.T) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	walkFiles(t, ".go", func(path string, text []byte) {
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					known[receiver(d)+"."+d.Name.Name] = true
				} else {
					known[d.Name.Name], known[file.Name.Name+"."+d.Name.Name] = true, true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					s, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if typ, ok := s.Type.(*ast.StructType); ok {
						for _, f := range typ.Fields.List {
							for _, name := range f.Names {
								known[s.Name.Name+"."+name.Name] = true
							}
						}
					}
				}
			}
		}
	})
	return known
}

// walkFiles calls do for each file of all modules whose name has an extension.
func walkFiles(t *testing.T, ext string, do func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDir(path)
		}
		if filepath.Ext(path) != ext {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			do(path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
