package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
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
