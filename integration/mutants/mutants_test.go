package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const list = `# a comment
name: epoch-check
guard: Only the leader records.
test: outbox ^TestLease$

name: two-words
guard: It has a test that is part of another.
test: ./relay -run 'TestA/part'
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := parse("guards.txt", list)
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{Name: "epoch-check", Guard: "Only the leader records.", Package: "outbox", Run: "^TestLease$", Source: "guards.txt:2"},
		{Name: "two-words", Guard: "It has a test that is part of another.", Package: "relay", Run: "TestA/part", Source: "guards.txt:6"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parsed\n%+v, want\n%+v", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	first := strings.SplitAfter(list, "\n\n")[0]
	for _, tt := range []struct{ what, old, replacement, want string }{
		{"a name with spaces", "name: epoch-check", "name: epoch check", "the name is"},
		{"no guard", "guard: Only the leader records.\n", "", "guard says nothing"},
		{"no test", "test: outbox ^TestLease$", "test: outbox", "test is"},
		{"a test that is no expression", "^TestLease$", "(", "missing closing"},
		{"chaos without seconds", "outbox ^TestLease$", "chaos 7", "want chaos SEED SECONDS"},
		{"chaos with a seed that is none", "outbox ^TestLease$", "chaos x 30", "want chaos SEED SECONDS"},
		{"a word that is none", "guard:", "watch:", `not "watch:`},
		{"a word twice", "guard:", "name: b\nguard:", `not "name: b"`},
	} {
		text := strings.Replace(first, tt.old, tt.replacement, 1)
		if text == first {
			t.Fatalf("%s: nothing was changed", tt.what)
		}
		if got, err := parse("f.txt", text); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "f.txt:") {
			t.Errorf("%s: parsed %+v, %v; want an error with %q and the place", tt.what, got, err, tt.want)
		}
	}
}

// Every entry of the lists has a marker, the edit of the marker fits the code below it, and the
// test that the entry names is in its package.
func TestListsFitTheCode(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string][]string)
	for _, planted := range []bool{false, true} {
		all, err := readAll(root, planted)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if _, err := e.apply(root); err != nil {
				t.Error(err)
			}
			if strange, err := e.strangeNames(root); err != nil || len(strange) > 0 {
				t.Errorf("%s: the marker of %s has names that are nowhere in its package: %s, %v: write the new names into the marker", e.markers[0], e.Name, strange, err)
			}
			if e.Package == chaos {
				continue
			}
			dir := e.testPackage()
			if tests[dir] == nil {
				tests[dir] = testsIn(t, filepath.Join(root, dir))
			}
			top, _, _ := strings.Cut(e.Run, "/")
			if !slices.ContainsFunc(tests[dir], regexp.MustCompile(top).MatchString) {
				t.Errorf("%s (%s): no test in %s has a name like %s", e.Name, e.Source, dir, top)
			}
		}
	}
}

func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// module is a module with a guard in Go and one in SQL, each with a test, and an entry for
// each way in which a removal can end.
var module = map[string]string{
	"go.mod":  "module example.com/m\n\ngo 1.26\n",
	"go.work": "go 1.26\n\nuse .\n",
	"p/p.go": "package p\n\nimport _ \"embed\"\n\n//go:embed p.sql\nvar SQL string\n\n//go:embed n.sql\nvar Bad string\n\nfunc Guarded(n int) bool {\n\t//guard:go-guard true\n\t//guard:panic true\n\treturn n > 0\n}\n\n" +
		"func Other() int {\n\t//guard:not-noticed = 2\n\t//guard:does-not-build = \"1\"\n\t//guard:red-anyway = 2\n\t//guard:no-test = 2\n\t//guard:only-skipped = 2\n\treturn 1\n}\n",
	"p/p.sql":  "SELECT 1\n--guard:sql-guard remove\nWHERE true;\n",
	"p/n.sql":  "--guard:no-sql = )\nSELECT 1;\n",
	"p/go.sum": "",
	"p/p_test.go": `package p

import (
	"strings"
	"testing"
)

func TestGo(t *testing.T) {
	t.Run("part", func(t *testing.T) {
		if Guarded(0) {
			t.Error("not guarded")
		}
	})
}

func TestSQL(t *testing.T) {
	if !strings.Contains(SQL, "WHERE") {
		t.Error("no condition")
	}
}

func TestBad(t *testing.T) {
	if strings.Contains(Bad, "SELECT )") {
		t.Error("ERROR: syntax error (SQLSTATE 42601)")
	}
}

func TestRed(t *testing.T)     { t.Error("always") }
func TestSkipped(t *testing.T) { t.Skip("nothing here") }
func TestPanics(t *testing.T) {
	if Guarded(0) {
		panic("ended")
	}
}
`,
}

