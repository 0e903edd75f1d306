package postroom_test

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// updateVariable makes the tests write the generated files. make api sets it.
const updateVariable = "POSTROOM_UPDATE"

func update() bool { return os.Getenv(updateVariable) != "" }

// Limits that keep types and packages small.
const (
	mostFields  = 12
	mostMethods = 30
	mostFiles   = 3    // with methods of one type
	mostLines   = 3000 // of a package, without tests
	mostLength  = 60   // lines of a function
)

// wideMarker begins a sentence in the documentation of a type that says why it has more fields or
// methods than others.
const wideMarker = "It has many fields because "

// notYet are the figures that exceed the limits. They must not grow.
var notYet = map[string]int{
	"idempotency/conformance.Endpoint fields": 13,
	"integration/checker.State fields":        18,
	"integration/checker.check files":         4,
	"integration/model.World files":           7,
	"internal/wire.attributes fields":         16,
	"postroom.Event fields":                   16,
}

func TestTypesAndPackagesKeepToTheirLimits(t *testing.T) {
	limits := map[string]int{"fields": mostFields, "methods": mostMethods, "files": mostFiles, "lines": mostLines, "length": mostLength}
	found := figures(t)
	for _, what := range slices.Sorted(maps.Keys(found)) {
		n, limit := found[what], limits[what[strings.LastIndex(what, " ")+1:]]
		known, listed := notYet[what]
		switch {
		case n > limit && !listed:
			t.Errorf("%s: %d, want %d at the most, or for fields and methods a sentence %q in its documentation", what, n, limit, wideMarker+"…")
		case listed && n > known:
			t.Errorf("%s: %d, more than the %d that are let pass", what, n, known)
		case listed && n <= limit:
			t.Errorf("%s: %d, which is within the limit: remove it from notYet", what, n)
		}
	}
	for what := range notYet {
		if _, ok := found[what]; !ok {
			t.Errorf("%s is gone: remove it from notYet", what)
		}
	}
}

// mostParticiples is how many types may have a name that ends in -ed or -ing. Such a name says
// what happened to a thing, or what a thing does, and not what it is.
const mostParticiples = 10

// TestTypesAreNamedByNouns fails, and lists the types whose names end in -ed or -ing, if there are
// too many.
func TestTypesAreNamedByNouns(t *testing.T) {
	t.Parallel()
	var found []string
	types := 0
	eachFile(t, func(_, _ string, _ []byte, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok {
				types++
				if name := s.Name.Name; strings.HasSuffix(name, "ed") || strings.HasSuffix(name, "ing") {
					found = append(found, file.Name.Name+"."+name)
				}
			}
			return true
		})
	})
	if types < 500 {
		t.Fatalf("%d types were found: the test looks for them in the wrong way", types)
	}
	if slices.Sort(found); len(found) > mostParticiples {
		t.Errorf("%d types have names that end in -ed or -ing, want %d at the most: name a type by what it is\n%s", len(found), mostParticiples, strings.Join(found, "\n"))
	}
}

// figures returns "package.Type fields", "… methods", "… files", "package.Function length" and
// "package lines" of all modules.
func figures(t *testing.T) map[string]int {
	t.Helper()
	all := make(map[string]int)
	methodFiles := make(map[string]map[string]bool)
	wide := make(map[string]bool)
	eachFile(t, func(dir, name string, text []byte, file *ast.File) {
		if dir == "." {
			dir = "postroom"
		}
		all[dir+" lines"] += bytes.Count(text, []byte("\n"))
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				length := 1 + bytes.Count(text[d.Pos()-file.FileStart:d.End()-file.FileStart], []byte("\n"))
				if d.Recv == nil {
					all[dir+"."+d.Name.Name+" length"] = max(all[dir+"."+d.Name.Name+" length"], length)
					continue
				}
				all[dir+"."+receiver(d)+"."+d.Name.Name+" length"] = max(all[dir+"."+receiver(d)+"."+d.Name.Name+" length"], length)
				typ := dir + "." + receiver(d)
				all[typ+" methods"]++
				if methodFiles[typ] == nil {
					methodFiles[typ] = make(map[string]bool)
				}
				methodFiles[typ][name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					s, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					typ := dir + "." + s.Name.Name
					wide[typ] = strings.Contains(strings.Join(strings.Fields(cmp.Or(s.Doc, d.Doc, &ast.CommentGroup{}).Text()), " "), wideMarker)
					if st, ok := s.Type.(*ast.StructType); ok {
						all[typ+" fields"] = st.Fields.NumFields()
					}
				}
			}
		}
	})
	for typ, files := range methodFiles {
		all[typ+" files"] = len(files)
	}
	for typ, is := range wide {
		if is {
			delete(all, typ+" fields")
			delete(all, typ+" methods")
		}
	}
	return all
}

