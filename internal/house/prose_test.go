package house

import (
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// widest is how many columns a line of the documentation may have. It does not apply to tables, code
// and headings.
const widest = 100

var listItem = regexp.MustCompile(`^ *(?:[-*]|\d+\.) +`)

// The lines of the documentation are wrapped. make wrap wraps them.
func TestDocumentationIsWrapped(t *testing.T) {
	t.Parallel()
	pages := maps.Clone(documentation(t))
	pages["CHANGELOG.md"] = readText(t, "CHANGELOG.md")
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		var wide []string
		for b := range blocks(pages[page]) {
			wide = append(wide, b.wide()...)
		}
		switch {
		case len(wide) == 0:
		case !update():
			t.Errorf("%s: %d lines have more than %d columns, make wrap wraps them; the first:\n%s", page, len(wide), widest, wide[0])
		default:
			if err := os.WriteFile(page, []byte(wrap(pages[page])), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// block is a paragraph or an item of a list, which are prose, or lines that are not prose.
type block struct {
	lines []string
	prose bool
}

// wide returns the lines of prose that are too wide and have a space at which they can be broken.
func (b block) wide() []string {
	if !b.prose {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.lines), func(line string) bool {
		return utf8.RuneCountInString(line) <= widest || len(unbroken(strings.TrimSpace(listItem.ReplaceAllString(line, "")))) < 2
	})
}

// blocks yields the parts of a page, in order. Together they have every line of the page.
func blocks(text string) iter.Seq[block] {
	return func(yield func(block) bool) {
		var current block
		end := func() bool {
			last := current
			current = block{}
			return len(last.lines) == 0 || yield(last)
		}
		fence, inList := false, false
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			trimmed := strings.TrimSpace(line)
			isProse := true
			switch {
			case strings.HasPrefix(trimmed, "```"):
				fence, isProse = !fence, false
			case fence, trimmed == "", strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "<"), strings.HasPrefix(trimmed, "#"):
				isProse = false
			case strings.HasPrefix(line, "    ") && !current.prose && !inList:
				isProse = false // code
			}
			item := isProse && listItem.MatchString(line)
			inList = item || inList && (trimmed == "" || strings.HasPrefix(line, " "))
			if (item || isProse != current.prose) && !end() {
				return
			}
			current.prose = isProse
			current.lines = append(current.lines, line)
		}
		end()
	}
}

// wrap wraps each block of prose that has a line that is too wide.
func wrap(text string) string {
	var page strings.Builder
	for b := range blocks(text) {
		if len(b.wide()) > 0 {
			b.lines = wrapped(b.lines)
		}
		for _, line := range b.lines {
			page.WriteString(line + "\n")
		}
	}
	return page.String()
}

// wrapped returns a paragraph in lines that are not too wide. No line begins with a character that
// would start a list, a heading or a table.
func wrapped(lines []string) []string {
	first := listItem.FindString(lines[0])
	if first == "" {
		first = lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " "))]
	}
	indent := strings.Repeat(" ", utf8.RuneCountInString(first))
	words := unbroken(strings.TrimPrefix(strings.Join(lines, " "), first))
	for i := len(words) - 1; i > 0; i-- { // a word that may not begin a line is joined to the word before it
		if listItem.MatchString(words[i]+" ") || strings.ContainsAny(words[i][:1], "#|<>+=") {
			words[i-1] += " " + words[i]
			words = slices.Delete(words, i, i+1)
		}
	}
	var out []string
	line, start := first, true
	for _, w := range words {
		switch {
		case start:
			line += w
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) <= widest:
			line += " " + w
		default:
			out = append(out, line)
			line = indent + w
		}
		start = false
	}
	return append(out, line)
}

// unbroken returns the words of a text. Text in backticks is one word.
func unbroken(text string) (words []string) {
	open := false
	for _, w := range strings.Fields(text) {
		if open {
			words[len(words)-1] += " " + w
		} else {
			words = append(words, w)
		}
		open = open != (strings.Count(w, "`")%2 == 1)
	}
	return words
}

// riddles are words that hide who or what acts.
var riddles = regexp.MustCompile(`(?i)\b(?:nobody|somebody|whoever|whatever|wherever|undriven|driven|drives?)\b`)

// The documentation names who acts.
func TestDocumentationNamesWhoActs(t *testing.T) {
	t.Parallel()
	for page, text := range documentation(t) {
		if m := riddles.FindString(text); m != "" && page != "CONTRIBUTING.md" { // CONTRIBUTING.md quotes some of these words
			t.Errorf("%s says %q: name who acts", page, m)
		}
	}
}

// formerWords are old words that the glossary has replaced.
var formerWords = regexp.MustCompile(`(?i)\b(?:rewind|rewinds|rewound|redo|redone|ledger rows?)\b`)

// withRiddles are directories whose comments are not checked for riddles: programs that are
// not used in production.
var withRiddles = []string{"integration"}

// Comments in code and SQL also name who acts.
func TestCommentsNameWhoActs(t *testing.T) {
	t.Parallel()
	comments := 0
	check := func(path, text string) {
		comments++
		if m := riddles.FindString(text); m != "" {
			t.Errorf("%s says %q: name who acts, in %s", path, m, strings.Join(strings.Fields(text), " "))
		}
		if m := formerWords.FindString(text); m != "" {
			t.Errorf("%s says %q: take the word of docs/reference/glossary.md, in %s", path, m, strings.Join(strings.Fields(text), " "))
		}
	}
	skipped := func(path string) bool {
		dir, _, _ := strings.Cut(path, "/")
		return slices.Contains(withRiddles, dir)
	}
	for _, f := range files(t, isCode) {
		for _, group := range f.syntax.Comments {
			if !skipped(f.path) {
				check(f.path, strings.ReplaceAll(group.Text(), "database/sql/driver", ""))
			}
		}
	}
	for _, f := range files(t, isSQL) {
		if skipped(f.path) {
			continue
		}
		if m := formerWords.Find(f.text); m != nil {
			t.Errorf("%s says %q: take the word of docs/reference/glossary.md", f.path, m)
		}
		for line := range strings.Lines(string(f.text)) {
			if _, comment, found := strings.Cut(line, "--"); found {
				check(f.path, comment)
			}
		}
	}
	if comments < 5000 {
		t.Errorf("%d comments were found: the test looks for them in the wrong way", comments)
	}
}