const tried = `name: go-guard
guard: a
test: p ^TestGo$

name: sql-guard
guard: a
test: p ^TestSQL$

name: no-sql
guard: a
test: p ^TestBad$

name: panic
guard: a
test: p ^TestPanics$

name: not-noticed
guard: a
test: p ^TestGo$

name: does-not-build
guard: a
test: p ^TestGo$

name: red-anyway
guard: a
test: p ^TestRed$

name: no-test
guard: a
test: p ^TestNobody$

name: only-skipped
guard: a
test: p ^TestSkipped$
`

// The program runs on a module for this test alone, and changes nothing in it.
func TestRun(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range module {
		write(name, text)
	}
	write("integration/mutants/guards.txt", tried)
	t.Chdir(root)
	t.Setenv("GOFLAGS", "")
	var out, progress strings.Builder
	err := run(t.Context(), []string{"--json", "--parallel", "2"}, &out, &progress)
	var results []result
	if err := json.Unmarshal([]byte(out.String()), &results); err != nil {
		t.Fatalf("%v: %s\n%s", err, out.String(), progress.String())
	}
	want := map[string]struct {
		outcome outcome
		by      []string
		why     string
	}{
		"go-guard":       {noticed, []string{"TestGo/part"}, ""},
		"sql-guard":      {noticed, []string{"TestSQL"}, ""},
		"no-sql":         {faulty, nil, "the server refuses the changed statement"},
		"panic":          {noticed, []string{"TestPanics"}, ""},
		"not-noticed":    {unnoticed, nil, "passes without it"},
		"does-not-build": {faulty, nil, "it does not build"},
		"red-anyway":     {faulty, nil, "red with all guards"},
		"no-test":        {faulty, nil, "no test ran"},
		"only-skipped":   {faulty, nil, "no test ran"},
	}
	for _, r := range results {
		w, ok := want[r.Name]
		if !ok || r.Outcome != w.outcome || !slices.Equal(r.By, w.by) || !strings.Contains(r.Why, w.why) {
			t.Errorf("%s: %s by %q, %s; want %+v", r.Name, r.Outcome, r.By, r.Why, w)
		}
		delete(want, r.Name)
		if names := err.Error(); strings.Contains(names, r.Name+" (") != (r.Outcome != noticed) {
			t.Errorf("the error says of %s, which is %s:\n%s", r.Name, r.Outcome, names)
		}
	}
	if len(want) > 0 {
		t.Errorf("no result of %v", want)
	}
	if said := progress.String(); strings.Count(said, "[9 of 9, 0s left] ") != 1 || !strings.Contains(said, "[1 of 9, ") {
		t.Errorf("it does not say how far it is:\n%s", said)
	}
	for name, text := range module {
		if now, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(now) != text {
			t.Errorf("%s was changed, or is gone: %v", name, err)
		}
	}

	out.Reset()
	if err := run(t.Context(), []string{"--only", "go-guard"}, &out, &progress); err != nil || strings.Contains(out.String(), "sql-guard") {
		t.Errorf("one entry that is noticed: %v\n%s", err, out.String())
	}
	if err := run(t.Context(), []string{"--only", "nobody"}, &out, &progress); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an entry that is not there: %v", err)
	}
	out.Reset()
	if err := run(t.Context(), []string{"--only", "sql-guard", "--show"}, &out, &progress); err != nil || !strings.Contains(out.String(), "- WHERE true;\n+ ;\n") {
		t.Errorf("it shows %v\n%s", err, out.String())
	}
	for _, tt := range []struct{ what, file, text, want string }{
		{"no marker", "p/p.sql", "SELECT 1;\n", "guards.txt:5: no Go or SQL file has the marker of sql-guard"},
		{"a marker twice", "p/p.sql", "--guard:sql-guard true\nSELECT 1;\n--guard:sql-guard true\nSELECT 2;\n", "p/p.sql:3: the marker sql-guard is at p/p.sql:1 too"},
		{"an edit that does not fit", "p/p.sql", "--guard:sql-guard 3 true\nSELECT 1;\n", "p/p.sql:1: the edit of sql-guard does not fit the code below it: there is no part 3"},
		{"an edit that is none", "p/p.sql", "--guard:sql-guard delete\nSELECT 1;\n", `p/p.sql:1: the edit is "delete"`},
		{"a marker with a space", "p/q.sql", "-- guard:sql-guard/2 true\nSELECT 1;\n", "p/q.sql:1: a marker stands on a line of its own, without a space"},
		{"a marker behind code", "p/q.sql", "SELECT 1 --guard:sql-guard/2 true\n;\n", "p/q.sql:1: a marker stands on a line of its own"},
		{"a marker behind Go code", "p/q.go", "package p\n\nvar X = 1 //guard:sql-guard/2 = 2\n", "p/q.go:3: a marker stands on a line of its own"},
		{"a marker in a text", "p/p.sql", "SELECT '\n--guard:sql-guard true\n', 1\nWHERE true;\n", "no Go or SQL file has the marker of sql-guard"},
		{"a marker in a comment of several lines", "p/p.sql", "/*\n--guard:sql-guard true\n*/\nSELECT 1;\n", "no Go or SQL file has the marker of sql-guard"},
		{"a marker in a Go text", "p/q.go", "package p\n\nconst X = `\n//guard:sql-guard true\n`\n", ""},
		{"no entry", "p/q.sql", "--guard:unlisted true\nSELECT 1;\n", "p/q.sql:1: no list has an entry for the marker unlisted"},
		{"markers in two files", "p/q.sql", "--guard:sql-guard/2 true\nSELECT 1;\n", "the markers of sql-guard are in two files"},
	} {
		write(tt.file, tt.text)
		err := run(t.Context(), []string{"--only", "sql-guard"}, &out, &progress)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", tt.what, err, tt.want)
		}
		write("p/p.sql", module["p/p.sql"])
		write("p/q.sql", "SELECT 1;\n")
		write("p/q.go", "package p\n")
	}
}

