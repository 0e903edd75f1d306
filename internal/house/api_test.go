package house

import (
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// apiFile lists what the public packages export.
const apiFile = "docs/api.txt"

// TestAPIIsListed makes each change of the public API visible in a review.
func TestAPIIsListed(t *testing.T) {
	lines := api(t)
	var text strings.Builder
	text.WriteString("# What users can call. make api writes this file.\n")
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&text, "\n%s\n", strings.TrimSuffix(module+"/"+dir, "/."))
		for _, line := range lines[dir] {
			fmt.Fprintf(&text, "\t%s\n", line)
		}
	}
	generated(t, apiFile, text.String())
}

// qualified is a name of another package in a line of the API.
var qualified = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.[A-Z]`)

// TestNoInternalTypeInTheAPI checks that users can name the types of all fields and parameters.
func TestNoInternalTypeInTheAPI(t *testing.T) {
	hidden := make(map[string]bool)
	for _, f := range files(t, isCode) {
		if isInternal(f.dir) && !slices.ContainsFunc(programModules, func(m string) bool { return matches(m+"/...", f.dir) }) {
			hidden[f.syntax.Name.Name] = true
		}
	}
	if !hidden["eventlog"] {
		t.Fatal("the internal packages were not found")
	}
	for dir, lines := range api(t) {
		for _, line := range lines {
			for _, m := range qualified.FindAllStringSubmatch(line, -1) {
				if hidden[m[1]] {
					t.Errorf("%s: %s: users cannot name a type of the internal package %s: define one here", dir, line, m[1])
				}
			}
		}
	}
}

// api returns a line for each exported name, method and field of the public packages, by directory.
func api(t *testing.T) map[string][]string {
	t.Helper()
	lines := make(map[string][]string)
	for _, f := range files(t, isCode) {
		program := slices.ContainsFunc(programModules, func(m string) bool { return matches(m+"/...", f.dir) })
		if program || f.syntax.Name.Name == "main" || isInternal(f.dir) {
			continue
		}
		add := func(format string, args ...any) { lines[f.dir] = append(lines[f.dir], fmt.Sprintf(format, args...)) }
		for _, decl := range f.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
					add("%s", source(&ast.FuncDecl{Recv: d.Recv, Name: d.Name, Type: d.Type}))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					addSpec(add, d.Tok, spec)
				}
			}
		}
	}
	for dir, all := range lines {
		slices.Sort(all)
		lines[dir] = slices.Compact(all)
	}
	return lines
}

// isInternal reports whether a directory is internal, so that only its neighbours can import it.
func isInternal(dir string) bool { return slices.Contains(strings.Split(dir, "/"), "internal") }

// addSpec adds a constant, a variable, or a type with its exported fields or methods.
func addSpec(add func(format string, args ...any), kind token.Token, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				add("%s %s", kind, name.Name)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		var members *ast.FieldList
		what := "field"
		switch typ := s.Type.(type) {
		case *ast.StructType:
			members = typ.Fields
			add("type %s struct", s.Name.Name)
		case *ast.InterfaceType:
			members, what = typ.Methods, "method"
			add("type %s interface", s.Name.Name)
		default:
			add("type %s %s", s.Name.Name, source(s.Type))
			return
		}
		for _, m := range members.List {
			if len(m.Names) == 0 && !isHidden(m.Type) {
				add("%s %s: %s", what, s.Name.Name, source(m.Type)) // embedded
			}
			for _, name := range m.Names {
				if name.IsExported() {
					add("%s %s.%s %s", what, s.Name.Name, name.Name, source(m.Type))
				}
			}
		}
	}
}

// isHidden reports whether an embedded type has a name that users cannot write.
func isHidden(typ ast.Expr) bool {
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	name, ok := typ.(*ast.Ident)
	return ok && !name.IsExported()
}

// source returns a piece of Go on one line.
func source(node ast.Node) string {
	var out strings.Builder
	if err := printer.Fprint(&out, token.NewFileSet(), node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(out.String()), " ")
}
