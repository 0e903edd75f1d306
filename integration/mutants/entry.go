package main

import (
	"errors"
	"fmt"
	"maps"
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

	// Package and Run say which test has to fail: a package from the root of the module, and a
	// regular expression as for go test -run. If chaos has to find the bug, Package is "chaos", and
	// Run is a seed, seconds and perhaps kinds of faults. If the model has to find the bug, Package
	// is "model", and Run is a regular expression.
	Package string `json:"package"`
	Run     string `json:"run"`

	Source  string   `json:"-"` // the list and the line that have the entry
	markers []marker // the places that the entry changes, in the order of the file
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
	found, err := findMarkers(root, planted)
	errs = append(errs, err, place(all, found, planted))
	return all, errors.Join(errs...)
}

// place gives each entry its markers.
func place(all []entry, found map[string]marker, planted bool) error {
	word := "guard"
	if planted {
		word = "planted"
	}
	var errs []error
	for i := range all {
		e := &all[i]
		for n, name := 1, e.Name; ; n++ {
			if n > 1 {
				name = fmt.Sprintf("%s/%d", e.Name, n)
			}
			m, ok := found[name]
			if !ok {
				break
			}
			delete(found, name)
			e.File = m.file
			e.markers = append(e.markers, m)
		}
		slices.SortFunc(e.markers, func(a, b marker) int { return a.line - b.line })
		switch {
		case len(e.markers) == 0:
			errs = append(errs, fmt.Errorf("%s: no Go or SQL file has the marker of %s: write //%s:%s and an edit above the code, in SQL --%s:%s", e.Source, e.Name, word, e.Name, word, e.Name))
		case slices.ContainsFunc(e.markers, func(m marker) bool { return m.file != e.File }):
			errs = append(errs, fmt.Errorf("%s: the markers of %s are in two files, want one", e.Source, e.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		errs = append(errs, fmt.Errorf("%s: no list has an entry for the marker %s: add one to integration/mutants, or remove the marker", found[name], name))
	}
	return errors.Join(errs...)
}

// parse reads a list: blocks with blank lines between them. A line that begins with # is a comment.
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
	said := make(map[string]string)
	for _, line := range lines {
		key, value, ok := strings.Cut(line, ":")
		if _, twice := said[key]; !ok || twice || !slices.Contains([]string{"name", "guard", "test"}, key) {
			return e, fmt.Errorf("want one each of name, guard and test, and not %q", line)
		}
		said[key] = strings.TrimSpace(value)
	}
	e.Name, e.Guard = said["name"], said["guard"]
	test := said["test"]
	e.Package, e.Run, _ = strings.Cut(test, " ")
	e.Package, e.Run = strings.TrimPrefix(e.Package, "./"), strings.TrimSpace(e.Run)
	if e.Package != chaos { // Run may be written as on a command line: -run 'TestX'
		e.Run = strings.Trim(strings.TrimSpace(strings.TrimPrefix(e.Run, "-run ")), `'"`)
	}
	return e, e.validate()
}

var nameFormat = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func (e entry) validate() error {
	var errs []error
	fault := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(!nameFormat.MatchString(e.Name), "the name is %q, want lower-case words with hyphens between them", e.Name)
	fault(e.Guard == "", "guard says nothing")
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

// apply returns the text of the entry's file with the change.
func (e entry) apply(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File)))
	if err != nil {
		return "", fmt.Errorf("%s (%s): %w", e.Name, e.Source, err)
	}
	changed := string(text)
	for _, m := range slices.Backward(e.markers) { // the last first, so that the lines of the others stay
		if changed, err = m.apply(changed); err != nil {
			return "", err
		}
	}
	return changed, nil
}

// show returns the lines that the entry changes, as a diff has them.
func (e entry) show(root string) (string, error) {
	changed, err := e.apply(root)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", e.Name, err)
	}
	was, is := strings.Split(string(text), "\n"), strings.Split(changed, "\n")
	first := 0
	for first < min(len(was), len(is)) && was[first] == is[first] {
		first++
	}
	last := 0
	for last < min(len(was), len(is))-first && was[len(was)-1-last] == is[len(is)-1-last] {
		last++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n%s:%d\n", e.Name, e.Guard, e.File, first+1)
	for _, line := range was[first : len(was)-last] {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range is[first : len(is)-last] {
		b.WriteString("+ " + line + "\n")
	}
	return b.String(), nil
}
