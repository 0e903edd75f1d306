package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// entry is a guard that is removed, or a bug that is planted.
type entry struct {
	Name  string `json:"name"`
	Guard string `json:"guard"` // the purpose of the guard, in a sentence
	File  string `json:"file"`  // from the root of the module
	Old   string `json:"-"`     // whole lines of the file, without the last line's end
	New   string `json:"-"`     // the lines that replace them; may be empty

	// Package and Run say which test has to fail: a package from the root of the module, and a
	// regular expression as for go test -run. If chaos has to find the bug, Package is "chaos", and
	// Run is a seed, seconds and perhaps kinds of faults. If the model has to find the bug, Package
	// is "model", and Run is a regular expression.
	Package string `json:"package"`
	Run     string `json:"run"`

	Source string `json:"-"` // the list and the line that have the entry
}

// The programs that can find a planted bug, besides tests.
const (
	chaos = "chaos"
	model = "model"
)

// readAll reads the files of guards, or the file of planted bugs.
func readAll(root string, planted bool) ([]entry, error) {
	files, err := filepath.Glob(filepath.Join(root, "integration", "mutants", "*.txt"))
	if err != nil {
		return nil, fmt.Errorf("find the lists: %w", err)
	}
	var all []entry
	var errs []error
	seen := make(map[string]string)
	for _, file := range files {
		if (filepath.Base(file) == plantedFile) != planted {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a list: %w", err)
		}
		entries, err := parse(filepath.Base(file), string(text))
		errs = append(errs, err)
		for _, e := range entries {
			if other, ok := seen[e.Name]; ok {
				errs = append(errs, fmt.Errorf("%s: the name %q is that of %s already", e.Source, e.Name, other))
			}
			seen[e.Name] = e.Source
			all = append(all, e)
		}
	}
	if len(all) == 0 && errors.Join(errs...) == nil {
		return nil, errors.New("the lists are empty")
	}
	return all, errors.Join(errs...)
}

// indent begins each line of the parts old and new.
const indent = "    "

// parse reads a list: blocks with blank lines between them. A line that begins with # outside of
// the parts old and new is a comment.
func parse(file, text string) (all []entry, err error) {
	var errs []error
	var block []string
	first := 0
	flush := func() {
		if len(block) > 0 {
			e, err := parseBlock(block)
			e.Source = fmt.Sprintf("%s:%d", file, first)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", e.Source, err))
			} else {
				all = append(all, e)
			}
		}
		block = nil
	}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case line == "":
			flush()
		case strings.HasPrefix(line, "#"):
		default:
			if len(block) == 0 {
				first = i + 1
			}
			block = append(block, line)
		}
	}
	flush()
	return all, errors.Join(errs...)
}

