package main

import (
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The markers of these tests begin with @, so that this file has none.
func marked(text string) string {
	return regexp.MustCompile(`@(//|--)`).ReplaceAllString(text, "$1")
}

// changed applies the marker of a text.
func changed(t *testing.T, file, text string) (string, error) {
	t.Helper()
	for i, line := range strings.Split(text, "\n") {
		m, err := parseMarker(line)
		if err != nil {
			return "", err
		}
		if m != nil {
			m.file, m.line = file, i+1
			return m.apply(text)
		}
	}
	t.Fatalf("no marker in %s", text)
	return "", nil
}

// withoutSpace makes texts equal that differ only in spaces and in ends of lines.
func withoutSpace(text string) string { return strings.Join(strings.Fields(text), " ") }

var goEdits = []struct{ what, edit, old, want string }{
	{"a condition", "false", "if a && b {\n\tf()\n}", "if (false && (a && b)) {\n\tf()\n}"},
	{"an operand", "2 true", "if a && (b || c) {\n\tf()\n}", "if a && ((true || (b || c))) {\n\tf()\n}"},
	{"an operand of an operand", "2.1 false", "if a && (b || c) {\n\tf()\n}", "if a && ((false && (b)) || c) {\n\tf()\n}"},
	{"two operands", "1,3 true", "return a && b && c", "return (true || (a)) && b && (true || (c))"},
	{"an operand that is removed", "3 remove", "return a || b || c", "return a || b || (false && (c))"},
	{"a number that is removed", "2 remove", "return n - i - j", "return n - j"},
	{"the first number", "1 remove", "return n + i", "return i"},
	{"the statement before a condition", "0 = nil", "if err := f(); err != nil {\n\treturn\n}", "if err := nil; err != nil {\n\treturn\n}"},
	{"no statement before a condition", "0 remove", "if err = f(); err != nil {\n\treturn\n}", "if err != nil {\n\treturn\n}"},
	{"a statement", "remove", "f(a)", "if false {\nf(a)\n}"},
	{"a case", "false", "switch {\n@MARK\ncase a:\n\tf()\n}", "switch {\n@MARK\ncase (false && (a)):\n\tf()\n}"},
	{"a case that is removed", "remove", "switch {\n@MARK\ncase a:\n\tf()\ndefault:\n}", "switch {\n@MARK\ndefault:\n}"},
	{"one of several cases", "2 remove", "switch n {\n@MARK\ncase 1, 2:\n\tf()\n}", "switch n {\n@MARK\ncase 1:\n\tf()\n}"},
	{"an argument", "2 remove", "f(a, b, c)", "f(a, c)"},
	{"the last argument", "3 remove", "f(a, b, c)", "f(a, b)"},
	{"a call for its argument", "= @1", "x := g(a, b)", "x := a"},
	{"a value", "2 = 0", "x, y = 1, 2", "x, y = 1, 0"},
	{"an element", "remove", "x := []int{\n@MARK\n\t1,\n\t2,\n}", "x := []int{\n@MARK\n\t2,\n}"},
	{"the only element", "1 remove", "x := T{A: a}", "x := T{}"},
	{"a field", "= nil", "x := T{\n@MARK\n\tA: a,\n}", "x := T{\n@MARK\n\tA: nil,\n}"},
	{"an operand on its own line", "remove", "return a ||\n@MARK\n\tb", "return a ||\n@MARK\n\t(false && (b))"},
	{"else if", "false", "if a {\n\tf()\n@MARK\n} else if b {\n\tg()\n}", "if a {\n\tf()\n@MARK\n} else if (false && (b)) {\n\tg()\n}"},
	{"more code before", "do g(); @", "f()", "g(); f()"},
	{"more code behind", "do @; g(@1)", "f(a)", "f(a); g(a)"},
	{"inside of a function", "2.1.1 = nil", "f(a, func() error { return g(a) })", "f(a, func() error { return g(nil) })"},
	{"an operator", "= @1 <= @2", "for a < b {\n}", "for a <= b {\n}"},
	{"code that binds less than what is beside it", "2 = c || d", "if a && b {\n}", "if a && (c || d) {\n}"},
	{"code before a selector", "1.1 = c + d", "f(a.b)", "f((c + d).b)"},
	{"code with its own parts", "= @1 * 2", "x := f(a + b)", "x := (a + b) * 2"},
	{"code and what it replaces", "= @ && false", "return a || b", "return (a || b) && false"},
	{"behind a line of another file", "2 true", "//line other.go:100\n@MARK\nif a && b {\n}", "//line other.go:100\n@MARK\nif a && (true || (b)) {\n}"},
}

var sqlEdits = []struct{ what, edit, old, want string }{
	{"a condition", "true", "WHERE epoch = $1;", "WHERE (true OR (epoch = $1));"},
	{"an operand", "2 true", "WHERE a = $1 AND b = 'x;' OR c", "WHERE a = $1 AND b = 'x;' OR (true OR (c))"},
	{"an operand of an operand", "1.2 remove", "WHERE a = $1 AND b BETWEEN 1 AND 2 OR c", "WHERE a = $1 AND (true OR (b BETWEEN 1 AND 2)) OR c"},
	{"a condition behind a table", "1 true", "JOIN held ON id = 1 AND job = $1 -- why AND how", "JOIN held ON (true OR (id = 1)) AND job = $1 -- why AND how"},
	{"a condition before a bracket", "false", "(SELECT 1\n@MARK\nWHERE a AND b) x", "(SELECT 1\n@MARK\nWHERE (false AND (a AND b))) x"},
	{"a condition of several lines", "true", "AND (a\n  OR b)\nAND c", "AND ((true OR (a\n  OR b)))\nAND c"},
	{"a subquery", "2.1 true", "WHERE a AND EXISTS (SELECT FROM relay WHERE epoch = $1)", "WHERE a AND EXISTS (SELECT FROM relay WHERE (true OR (epoch = $1)))"},
	{"a line that is removed", "remove", "AND a\n)", "\n)"},
	{"an element that is removed", "remove", "a = 1,\nb = 2", "\nb = 2"},
	{"the last element", "remove", "SET a = 1,\n@MARK\nb = 2\nWHERE c", "SET a = 1\nWHERE c"},
	{"an element in the line", "2 remove", "SET a = 1, b = f(x, y), c = 3", "SET a = 1, c = 3"},
	{"a statement", "remove", "SET row_security = off;\nSELECT 1;", "\nSELECT 1;"},
	{"the right side", "2 = 0", "SET a = CASE WHEN b THEN c END,", "SET a = 0,"},
	{"a case", "1 false", "SELECT CASE WHEN b THEN c END AS d,", "SELECT CASE WHEN (false AND (b)) THEN c END AS d,"},
	{"an argument", "= @1", "SELECT max(a, b) AS d", "SELECT a AS d"},
	{"an operator with @", "= @ AND false", "WHERE a @> b AND c", "WHERE (a @> b AND c) AND false"},
	{"a clause", "do FOR UPDATE", "FOR UPDATE SKIP LOCKED) first", "FOR UPDATE) first"},
	{"code that binds less than what is beside it", "2 = c OR d", "WHERE a AND b;", "WHERE a AND (c OR d);"},
	{"code with its own parts", "= @1 * 2", "SELECT max(a + b) AS d", "SELECT (a + b) * 2 AS d"},
	{"code and what it replaces", "= @ AND false", "WHERE a OR b;", "WHERE (a OR b) AND false;"},
	{"a subquery in code", "= count(@2.1)", "WHERE a AND EXISTS (SELECT b FROM c WHERE d = e)", "WHERE count(SELECT b FROM c WHERE d = e)"},
	{"a comment in brackets", "2 true", "WHERE a /* it's a AND b */ AND b", "WHERE a /* it's a AND b */ AND (true OR (b))"},
	{"a text with a backslash", "2 true", "WHERE a = E'it\\'s; a AND ' AND b", "WHERE a = E'it\\'s; a AND ' AND (true OR (b))"},
	{"plpgsql", "false", "IF a THEN\n    b;\nEND IF;", "IF (false AND (a)) THEN\n    b;\nEND IF;"},
}

// Each kind of edit changes code as it says. MARK is where the marker stands, if it does not stand
// at the beginning.
func TestEdits(t *testing.T) {
	t.Parallel()
	for _, tt := range goEdits {
		mark := "//guard:x " + tt.edit
		frame := func(text string) string {
			if !strings.Contains(text, "@MARK") {
				text = "@MARK\n" + text
			}
			return "package p\n\nfunc _() {\n" + strings.ReplaceAll(text, "@MARK", mark) + "\n}\n"
		}
		want := tt.want
		if got, err := changed(t, "p.go", frame(tt.old)); withoutSpace(got) != withoutSpace(frame(want)) {
			t.Errorf("%s: %s, %v; want %s", tt.what, got, err, frame(want))
		}
	}
	for _, tt := range sqlEdits {
		frame := func(text string) string {
			if !strings.Contains(text, "@MARK") && text == tt.old {
				text = "@MARK\n" + text
			}
			return strings.ReplaceAll(text, "@MARK", "--guard:x "+tt.edit)
		}
		got, err := changed(t, "p.sql", "-- A comment.\n"+frame(tt.old))
		bare := regexp.MustCompile(`(?m)^--.*\n`).ReplaceAllString
		if withoutSpace(bare(got, "")) != withoutSpace(bare(frame(tt.want), "")) {
			t.Errorf("%s: %s, %v; want %s", tt.what, got, err, tt.want)
		}
	}
}

// An edit that does not fit is refused.
func TestEditsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ file, text, want string }{
		{"p.go", "package p\n\nfunc f() {\n\t@//guard:x\n\tg()\n}\n", "want [PART] and true"},
		{"p.go", "package p\n\nfunc f() {\n\t@//guard:x =\n\tg()\n}\n", "want [PART] and true"},
		{"p.go", "package p\n\nfunc f() {\n\t@//guard:x true 1\n\tg()\n}\n", "want [PART] and true"},
		{"p.go", "package p\n\nfunc f() {\n\t@//guard:x 1 true\n\tg()\n}\n", "p.go:4: the edit of x does not fit the code below it: there is no part 1"},
		{"p.go", "package p\n\nfunc f() {\n\t@//guard:x = @2\n\tg(1)\n}\n", "no part 2"},
		{"p.go", "package p\n\nfunc f() {\n\t@//guard:x = )\n\tg(1)\n}\n", "p.go:4: the edit of x does not fit"},
		{"p.go", "package p\n\nfunc f() {\n\t@//guard:x 1,1.1 = 0\n\tg(h(1))\n}\n", "parts overlap"},
		{"p.go", "package p\n\nfunc f() {\n\t@//guard:x 1,1 = 0\n\tg(1)\n}\n", "parts overlap"},
		{"p.sql", "@--guard:x true\nWHERE a = $1 AND b = $2;\nSELECT $1", ""},
		{"p.sql", "@--guard:x = a IS NULL\nWHERE a = $1 AND b = $2;\nSELECT $2", "leaves out $1, so the server refuses the statement"},
		{"p.go", "package p\n\nfunc f() {\n\t@//guard:x do @\n\tg(1)\n}\n", "changes nothing"},
		{"p.go", "package p\n\nfunc f() {\n\tg(1)\n\t@//guard:x remove\n}\n", "no statement, case, element"},
		{"p.sql", "SELECT 1\n@--guard:x remove\n", "no code is on the line"},
		{"p.sql", "SELECT 1\n@--guard:x remove\n;\n", "no code that can be changed"},
	} {
		if got, err := changed(t, tt.file, marked(tt.text)); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %q, %v; want an error with %q", tt.text, got, err, tt.want)
		}
	}
}

