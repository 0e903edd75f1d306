package main

import (
	"errors"
	"fmt"
	"go/parser"
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

var markerFormat = regexp.MustCompile(`^\s*(?://|--)(guard|planted):(\S*)(.*)$`)

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
		for i, line := range strings.Split(string(text), "\n") {
			m, err := parseMarker(line)
			if m == nil || m.planted != planted && err == nil {
				continue
			}
			m.file, m.line = filepath.ToSlash(file), i+1
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", m, err))
			}
			if other, ok := found[m.name]; ok {
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

// parseMarker returns the marker on a line, or nil if there is none.
func parseMarker(line string) (*marker, error) {
	words := markerFormat.FindStringSubmatch(line)
	if words == nil {
		return nil, nil
	}
	e, err := parseEdit(words[3])
	return &marker{planted: words[1] == "planted", name: words[2], edit: e}, err
}

// apply returns the text of the marker's file with the edit.
func (m marker) apply(text string) (string, error) {
	comment, find, lang := "//", goTarget, inGo
	if strings.HasSuffix(m.file, ".sql") {
		comment, find, lang = "--", sqlTarget, inSQL
	}
	lines := strings.Split(text, "\n")
	line := m.line // the number of the next line, and the index of the line after it
	for line < len(lines) && (strings.TrimSpace(lines[line]) == "" || strings.HasPrefix(strings.TrimSpace(lines[line]), comment)) {
		line++
	}
	target, err := find(text, line+1)
	if err == nil {
		text, err = m.edit.apply(text, target, lang)
	}
	if err == nil && comment == "//" {
		_, err = parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	}
	if err != nil {
		return "", fmt.Errorf("%s: the edit of %s does not fit the code below it: %w: change the marker", m, m.name, err)
	}
	return text, nil
}

var defined = regexp.MustCompile(`([\w, ]+?) *:=|(?:var|func) (\w+)`)

// strangeNames returns the names in the CODE of an entry's Go markers that no file of the package
// has, for instance because somebody renamed a variable and not the marker.
func (e entry) strangeNames(root string) (strange []string, err error) {
	code := ""
	for _, m := range e.markers {
		code += reference.ReplaceAllString(m.edit.code, "true") + "\n"
	}
	if strings.TrimSpace(code) == "" || !strings.HasSuffix(e.File, ".go") {
		return nil, nil
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

// identifiers calls a function for each identifier, and says whether it stands behind a dot.
func identifiers(text string, each func(name string, selected bool)) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(text)), []byte(text), func(token.Position, string) {}, 0)
	before := token.ILLEGAL
	for {
		_, tok, name := s.Scan()
		switch tok {
		case token.EOF:
			return
		case token.IDENT:
			each(name, before == token.PERIOD)
		}
		before = tok
	}
}
