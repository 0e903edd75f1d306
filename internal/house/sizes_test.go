package house

import (
	"bytes"
	"cmp"
	"fmt"
	"go/types"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	sizesFile     = "docs/reference/sizes.md"
	testTimesFile = "integration/results/test-times.txt" // integration/testtimes writes it
)

// groups are packages that belong together. A package is in the group that names it, or a directory
// above it; the longest name counts.
var groups = []struct {
	name string
	dirs []string
}{
	{"engine", []string{".", "outbox", "relay", "natsjs", "inbox", "internal/pglog", "internal/eventlog", "schema"}},
	{"operators", []string{"deadletter", "operator", "internal/inspect", "internal/doctor", "internal/reconcile", "cmd"}},
	{"HTTP", []string{"idempotency", "outbound", "webhook", "internal/jcs"}},
	{"saga", []string{"saga"}},
	{"postmill", []string{"postmill"}},
	{"postroomtest", []string{"postroomtest"}},
	{"rigs", []string{"integration", "internal/devstack", "internal/devtest"}},
	{"examples", []string{"examples"}},
	{"the rest of internal", []string{"internal"}},
}

// groupOf returns the index of the group of a directory.
func groupOf(dir string) (group int, ok bool) {
	longest := 0
	for n, g := range groups {
		for _, d := range g.dirs {
			if (d == dir || d != "." && matches(d+"/...", dir)) && len(d) > longest {
				group, longest = n, len(d)
			}
		}
	}
	return group, longest > 0
}

const (
	mostReachable = 12 // how many types the page lists
	leastSeconds  = 2  // packages whose tests take less time have no row
)

// TestSizesPage writes docs/reference/sizes.md if make api runs it. Otherwise it only checks that
// the page can be made: the page describes the code at one moment and limits nothing.
func TestSizesPage(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString(`# Sizes

How large the parts of this repository are. The page limits nothing, and no test compares it with
the code: it is as old as the last ` + "`make api`" + `, which writes it.

## Lines

Lines of Go without tests, of tests, and of SQL, rounded to hundreds.

| group | Go | tests | SQL | packages |
| --- | ---: | ---: | ---: | --- |
`)
	writeLines(t, &page)
	page.WriteString(`
## Exported names

For each public package: the exported constants, variables, types and functions; the exported
fields and methods of these types; and the settings on the page
[configuration](configuration.md).

| package | names | fields and methods | settings |
| --- | ---: | ---: | ---: |
`)
	writeNames(t, &page)
	fmt.Fprintf(&page, `
## Methods

The %d types with the most methods that code in the type's package can call on a pointer to the
type. Methods of embedded types count.

| type | methods | of these, from embedded types |
| --- | ---: | ---: |
`, mostReachable)
	writeMethods(t, &page)
	page.WriteString(`
## Times of tests

Seconds that the tests of each package took, and its slowest test. ` + "`make test-times`" + ` measures
this. The go command tests several packages at the same time, so the times depend on the machine and
on its load.

`)
	writeTimes(t, &page)
	if update() {
		generated(t, sizesFile, wrap(page.String()))
	}
}

func writeLines(t *testing.T, page *strings.Builder) {
	t.Helper()
	var code, tests, sql [32]int // by group
	for _, f := range files(t, func(*file) bool { return true }) {
		group, ok := groupOf(f.dir)
		if !ok {
			t.Errorf("%s is in no group of %s", f.dir, sizesFile)
			continue
		}
		switch n := bytes.Count(f.text, []byte("\n")); {
		case isSQL(f):
			sql[group] += n
		case f.test:
			tests[group] += n
		default:
			code[group] += n
		}
	}
	hundreds := func(n int) int { return (n + 50) / 100 * 100 }
	for n, g := range groups {
		if code[n] == 0 {
			t.Errorf("the group %s has no code: the test looks for it in the wrong way", g.name)
		}
		var dirs []string
		for _, dir := range g.dirs {
			dirs = append(dirs, nameOf(dir))
		}
		fmt.Fprintf(page, "| %s | %d | %d | %d | %s |\n", g.name, hundreds(code[n]), hundreds(tests[n]), hundreds(sql[n]), strings.Join(dirs, ", "))
	}
}

func writeNames(t *testing.T, page *strings.Builder) {
	t.Helper()
	set := make(map[string]int)
	for _, c := range configured {
		set[c.dir] += len(settings(t, c.dir, c.name))
	}
	lines := api(t)
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		members := 0
		for _, line := range lines[dir] {
			if strings.HasPrefix(line, "field ") || strings.HasPrefix(line, "method ") || strings.HasPrefix(line, "func (") {
				members++
			}
		}
		fmt.Fprintf(page, "| %s | %d | %d | %d |\n", nameOf(dir), len(lines[dir])-members, members, set[dir])
	}
}

func writeMethods(t *testing.T, page *strings.Builder) {
	t.Helper()
	type row struct {
		name               string
		methods, inherited int
	}
	var rows []row
	u := theTypes(t)
	for _, typ := range u.concreteTypes() {
		if inTest(typ) {
			continue
		}
		r := row{name: u.nameOf(typ)}
		for selection := range types.NewMethodSet(types.NewPointer(typ.Type())).Methods() {
			m := selection.Obj()
			if inTest(m) || !m.Exported() && m.Pkg() != typ.Pkg() {
				continue
			}
			r.methods++
			if len(selection.Index()) > 1 {
				r.inherited++
			}
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(b.methods-a.methods, strings.Compare(a.name, b.name))
	})
	for _, r := range rows[:mostReachable] {
		fmt.Fprintf(page, "| `%s` | %d | %d |\n", r.name, r.methods, r.inherited)
	}
}

// writeTimes writes the lines of a file that has a header and four columns with tabs between them.
func writeTimes(t *testing.T, page *strings.Builder) {
	t.Helper()
	text, err := os.ReadFile(testTimesFile)
	if err != nil {
		t.Fatal(err)
	}
	header, rows, _ := strings.Cut(string(text), "\n")
	fmt.Fprintf(page, "%s\n\n| package | seconds | slowest test | seconds |\n| --- | ---: | --- | ---: |\n", strings.TrimPrefix(header, "# "))
	slow, fast := 0, 0
	for line := range strings.Lines(rows) {
		columns := strings.Split(strings.TrimSpace(line), "\t")
		seconds, err := strconv.ParseFloat(columns[min(1, len(columns)-1)], 64)
		if len(columns) != 4 || err != nil {
			t.Fatalf("%s has the line %q", testTimesFile, line)
		}
		if seconds < leastSeconds {
			fast++
			continue
		}
		slow++
		fmt.Fprintf(page, "| %s | %s | `%s` | %s |\n", nameOf(columns[0]), columns[1], columns[2], columns[3])
	}
	fmt.Fprintf(page, "\nEach of the other %d packages took less than %d seconds.\n", fast, leastSeconds)
	if slow+fast < 10 {
		t.Errorf("%d packages were found: the test looks for them in the wrong way", slow+fast)
	}
}
