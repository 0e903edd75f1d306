package postroom_test

import (
	"go/ast"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Limits for the pages of the documentation. Tables, code and generated text do not count as prose.
const (
	widest        = 100  // columns of a line
	longSentence  = 35   // words: a sentence with more is long
	longShare     = 0.03 // of all sentences may be long
	longestPage   = 1200 // words; reference pages may have more
	leastIfOrWhen = 9.0  // of 1,000 words
)

// prose is the text of a page outside of tables and code.
type prose struct {
	words, ifOrWhen int
	sentences       []string
	wide            []string // lines that could be wrapped and are wider than widest
}

func (p *prose) long() (long []string) {
	for _, s := range p.sentences {
		if len(strings.Fields(s)) > longSentence {
			long = append(long, s)
		}
	}
	return long
}

var (
	codeSpan     = regexp.MustCompile("`[^`]*`")
	linkTarget   = regexp.MustCompile(`\]\([^)]*\)`)
	listItem     = regexp.MustCompile(`^ *(?:[-*]|\d+\.) +`)
	endOfClause  = regexp.MustCompile("[.!?][)\"*_`]*(?: +|$)")
	ifOrWhenWord = regexp.MustCompile(`(?i)\b(?:if|when)\b`)
	word         = regexp.MustCompile(`[\pL\pN]`)
)

// readProse reads the prose of a page.
func readProse(text string) *prose {
	p := new(prose)
	for b := range blocks(text) {
		if !b.prose {
			continue
		}
		for _, line := range b.lines {
			if isWide(line) {
				p.wide = append(p.wide, line)
			}
		}
		p.add(strings.Join(strings.Fields(listItem.ReplaceAllString(strings.Join(b.lines, " "), "")), " "))
	}
	return p
}

// isWide reports whether a line is too wide and has a space at which it can be broken.
func isWide(line string) bool {
	return utf8.RuneCountInString(line) > widest && len(unbroken(strings.TrimSpace(listItem.ReplaceAllString(line, "")))) > 1
}

// block is a paragraph or an item of a list, which are prose, or lines that are not prose.
type block struct {
	lines []string
	prose bool
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
		fence, written, inList := false, false, false
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			trimmed := strings.TrimSpace(line)
			isProse := true
			switch {
			case strings.HasPrefix(trimmed, "```"):
				fence, isProse = !fence, false
			case strings.Contains(line, "make api writes this -->"), strings.HasPrefix(line, "<!-- end of "):
				written, isProse = !written, false
			case fence, written, trimmed == "", strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "<"), strings.HasPrefix(trimmed, "#"):
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
		if b.prose && slices.ContainsFunc(b.lines, isWide) {
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

// add adds a paragraph.
func (p *prose) add(text string) {
	text = linkTarget.ReplaceAllString(codeSpan.ReplaceAllString(text, "code"), "]")
	for text != "" {
		sentence := text
		if at := endOfClause.FindStringIndex(text); at != nil {
			sentence = text[:at[1]]
		}
		text = text[len(sentence):]
		var words []string
		for _, w := range strings.Fields(sentence) {
			if word.MatchString(w) {
				words = append(words, w)
			}
		}
		if len(words) > 0 {
			p.sentences = append(p.sentences, strings.Join(words, " "))
		}
		p.words += len(words)
		p.ifOrWhen += len(ifOrWhenWord.FindAllString(sentence, -1))
	}
}

// riddles are words that hide who or what acts.
var riddles = regexp.MustCompile(`(?i)\b(?:nobody|somebody|whoever|whatever|wherever|undriven|driven|drives?)\b`)

// The documentation is easy to read: sentences, lines and pages are short, and sentences say "if"
// and "when".
func TestProseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	pages := documentation(t)
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	pages["CHANGELOG.md"] = string(changelog)
	var words, sentences, long, ifOrWhen int
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		p := readProse(pages[page])
		checkWidth(t, page, pages[page], p)
		if page == "CHANGELOG.md" {
			continue // old entries are not rewritten
		}
		if m := riddles.FindString(pages[page]); m != "" && page != "CONTRIBUTING.md" { // CONTRIBUTING.md quotes some of these words
			t.Errorf("%s says %q: name who acts", page, m)
		}
		words, sentences, ifOrWhen = words+p.words, sentences+len(p.sentences), ifOrWhen+p.ifOrWhen
		long += len(p.long())
		if testing.Verbose() {
			t.Logf("%-60s %5d words, %3d sentences, %2d long, %2d if or when, %d wide lines", page, p.words, len(p.sentences), len(p.long()), p.ifOrWhen, len(p.wide))
		}
		for _, s := range p.long() {
			if !testing.Verbose() {
				break
			}
			t.Logf("    %d words: %s", len(strings.Fields(s)), s)
		}
		if p.words > longestPage && !strings.HasPrefix(page, "docs/reference/") && page != "CONTRIBUTING.md" {
			t.Errorf("%s has %d words, more than %d: make two pages of it, or a reference page", page, p.words, longestPage)
		}
	}
	if share := float64(long) / float64(sentences); share > longShare {
		t.Errorf("%d of %d sentences have more than %d words, %.1f %%, want %.0f %% at the most: go test -v lists them", long, sentences, longSentence, 100*share, 100*longShare)
	}
	if rate := 1000 * float64(ifOrWhen) / float64(words); rate < leastIfOrWhen {
		t.Errorf("if and when: %.1f of 1,000 words, want %.0f at least: write them in place of where, whoever, what is …", rate, leastIfOrWhen)
	}
	t.Logf("%d words, %d sentences, %d long, %d if or when", words, sentences, long, ifOrWhen)
}

// checkWidth fails, or wraps the page, if a line of its prose is too wide.
func checkWidth(t *testing.T, page, text string, p *prose) {
	t.Helper()
	switch {
	case len(p.wide) == 0:
	case !update():
		t.Errorf("%s: %d lines are wider than %d columns, make wrap wraps them; the first:\n%s", page, len(p.wide), widest, p.wide[0])
	default:
		if err := os.WriteFile(page, []byte(wrap(text)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// formerWords are old words that the glossary has replaced.
var formerWords = regexp.MustCompile(`(?i)\b(?:rewind|rewinds|rewound|redo|redone|ledger rows?)\b`)

// withRiddles are directories whose comments are not checked for riddles: programs that are
// not used in production.
var withRiddles = []string{"bench", "integration"}

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
		dir, _, _ := strings.Cut(filepath.ToSlash(path), "/")
		return slices.Contains(withRiddles, dir)
	}
	eachFile(t, func(_, path string, _ []byte, file *ast.File) {
		for _, group := range file.Comments {
			if !skipped(path) {
				check(path, strings.ReplaceAll(group.Text(), "database/sql/driver", ""))
			}
		}
	})
	walkFiles(t, ".sql", func(path string, text []byte) {
		if m := formerWords.FindString(string(text)); m != "" && !skipped(path) {
			t.Errorf("%s says %q: take the word of docs/reference/glossary.md", path, m)
		}
		for line := range strings.Lines(string(text)) {
			if _, comment, found := strings.Cut(line, "--"); found && !skipped(path) {
				check(path, comment)
			}
		}
	})
	if comments < 5000 {
		t.Errorf("%d comments were found: the test looks for them in the wrong way", comments)
	}
}