// eachFile parses the Go files of all modules, except tests.
func eachFile(t *testing.T, do func(dir, name string, text []byte, file *ast.File)) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDir(name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		do(filepath.ToSlash(filepath.Dir(name)), name, text, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// receiver returns the name of a method's receiver type.
func receiver(d *ast.FuncDecl) string {
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.Name
		default:
			return fmt.Sprintf("%T", x)
		}
	}
}

// apiFile lists what the public packages export.
const apiFile = "docs/api.txt"

// TestAPIIsListed makes each change of the public API visible in a review.
func TestAPIIsListed(t *testing.T) {
	generated(t, update(), apiFile, "", "", api(t))
}

// api returns a line for each exported name, method and field of the public packages.
func api(t *testing.T) string {
	t.Helper()
	lines := make(map[string][]string)
	eachFile(t, func(dir, _ string, _ []byte, file *ast.File) {
		program := slices.ContainsFunc(programModules, func(m string) bool { return matches(m+"/...", dir) })
		if program || file.Name.Name == "main" || slices.Contains(strings.Split(dir, "/"), "internal") {
			return
		}
		add := func(format string, args ...any) { lines[dir] = append(lines[dir], fmt.Sprintf(format, args...)) }
		for _, decl := range file.Decls {
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
	})
	var text strings.Builder
	text.WriteString("# What users can call. make api writes this file.\n")
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		slices.Sort(lines[dir])
		fmt.Fprintf(&text, "\n%s\n", strings.TrimSuffix(module+"/"+dir, "/."))
		for _, line := range slices.Compact(lines[dir]) {
			fmt.Fprintf(&text, "\t%s\n", line)
		}
	}
	return text.String()
}

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

// TestLayersAreInContributing checks that the table in CONTRIBUTING.md is the same as layers.
func TestLayersAreInContributing(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("| package | may import, besides the standard library | because |\n| --- | --- | --- |\n")
	for _, l := range layers {
		var may []string
		for _, what := range l.may {
			what = strings.TrimSuffix(strings.TrimPrefix(what, module+"/"), "/...")
			switch what {
			case module:
				what = "root"
			case "...":
				what = "everything"
			default:
				what = "`" + what + "`"
			}
			may = append(may, what)
		}
		name := "`" + strings.TrimSuffix(l.dir, "/...") + "`"
		if l.dir == "." {
			name = "root"
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", name, cmp.Or(strings.Join(may, ", "), "nothing"), cmp.Or(l.why, "it is a program; no package imports it"))
	}
	generated(t, update(), "CONTRIBUTING.md", "<!-- layers: make api writes this -->\n", "<!-- end of layers -->\n", rows.String())
}

// generated compares a file, or the part between two of its lines, with the wanted text. If update
// is true, it writes the text instead.
func generated(t *testing.T, update bool, name, begin, end, want string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil && !update {
		t.Fatal(err)
	}
	before, after, got := "", "", string(text)
	if begin != "" {
		var found, closed bool
		before, got, found = strings.Cut(got, begin)
		got, after, closed = strings.Cut(got, end)
		if !found || !closed {
			t.Fatalf("%s has no lines %q and %q", name, begin, end)
		}
		before, after = before+begin, end+after
	}
	if got == want {
		return
	}
	if !update {
		t.Errorf("%s does not fit the code: run make api, and look at what git diff shows", name)
		return
	}
	if err := os.WriteFile(name, []byte(before+want+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
