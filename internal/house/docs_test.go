package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode"
)

// readPages reads the Markdown files that users read, by path.
var readPages = sync.OnceValues(func() (map[string]string, error) {
	pages := make(map[string]string)
	read := func(path string) error {
		text, err := os.ReadFile(path)
		pages[filepath.ToSlash(path)] = string(text)
		return err
	}
	problems := []error{read("README.md"), read("CONTRIBUTING.md")}
	for _, root := range []string{"docs", "examples"} {
		problems = append(problems, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".md" {
				return read(path)
			}
			return err
		}))
	}
	return pages, errors.Join(problems...)
})

// documentation returns the Markdown files that users read, by path. Tests share the map, so they
// do not change it.
func documentation(t *testing.T) map[string]string {
	t.Helper()
	pages, err := readPages()
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	fenced  = regexp.MustCompile("(?s)```.*?```")
)

// Each link within the repository leads to a file and a heading that exist.
func TestLinksOfTheDocumentation(t *testing.T) {
	t.Parallel()
	links := 0
	for page, text := range documentation(t) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			if err := resolve(page, m[1]); err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
			}
		}
	}
	if links < 50 {
		t.Errorf("%d links were found: the test looks for them in the wrong way", links)
	}
}

func resolve(page, to string) error {
	path, anchor, _ := strings.Cut(to, "#")
	target := page
	if path != "" {
		target = filepath.Join(filepath.Dir(page), path)
	}
	if _, err := os.Stat(target); err != nil || anchor == "" {
		return err
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err
	}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		if slug(m[1]) == anchor {
			return nil
		}
	}
	return errors.New("there is no such heading")
}

// slug returns the anchor that renderers of Markdown make for a heading.
func slug(text string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r == ' ':
			out.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			out.WriteRune(r)
		}
	}
	return out.String()
}

// docLink is a link in the documentation of Go code.
var docLink = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// Go code in the documentation parses, and complete files compile. Each name of a public package in
// a block or a sentence exists.
func TestGoInTheDocumentation(t *testing.T) {
	t.Parallel()
	public := publicNames(t)
	blocks, programs := 0, 0
	for page, text := range documentation(t) {
		if isOfThePast(page) || page == "docs/explanation/architecture.md" {
			continue // architecture.md names internal code, and has its own test
		}
		var program []*ast.File
		for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
			blocks++
			file, err := parseBlock(m[1])
			if err != nil {
				t.Errorf("%s: %v in\n%s", page, err, m[1])
				continue
			}
			for _, name := range selected(file) {
				if !public.has(name) {
					t.Errorf("%s: there is no %s", page, name)
				}
			}
			switch {
			case file.Name.Name == snippet:
				continue
			case strings.Contains(m[1], "func Test"): // a test of the previous program
				program = append(program, file)
			default:
				program = []*ast.File{file}
			}
			programs++
			if err := compile(theTypes(t), program); err != nil {
				t.Errorf("%s: a program does not compile: %v", page, err)
			}
		}
		for _, m := range inBackticks.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if !public.has(m[1]) {
				t.Errorf("%s: there is no %s", page, m[1])
			}
		}
	}
	if blocks < 10 || programs < 3 {
		t.Errorf("%d blocks of Go and %d programs were found: the test looks for them in the wrong way", blocks, programs)
	}
}

// isOfThePast reports whether a page describes a decision, and so the past.
func isOfThePast(page string) bool { return strings.Contains(page, "/decisions/") }

var inBackticks = regexp.MustCompile("`([A-Za-z]+\\.[A-Z][A-Za-z]*(?:\\.[A-Z][A-Za-z]*)?)(?:\\([^`]*\\))?`")

// snippet is the package name for a block without a package clause.
const snippet = "snippet"

// parseBlock parses a block that is a file, declarations, statements or expressions.
func parseBlock(text string) (*ast.File, error) {
	var first error
	for _, form := range []string{"%s", "package " + snippet + "\n%s", "package " + snippet + "\nfunc _() {\n%s\n}", "package " + snippet + "\nfunc _() {\n_, _ = %s\n}"} {
		file, err := parser.ParseFile(positions, "block.go", fmt.Sprintf(form, strings.TrimRight(text, "\n")), 0)
		if err == nil {
			return file, nil
		}
		if first == nil || strings.Contains(form, "func _") {
			first = err
		}
	}
	return nil, first
}

