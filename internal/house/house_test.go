package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestMain changes to the root of the repository. So all paths, also those in the messages of
// tests, begin there.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A file is a Go file or an SQL file of the repository. Tests share it, so they do not change it.
type file struct {
	dir, path string // with slashes
	test      bool   // a Go file with tests
	text      []byte
	syntax    *ast.File // with comments; nil for an SQL file
}

// positions has the positions in the syntax of all files.
var positions = token.NewFileSet()

// readTree reads and parses all files of all modules, once for all tests.
var readTree = sync.OnceValues(func() ([]*file, error) {
	var all []*file
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDir(name)
		}
		ext := filepath.Ext(name)
		if ext != ".go" && ext != ".sql" || strings.HasPrefix(entry.Name(), "_") || strings.HasPrefix(entry.Name(), ".") {
			return nil
		}
		name = filepath.ToSlash(name)
		all = append(all, &file{dir: path.Dir(name), path: name, test: strings.HasSuffix(name, "_test.go")})
		return nil
	})
	if err != nil {
		return nil, err
	}
	readers := runtime.GOMAXPROCS(0)
	problems := make([]error, len(all))
	var reading sync.WaitGroup
	for first := range readers {
		reading.Go(func() {
			for n := first; n < len(all); n += readers {
				problems[n] = all[n].read()
			}
		})
	}
	reading.Wait()
	return all, errors.Join(problems...)
})

// read reads the file, and parses it if it is a Go file.
func (f *file) read() (err error) {
	if f.text, err = os.ReadFile(f.path); err != nil || !strings.HasSuffix(f.path, ".go") {
		return err
	}
	f.syntax, err = parser.ParseFile(positions, f.path, f.text, parser.ParseComments|parser.SkipObjectResolution)
	return err
}

// skipDir returns fs.SkipDir for a directory that holds no package.
func skipDir(name string) error {
	if name == "." {
		return nil
	}
	base := filepath.Base(name)
	if base == "testdata" || base == "vendor" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	return nil
}

// files returns the files for which the function choose returns true.
func files(t *testing.T, choose func(*file) bool) []*file {
	t.Helper()
	all, err := readTree()
	if err != nil {
		t.Fatal(err)
	}
	var chosen []*file
	for _, f := range all {
		if choose(f) {
			chosen = append(chosen, f)
		}
	}
	return chosen
}

func isGo(f *file) bool   { return f.syntax != nil }
func isSQL(f *file) bool  { return f.syntax == nil }
func isCode(f *file) bool { return isGo(f) && !f.test }

// updateVariable makes the tests write the generated files. make api sets it.
const updateVariable = "POSTROOM_UPDATE"

func update() bool { return os.Getenv(updateVariable) != "" }

// generated compares a generated file with the wanted text, or writes that text if update is true.
func generated(t *testing.T, name, want string) {
	t.Helper()
	if update() {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s does not fit the code (%v): run make api, and look at what git diff shows", name, err)
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
