package main

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// marker is a comment that names a guard or a bug, and says how to change the code below it.
type marker struct {
	planted bool
	name    string // the second place of a guard has the name and /2
	file    string // from the root of the module
	line    int
	edit    edit
}

var (
	markerFormat = regexp.MustCompile(`^\s*(?://|--)(guard|planted):(\S*)(.*)$`)
	almostMarker = regexp.MustCompile(`^(?://|--)\s*(guard|planted):`)
)

func (m marker) String() string { return fmt.Sprintf("%s:%d", m.file, m.line) }

// findMarkers returns the markers of all Go and SQL files below a directory, by their names.
func findMarkers(root string, planted bool) (map[string]marker, error) {
	found := make(map[string]marker)
	var errs []error
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "testdata" || path != root && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".sql") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, c := range comments(path, string(text)) {
			m, err := parseMarker(c.text)
			if almostMarker.MatchString(c.text) && (m == nil || !c.alone) {
				m, err = &marker{}, errors.New("a marker stands on a line of its own, without a space before its first word")
			}
			if m == nil || m.planted != planted && err == nil {
				continue
			}
			m.file, m.line = filepath.ToSlash(file), c.line
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", m, err))
			}
			if other, ok := found[m.name]; ok && err == nil {
				errs = append(errs, fmt.Errorf("%s: the marker %s is at %s too: remove one, or if the guard has two places, name the second %s/2", m, m.name, other, m.name))
			}
			found[m.name] = *m
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for markers: %w", err)
	}
	return found, errors.Join(errs...)
}

// comment is a comment that ends with its line. It is alone if no code stands before it.
type comment struct {
	text  string
	line  int
	alone bool
}

// comments returns the comments of a Go or SQL file that may be markers. What looks like one, but
// stands in a text or in a comment of several lines, is none.
func comments(path, text string) (all []comment) {
	if !strings.Contains(text, "guard:") && !strings.Contains(text, "planted:") {
		return nil
	}
	add := func(from int, what string) {
		before := text[:from]
		all = append(all, comment{what, 1 + strings.Count(before, "\n"), strings.TrimSpace(before[strings.LastIndex(before, "\n")+1:]) == ""})
	}
	if strings.HasSuffix(path, ".sql") {
		for _, at := range sqlTokens.FindAllStringIndex(text, -1) {
			if what := text[at[0]:at[1]]; strings.HasPrefix(what, "--") {
				add(at[0], what)
			}
		}
		return all
	}
	goTokens(text, func(at int, tok token.Token, what string) {
		if tok == token.COMMENT && strings.HasPrefix(what, "//") {
			add(at, what)
		}
	})
	return all
}

// parseMarker returns the marker on a line, or nil if there is none.
func parseMarker(line string) (*marker, error) {
	words := markerFormat.FindStringSubmatch(line)
	if words == nil {
		return nil, nil
	}
	e, err := parseEdit(words[3])
	return &marker{planted: words[1] == "planted", name: words[2], edit: e}, err
}

// language returns the language of the marker's file.
func (m marker) language() language {
	if strings.HasSuffix(m.file, ".sql") {
		return inSQL
	}
	return inGo
}

// target returns the code below the marker, in the text of its file.
func (m marker) target(text string) (*node, error) {
	lang := m.language()
	lines := strings.Split(text, "\n")
	line := m.line // the number of the next line, and the index of the line after it
	for line < len(lines) && (strings.TrimSpace(lines[line]) == "" || strings.HasPrefix(strings.TrimSpace(lines[line]), lang.comment)) {
		line++
	}
	return lang.target(text, line+1)
}

// apply returns the text of the marker's file with the edit.
func (m marker) apply(text string) (changed string, err error) {
	target, err := m.target(text)
	if err == nil {
		changed, err = m.edit.apply(text, target, m.language())
	}
	if err == nil {
		err = m.language().check(text, changed)
	}
	if err != nil {
		return "", fmt.Errorf("%s: the edit of %s does not fit the code below it: %w: change the marker", m, m.name, err)
	}
	return changed, nil
}

var defined = regexp.MustCompile(`([\w, ]+?) *:=|(?:var|func) (\w+)`)

// strangeNames returns the names in the CODE of an entry's markers that no Go file of the package
// has, for instance because somebody renamed a variable and not the marker. For an SQL file, the
// names are those in the file and in the migrations. If a name were wrong there, the server would
// refuse the statement, and any test would notice that.
func (e entry) strangeNames(root string) (strange []string, err error) {
	code := ""
	for _, m := range e.markers {
		code += reference.ReplaceAllString(m.edit.code, "nil") + "\n"
	}
	if strings.TrimSpace(code) == "" {
		return nil, nil
	}
	if strings.HasSuffix(e.File, ".sql") {
		return e.strangeSQLNames(root, code)
	}
	names := make(map[string]bool)
	for _, words := range defined.FindAllStringSubmatch(code, -1) {
		identifiers(words[1]+" "+words[2], func(name string, _ bool) { names[name] = true })
	}
	files, err := filepath.Glob(filepath.Join(root, filepath.Dir(e.File), "*.go"))
	if err != nil {
		return nil, fmt.Errorf("find the package of %s: %w", e.File, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the package of %s: %w", e.File, err)
		}
		identifiers(string(text), func(name string, _ bool) { names[name] = true })
	}
	identifiers(code, func(name string, selected bool) {
		isElsewhere := selected && token.IsExported(name) || types.Universe.Lookup(name) != nil
		if !names[name] && !isElsewhere && !slices.Contains(strange, name) {
			strange = append(strange, name)
		}
	})
	return strange, nil
}

// strangeSQLNames is strangeNames for an SQL file. Calls are left out, because most functions are the
// server's own.
func (e entry) strangeSQLNames(root, code string) (strange []string, err error) {
	files, err := filepath.Glob(filepath.Join(root, "schema", "sql", "*.sql"))
	if err != nil {
		return nil, fmt.Errorf("find the migrations: %w", err)
	}
	tokens := readSQL(code).tokens
	for i, t := range tokens {
		word := code[t.from:t.to]
		isName := word != t.word && word != "nil" && word[0] != '\'' && word[0] != '$' && (i+1 == len(tokens) || tokens[i+1].word != "(")
		if isName && !slices.Contains(strange, word) {
			strange = append(strange, word)
		}
	}
	for _, file := range append([]string{filepath.Join(root, e.File)}, files...) {
		if len(strange) == 0 {
			break
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the names of %s: %w", e.Name, err)
		}
		for _, t := range readSQL(string(text)).tokens {
			strange = slices.DeleteFunc(strange, func(name string) bool { return strings.EqualFold(name, t.word) })
		}
	}
	return strange, nil
}

// identifiers calls a function for each identifier, and says whether it stands behind a dot.
func identifiers(text string, each func(name string, selected bool)) {
	before := token.ILLEGAL
	goTokens(text, func(_ int, tok token.Token, name string) {
		if tok == token.IDENT {
			each(name, before == token.PERIOD)
		}
		if tok != token.COMMENT {
			before = tok
		}
	})
}

// goTokens calls a function for each token and each comment of Go code.
func goTokens(text string, each func(at int, tok token.Token, text string)) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), func(token.Position, string) {}, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return
		}
		each(file.Offset(pos), tok, lit)
	}
}