func parseBlock(lines []string) (e entry, err error) {
	var old, replacement []string
	var into *[]string // where indented lines go
	var test string
	said := make(map[string]bool)
	for _, line := range lines {
		if text, ok := strings.CutPrefix(line, indent); ok {
			if into == nil {
				return e, fmt.Errorf("an indented line that belongs to neither old nor new: %q", line)
			}
			*into = append(*into, text)
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || said[key] {
			return e, fmt.Errorf("want one each of name, guard, file, old, new and test, and not %q", line)
		}
		said[key], into = true, nil
		switch key {
		case "name":
			e.Name = value
		case "guard":
			e.Guard = value
		case "file":
			e.File = value
		case "test":
			test = value
		case "old":
			into = &old
		case "new":
			into = &replacement
		default:
			return e, fmt.Errorf("want one each of name, guard, file, old, new and test, and not %q", line)
		}
		if into != nil && value != "" {
			return e, fmt.Errorf("the text of %s begins on the next line, indented by four spaces", key)
		}
	}
	e.Old, e.New = strings.Join(old, "\n"), strings.Join(replacement, "\n")
	e.Package, e.Run, _ = strings.Cut(test, " ")
	e.Package, e.Run = strings.TrimPrefix(e.Package, "./"), strings.TrimSpace(e.Run)
	if e.Package != chaos { // Run may be written as on a command line: -run 'TestX'
		e.Run = strings.Trim(strings.TrimSpace(strings.TrimPrefix(e.Run, "-run ")), `'"`)
	}
	return e, e.validate(said["new"])
}

var nameFormat = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func (e entry) validate(saysNew bool) error {
	var errs []error
	fault := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(!nameFormat.MatchString(e.Name), "the name is %q, want lower-case words with hyphens between them", e.Name)
	fault(e.Guard == "", "guard says nothing")
	fault(e.File == "" || !filepath.IsLocal(e.File), "the file is %q, want a path from the root of the module", e.File)
	fault(strings.TrimSpace(e.Old) == "", "old is empty")
	fault(!saysNew, "there is no line new:, which may have nothing under it")
	fault(e.Old == e.New, "old and new are the same")
	fault(e.Package == "" || e.Run == "", "test is %q, want a package and a regular expression", strings.TrimSpace(e.Package+" "+e.Run))
	if e.Package == chaos {
		_, _, _, err := e.chaosRun()
		fault(err != nil, "%v", err)
	} else {
		_, err := regexp.Compile(e.Run)
		fault(err != nil, "test: %v", err)
	}
	return errors.Join(errs...)
}

// chaosRun returns the seed, the seconds and the faults of an entry for chaos. If the entry names
// no faults, chaos injects all kinds.
func (e entry) chaosRun() (seed uint64, seconds int, faults string, err error) {
	fields := strings.Fields(e.Run)
	if len(fields) < 2 {
		return 0, 0, "", fmt.Errorf("test is %q, want chaos SEED SECONDS", e.Package+" "+e.Run)
	}
	seed, seedErr := strconv.ParseUint(fields[0], 10, 64)
	seconds, secondsErr := strconv.Atoi(fields[1])
	if err := errors.Join(seedErr, secondsErr); err != nil {
		return 0, 0, "", fmt.Errorf("test is %q, want chaos SEED SECONDS: %w", e.Package+" "+e.Run, err)
	}
	return seed, seconds, strings.Join(fields[2:], " "), nil
}

// errRotten says that an entry does not fit the code any more.
var errRotten = errors.New("the list does not fit the code")

// apply returns the text of the entry's file with the change. The file must have the old lines
// exactly once; otherwise it is unclear which lines the entry removes. apply does not compare
// comments, so that they can be reworded.
func (e entry) apply(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File)))
	if err != nil {
		return "", fmt.Errorf("%s (%s): %w: %w", e.Name, e.Source, errRotten, err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	old := e.code(strings.Split(e.Old, "\n"))
	at, n := -1, 0
	for i, all := 0, e.code(lines); i+len(old) <= len(all); i++ {
		if slices.Equal(all[i:i+len(old)], old) {
			at, n = i, n+1
		}
	}
	if n != 1 {
		return "", fmt.Errorf("%s (%s): %w: the old lines are %d times in %s, want once", e.Name, e.Source, errRotten, n, e.File)
	}
	var replacement []string
	if e.New != "" {
		replacement = strings.Split(e.New, "\n")
	}
	return strings.Join(slices.Replace(lines, at, at+len(old), replacement...), "\n") + "\n", nil
}

// code returns lines of the entry's file without their comments. If a line is only a comment, it
// keeps the mark with which the comment begins. A line of code with a quote after the mark stays
// whole, because the mark may be part of a string.
func (e entry) code(lines []string) []string {
	begins := "//"
	if strings.HasSuffix(e.File, ".sql") {
		begins = "--"
	}
	bare := slices.Clone(lines)
	for i, line := range lines {
		switch before, comment, found := strings.Cut(line, begins+" "); {
		case !found:
		case strings.TrimSpace(before) == "":
			bare[i] = before + begins
		case strings.HasSuffix(before, " ") && !strings.ContainsAny(comment, "\"`"):
			bare[i] = strings.TrimRight(before, " ")
		}
	}
	return bare
}
