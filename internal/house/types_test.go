package house

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A universe has the types of several packages. A package includes the declarations of its tests.
// So an interface and a fake of it, which a test of any package declares, are comparable. Function
// bodies are left out.
type universe struct {
	packages map[string]*unit // by import path; the path of a package x_test ends in _test
	foreign  *exports
}

// A unit is a package that is made from its files.
type unit struct {
	dir         string
	code, tests []*ast.File // a package x_test has only code
	external    bool        // it is a package x_test
	types       *types.Package
	imports     []*types.Package // those of code, not of tests
	checker     *types.Checker
	info        *types.Info
	named       []*types.Named // see universe.named
	problems    []error
}

// readTypes makes the universe of all modules of go.work, once for all tests.
var readTypes = sync.OnceValues(func() (*universe, error) {
	all, err := readTree()
	if err != nil {
		return nil, err
	}
	pages, err := readPages()
	if err != nil {
		return nil, err
	}
	var blocks []*ast.File
	for page, text := range pages {
		if isOfThePast(page) {
			continue
		}
		for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
			if file, err := parseBlock(m[1]); err == nil && file.Name.Name != snippet {
				blocks = append(blocks, file)
			}
		}
	}
	used, err := workspace()
	if err != nil {
		return nil, err
	}
	u := newUniverse(slices.DeleteFunc(slices.Clone(all), func(f *file) bool { return !isGo(f) || !slices.Contains(used, moduleOf(f.dir)) }))
	u.addPages(blocks)
	if u.foreign, err = exported(u.imports(blocks)); err != nil {
		return nil, err
	}
	return u, u.check()
})

// theTypes returns the universe of all modules of go.work.
func theTypes(t *testing.T) *universe {
	t.Helper()
	u, err := readTypes()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// workspace returns the directories of the modules that go.work joins.
func workspace() ([]string, error) {
	text, err := os.ReadFile("go.work")
	if err != nil {
		return nil, err
	}
	_, list, _ := strings.Cut(string(text), "use (")
	list, _, _ = strings.Cut(list, ")")
	var dirs []string
	for _, dir := range strings.Fields(list) {
		dirs = append(dirs, path.Clean(dir))
	}
	return dirs, nil
}

// moduleOf returns the directory of the module that has the package in a directory.
func moduleOf(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(dir + "/go.mod"); err == nil {
			return dir
		}
	}
	return dir
}

// newUniverse sorts Go files into packages. It leaves out files that are not built on this machine.
func newUniverse(all []*file) *universe {
	u := &universe{packages: make(map[string]*unit)}
	for _, f := range all {
		builds := build.Default
		builds.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(f.text))), nil }
		if ok, err := builds.MatchFile(f.dir, path.Base(f.path)); !ok || err != nil {
			continue
		}
		name := strings.TrimSuffix(module+"/"+f.dir, "/.")
		external := f.test && strings.HasSuffix(f.syntax.Name.Name, "_test")
		if external {
			name += "_test"
		}
		p := u.packages[name]
		if p == nil {
			p = &unit{dir: f.dir, external: external, types: types.NewPackage(name, f.syntax.Name.Name)}
			u.packages[name] = p
		}
		if f.test && !external {
			p.tests = append(p.tests, f.syntax)
		} else {
			p.code = append(p.code, f.syntax)
		}
	}
	return u
}

// addPages adds the packages that pages of the documentation have for their programs. The tutorial
// calls its module example.com/tutorial.
func (u *universe) addPages(blocks []*ast.File) {
	for _, file := range blocks {
		name := "example.com/tutorial/" + file.Name.Name
		if slices.ContainsFunc(blocks, func(f *ast.File) bool {
			return slices.ContainsFunc(f.Imports, func(spec *ast.ImportSpec) bool { return importPath(spec) == name })
		}) {
			u.packages[name] = &unit{dir: "docs/tutorial", code: []*ast.File{file}, types: types.NewPackage(name, file.Name.Name)}
		}
	}
}

// imports returns the packages of other modules that the packages of the universe and the given
// files import.
func (u *universe) imports(more []*ast.File) []string {
	found := make(map[string]bool)
	add := func(files []*ast.File) {
		for _, file := range files {
			for _, spec := range file.Imports {
				if what := importPath(spec); u.packages[what] == nil && what != "unsafe" {
					found[what] = true
				}
			}
		}
	}
	add(more)
	for _, p := range u.packages {
		add(p.code)
		add(p.tests)
	}
	return slices.Sorted(maps.Keys(found))
}

// check makes the types of all packages, then those of their tests, and last those of packages
// x_test, which need both. Packages do not import each other in a circle, but packages with tests
// do.
func (u *universe) check() error {
	names := slices.Sorted(maps.Keys(u.packages))
	for _, external := range []bool{false, true} {
		for _, name := range names {
			if u.packages[name].external != external {
				continue
			}
			if _, err := u.Import(name); err != nil {
				return err
			}
		}
		for _, name := range names {
			if p := u.packages[name]; p.external == external {
				if err := p.add(p.tests); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// add makes the types that files of the package declare.
func (p *unit) add(files []*ast.File) error {
	_ = p.checker.Files(files) // problems has all errors
	if len(p.problems) > 0 {
		return fmt.Errorf("the types of %s: %w", p.types.Path(), errors.Join(p.problems...))
	}
	return nil
}

// Import returns a package, and makes its types if it was not imported before. It is how packages
// get those that they import.
func (u *universe) Import(name string) (*types.Package, error) {
	p := u.packages[name]
	if p == nil {
		return u.foreign.Import(name)
	}
	if p.checker == nil {
		settings := &types.Config{Importer: u, IgnoreFuncBodies: true, Error: func(err error) { p.problems = append(p.problems, err) }}
		p.info = &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
		p.checker = types.NewChecker(settings, positions, p.types, p.info)
		if err := p.add(p.code); err != nil {
			return nil, err
		}
		p.imports = slices.Clone(p.types.Imports())
	}
	return p.types, nil
}

// compile returns the errors that the compiler finds in a program, except those of dependencies.
func compile(u *universe, program []*ast.File) error {
	var problems []error
	settings := &types.Config{Importer: u, Error: func(err error) { problems = append(problems, err) }}
	_, _ = settings.Check("main", positions, program, nil) // problems has all errors
	return errors.Join(problems...)
}

// exports has packages of other modules as the compiler has exported them.
type exports struct {
	mu       sync.Mutex
	importer types.Importer
}

// exported compiles packages of other modules if they are not in the cache of the go command. It
// compiles for the race detector if this test was, because the cache then has the packages.
func exported(packages []string) (*exports, error) {
	args := []string{"list", "-export", "-f", "{{.ImportPath}} {{.Export}}"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	root, err := filepath.Abs("go.work")
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", append(args, packages...)...)
	list.Env = append(os.Environ(), "GOWORK="+root)
	var problems strings.Builder
	list.Stderr = &problems
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export: %w\n%s", err, problems.String())
	}
	archives := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, archive, _ := strings.Cut(strings.TrimSpace(line), " ")
		archives[name] = archive
	}
	return &exports{importer: importer.ForCompiler(positions, "gc", func(name string) (io.ReadCloser, error) {
		return os.Open(cmp.Or(archives[name], name+" was not exported"))
	})}, nil
}

func (e *exports) Import(name string) (*types.Package, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.importer.Import(name)
}