// The output of a chaos run and its exit status decide.
func TestLastLineOfChaos(t *testing.T) {
	t.Parallel()
	tr := &trials{}
	var r result
	tr.judgeChaos(&r, "NoLoss               FAILED, 12 times: event a\nNoGhost  ok\nchaos: lost=12 verdict=FAILED\n", nil)
	if r.Outcome != unnoticed { // a run that ends well has found nothing, whatever it prints
		t.Errorf("exit status 0: %s", r.Outcome)
	}
	if !slices.Equal(r.By, []string{"NoLoss ×12"}) {
		t.Errorf("found %q", r.By)
	}
}

// The estimate of the remaining time assumes the pace so far.
func TestPace(t *testing.T) {
	t.Parallel()
	began := time.Now()
	p := &pace{began: began, total: 300}
	p.step(began.Add(time.Second))
	if got, want := p.step(began.Add(10*time.Second)), "[2 of 300, 24m50s left]"; got != want {
		t.Errorf("it says %s, want %s", got, want)
	}
}

// A test gets ten times as long as it takes with all guards, and at least a minute.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	r := readReport(strings.NewReader(`{"Action":"pass","Test":"TestA/part","Elapsed":2.5}
{"Action":"pass","Test":"TestA","Elapsed":3}
{"Action":"pass","Test":"TestLong","Elapsed":60}
{"Action":"pass","Test":"TestShort","Elapsed":0}
`))
	for run, want := range map[string]time.Duration{"^TestA$": 90 * time.Second, "^TestA$/part": 90 * time.Second, "^TestLong$": testTimeout, "^TestShort$": time.Minute} {
		if u := r.fitness(run); u.why != "" || u.timeout() != want {
			t.Errorf("%s has %s, %q; want %s", run, u.timeout(), u.why, want)
		}
	}
}

// The page has the last result of each list that was tried whole.
func TestPageKeepsTheRowsOfOtherLists(t *testing.T) {
	t.Parallel()
	of := func(source string, o outcome) result {
		return result{entry: entry{Name: "guard-of-" + source, Source: source}, Outcome: o, Seconds: 2}
	}
	results := []result{of("a.txt:1", noticed), of("a.txt:5", unnoticed), of("b.txt:1", noticed), of("c.txt:1", noticed)}
	var all []entry
	for _, r := range append(results, of("b.txt:5", noticed), of("d.txt:1", noticed)) {
		all = append(all, r.entry)
	}
	former := "| a.txt | former |\n| b.txt | kept |\n| gone.txt | former |\n"
	text := page(t.Context(), former, all, results, time.Now())
	var rows []string
	for line := range strings.Lines(text) {
		if list, rest, ok := strings.Cut(strings.TrimPrefix(line, "| "), ".txt | "); ok {
			rows = append(rows, list+" "+strings.Join(strings.Split(rest, " | ")[:1], ""))
		}
	}
	if want := []string{"a 2", "b kept |\n", "c 1"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q\n%s", rows, want, text)
	}
	if !strings.Contains(text, "| 2 | 1 | 2.0 |") || !strings.Contains(text, "guard-of-a.txt:5 ("+strings.ToLower(string(unnoticed))+") |") {
		t.Errorf("the page does not say what was not noticed:\n%s", text)
	}
}

func TestChooseTakesNamesAndLists(t *testing.T) {
	t.Parallel()
	all := []entry{{Name: "a", Source: "x.txt:1"}, {Name: "b", Source: "x.txt:5"}, {Name: "c", Source: "y.txt:1"}}
	got, err := choose(all, "c, x.txt")
	if err != nil || len(got) != 3 {
		t.Errorf("chose %+v, %v", got, err)
	}
	if _, err := choose(all, "z.txt"); err == nil {
		t.Error("a list that does not exist was accepted")
	}
}
