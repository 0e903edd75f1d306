package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// write prints the results.
func write(out io.Writer, results []result, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(results); err != nil {
			return fmt.Errorf("print results: %w", err)
		}
		return nil
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nname\twithout it\tnoticed by\tseconds")
	for _, r := range results {
		by := strings.Join(r.By[:min(len(r.By), 3)], ", ")
		if n := len(r.By) - 3; n > 0 {
			by += fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\n", r.Name, r.Outcome, by, r.Seconds)
	}
	_ = w.Flush() // a strings.Builder never fails
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("print results: %w", err)
	}
	return nil
}

// verdict returns an error that names each entry with an outcome other than noticed.
func verdict(results []result) error {
	var errs []error
	for _, r := range results {
		if r.Outcome != noticed {
			errs = append(errs, fmt.Errorf("%s (%s, %s): %s\n    guard: %s\n    %s", r.Name, r.File, r.Source, r.Outcome, r.Guard, r.Why))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d are not noticed:\n%w", len(errs), len(results), errors.Join(errs...))
}

// page returns a document that says, for each list, how many of its guards the tests notice. A row
// is of a list that was tried whole. If a list was not tried now, its row stays as the former page
// has it, so that the lists can be tried one by one.
func page(ctx context.Context, former string, all []entry, results []result, began time.Time) string {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	tried := make(map[string][]result)
	for _, r := range results {
		tried[r.list()] = append(tried[r.list()], r)
	}
	guards := make(map[string]int)
	for _, e := range all {
		guards[e.list()]++
	}
	var text strings.Builder
	text.WriteString("# Guards\n\n`make mutants` removed each guard, one at a time, and ran the test that has to fail without it.\nThe command wrote this page: do not edit it.\n\n")
	text.WriteString("| list | guards | noticed | seconds for each | commit | day | with | not noticed |\n| --- | ---: | ---: | ---: | --- | --- | --- | --- |\n")
	for _, list := range slices.Sorted(maps.Keys(guards)) {
		of := tried[list]
		if len(of) < guards[list] {
			for line := range strings.Lines(former) {
				if strings.HasPrefix(line, "| "+list+" |") {
					text.WriteString(line)
				}
			}
			continue
		}
		var seconds float64
		var left []string
		for _, r := range of {
			seconds += r.Seconds
			if r.Outcome != noticed {
				left = append(left, fmt.Sprintf("%s (%s)", r.Name, strings.ToLower(string(r.Outcome))))
			}
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %.1f | %s | %s | %s, %d processors | %s |\n", list, len(of), len(of)-len(left), seconds/float64(len(of)),
			strings.TrimSpace(string(commit)), began.UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), strings.Join(left, ", "))
	}
	return text.String()
}

// list returns the name of the file that lists the entry.
func (e entry) list() string {
	name, _, _ := strings.Cut(e.Source, ":")
	return name
}
