package house

import (
	"go/ast"
	"path"
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
	written := files(t, isSQL)
	for _, f := range written {
		known[path.Base(f.path)] = true
	}
	for _, f := range written {
		m := callersLine.FindStringSubmatch(string(f.text))
		if m == nil {
			continue
		}
		headers++
		for _, name := range callerName.FindAllString(strings.TrimSuffix(strings.TrimSpace(m[1]), "."), -1) {
			parts := strings.Split(name, ".")
			if !known[strings.Join(parts[max(0, len(parts)-2):], ".")] { // the last two parts of package.Type.Method
				t.Errorf("%s is called by %s, which does not exist", f.path, name)
			}
		}
	}
	if headers < 200 {
		t.Errorf("%d SQL files say who calls them: the test looks for it in the wrong way", headers)
	}
}

// declaredFunctions returns the names of the functions, methods and fields of all modules,
// including tests: a function as name and as package.name, a method or a field as Type.name.
func declaredFunctions(t *testing.T) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	for _, f := range files(t, isGo) {
		for _, decl := range f.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					known[receiver(d)+"."+d.Name.Name] = true
				} else {
					known[d.Name.Name], known[f.syntax.Name.Name+"."+d.Name.Name] = true, true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					s, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if typ, ok := s.Type.(*ast.StructType); ok {
						for _, field := range typ.Fields.List {
							for _, name := range field.Names {
								known[s.Name.Name+"."+name.Name] = true
							}
						}
					}
				}
			}
		}
	}
	return known
}