// After a rename of all identifiers and after a reformat, a marker means the same code.
func TestMarkersOutliveRenamesAndReformats(t *testing.T) {
	t.Parallel()
	before := marked(`package p

func (w *window) close(first, second bool) (error) {
	@//guard:x 2 true
	if w.open && (first || second) { return w.wait(first, second) }
	return nil
}
`)
	want := marked(`package p

func (win *frame) end(one, other bool) error {
	@//guard:x 2 true
	if win.isOpen && (true || (one || other)) {
		return win.stop(one, other)
	}
	return nil
}
`)
	names := map[string]string{"w": "win", "window": "frame", "close": "end", "first": "one", "second": "other", "open": "isOpen", "wait": "stop"}
	renamed := regexp.MustCompile(`\w+`).ReplaceAllStringFunc(before, func(word string) string {
		if name, ok := names[word]; ok {
			return name
		}
		return word
	})
	formatted, err := format.Source([]byte(renamed))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{renamed, string(formatted)} {
		got, err := changed(t, "p.go", text)
		if err == nil {
			formatted, err = format.Source([]byte(got))
		}
		if err != nil || withoutSpace(strings.ReplaceAll(string(formatted), "(error)", "error")) != withoutSpace(want) {
			t.Errorf("%s, %v; want %s", formatted, err, want)
		}
	}

	for _, sql := range []string{"SELECT a FROM t\n@--guard:x 2 true\nWHERE a = $1 AND b = $2;", "SELECT x\nFROM u\n    @--guard:x 2 true\n\n    -- why\n    where x=$1 and y=$2\n;"} {
		got, err := changed(t, "p.sql", marked(sql))
		if !regexp.MustCompile(`= ?\$1 (?i:and) \(true OR \(. ?= ?\$2\)\)`).MatchString(got) {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// A name in the CODE of a marker that its package does not have any more is found.
func TestStrangeNames(t *testing.T) {
	t.Parallel()
	e := entry{Name: "x", File: "edit.go", markers: []marker{{file: "edit.go", edit: edit{code: "all := parseEdit(@1); all = gone(nil, http.Gone, all.lost)"}}}}
	strange, err := e.strangeNames(".")
	if err != nil || strings.Join(strange, " ") != "gone http lost" {
		t.Errorf("%q, %v", strange, err)
	}
	e = entry{Name: "x", File: "p.sql", markers: []marker{{file: "p.sql", edit: edit{code: "@1 = min(b, gone) + 'text' AND c IS NULL AND $1::lost"}}}}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "p.sql"), []byte("SELECT b AS c -- gone\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if strange, err = e.strangeNames(root); err != nil || strings.Join(strange, " ") != "gone lost" {
		t.Errorf("%q, %v", strange, err)
	}
}