// selected returns the selectors of a file, such as package.Name, whose first part the file does
// not declare.
func selected(file *ast.File) []string {
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil && ast.IsExported(sel.Sel.Name) {
				names = append(names, x.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return names
}

// names are the names in docs/api.txt, by the last part of the package's path.
type names map[string]map[string]bool

// has reports whether package.Name, package.Type.Name or Type.Name exists. Every name of a foreign
// package or type counts as existing.
func (n names) has(name string) bool {
	first, rest, _ := strings.Cut(name, ".")
	if all, ours := n[first]; ours {
		return all[rest]
	}
	ours := false
	for _, all := range n {
		if all[name] {
			return true
		}
		ours = ours || all[first] && ast.IsExported(first)
	}
	return !ours
}

var (
	method   = regexp.MustCompile(`^func \(\w+ \*?(\w+)(?:\[\w+\])?\) (\w+)`)
	declared = regexp.MustCompile(`^(?:const|var|type|func|field|method) ([\w.]+)`)
)

func publicNames(t *testing.T) names {
	t.Helper()
	all := make(names)
	pkg := ""
	for line := range strings.Lines(readText(t, apiFile)) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "github.com/"):
			pkg = line[strings.LastIndex(line, "/")+1:]
			all[pkg] = make(map[string]bool)
		case method.MatchString(line):
			m := method.FindStringSubmatch(line)
			all[pkg][m[1]+"."+m[2]] = true
		case declared.MatchString(line):
			all[pkg][declared.FindStringSubmatch(line)[1]] = true
		}
	}
	return all
}

const timePage = "docs/reference/time-in-tests.md"

var nameOfTest = regexp.MustCompile("`((?:Test|override)[A-Z]\\w+)`")

// A page names only tests and helpers that exist, and each helper that overrides a time or a state
// is on the page about time in tests.
func TestTestsInTheDocumentation(t *testing.T) {
	t.Parallel()
	declared := make(map[string]bool)
	for name := range declaredFunctions(t) {
		declared[name[strings.LastIndex(name, ".")+1:]] = true
	}
	named := 0
	pages := documentation(t)
	for page, text := range pages {
		if strings.Contains(page, "/decisions/") || page == sizesFile {
			continue // these pages describe the past
		}
		for _, m := range nameOfTest.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if named++; !declared[m[1]] {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
	for name := range declared {
		if override, is := strings.CutPrefix(name, "override"); is && override != "" && !strings.Contains(pages[timePage], "`"+name+"`") {
			t.Errorf("%s has no row for the helper %s", timePage, name)
		}
	}
	if named < 20 {
		t.Errorf("%d names were found: the test looks for them in the wrong way", named)
	}
}

const promisesPage = "docs/contributing/promises.md"

var testOfPromise = regexp.MustCompile("`([a-z/]+): (\\w+)(?:/([^`]+))?`")

// Each test that the page about promises names is in the package that it names, and each case of it is a
// text in the tests of that package.
func TestTestsOfPromises(t *testing.T) {
	t.Parallel()
	known := make(map[string]bool) // package: test, and package: "case"
	for _, f := range files(t, isGo) {
		if !f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				known[f.dir+": "+n.Name.Name] = true
			case *ast.BasicLit:
				known[f.dir+": "+n.Value] = true
			}
			return true
		})
	}
	rows, named := 0, 0
	for line := range strings.Lines(documentation(t)[promisesPage]) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || line == "| promise | test |\n" {
			continue
		}
		rows++
		tests := testOfPromise.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 && !strings.Contains(line, "| none: ") {
			t.Errorf("%s: neither a test nor a reason in %s", promisesPage, line)
		}
		for _, m := range tests {
			if named++; !known[m[1]+": "+m[2]] || m[3] != "" && !known[fmt.Sprintf("%s: %q", m[1], m[3])] {
				t.Errorf("%s names %s, which does not exist", promisesPage, m[0])
			}
		}
	}
	if rows < 100 || named < rows {
		t.Errorf("%d rows with %d tests were found: the test looks for them in the wrong way", rows, named)
	}
}
