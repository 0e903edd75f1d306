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

// page returns a document that says how many guards each package's tests notice, and which they do
// not notice.
func page(ctx context.Context, results []result, began time.Time) string {
	const total = "total"
	type sum struct {
		tried, noticed int
		seconds        float64
	}
	sums := make(map[string]*sum)
	for _, r := range results {
		for _, name := range []string{r.testPackage(), total} {
			if sums[name] == nil {
				sums[name] = new(sum)
			}
			s := sums[name]
			s.tried, s.seconds = s.tried+1, s.seconds+r.Seconds
			if r.Outcome == noticed {
				s.noticed++
			}
		}
	}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# Guards\n\n`make mutants` removed each guard, one at a time, and ran the test that has to fail without it.\nThe command wrote this page: do not edit it.\n\n")
	fmt.Fprintf(&text, "Began %s at commit %s, took %s, %d processors, %s.\n\n", began.UTC().Format("2006-01-02 15:04 UTC"), strings.TrimSpace(string(commit)), time.Since(began).Round(time.Second), runtime.NumCPU(), runtime.Version())
	text.WriteString("| package of the test | guards | noticed | seconds for each |\n| --- | ---: | ---: | ---: |\n")
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(sums)), func(name string) bool { return name == total })
	for _, name := range append(names, total) {
		fmt.Fprintf(&text, "| %s | %d | %d | %.1f |\n", name, sums[name].tried, sums[name].noticed, sums[name].seconds/float64(sums[name].tried))
	}
	for _, r := range results {
		if r.Outcome != noticed {
			fmt.Fprintf(&text, "\n%s (%s): %s. %s\n", r.Name, r.File, r.Outcome, r.Guard)
		}
	}
	return text.String()
}
