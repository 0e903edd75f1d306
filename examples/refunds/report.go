package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/postroom/postroom/examples/internal/narrate"
	"github.com/postroom/postroom/internal/verdict"
)

// result is what the program prints.
type result struct {
	findings
	checks  []check
	running error // with which the run ended

	keys, requests, replayed, inProgress, mismatches, crashes int64
}

// violations adds up the violations of one sort.
func (r *result) violations(sort string) int64 {
	var n int64
	for _, c := range r.checks {
		if c.Violation == sort && !r.isOpen(c) {
			n += c.Violations
		}
	}
	return n
}

// isOpen reports whether a check says nothing yet: the time ran out before the run was
// complete. What is there twice, or was made up, is so in any case.
func (r *result) isOpen(c check) bool {
	return verdict.IsUndecided(r.running) && c.Violation != "double" && c.Violation != "ghost"
}

// verdict returns nil where the proof holds. A run that met nothing of what it is to
// survive proves nothing of it, and is no success.
func (r *result) verdict() error {
	faults := []error{r.running}
	for _, c := range r.checks {
		if c.Violations > 0 && !r.isOpen(c) {
			faults = append(faults, fmt.Errorf("the proof FAILED: %s: %d %s", c.Name, c.Violations, c.Violation))
		}
	}
	if r.running != nil {
		return errors.Join(faults...)
	}
	for _, met := range []struct {
		n    int64
		what string
	}{
		{r.Charges, "charges"},
		{r.Refunds, "refunds"},
		{r.replayed, "replays"},
		{r.inProgress, "twins in progress"},
		{r.mismatches, "changed requests"},
		{r.crashes, "crashes"},
		{r.Calls - r.Effects, "repeated calls of the provider"},
	} {
		if met.n == 0 {
			faults = append(faults, verdict.NewUndecided("there were no %s, so nothing is proved of them", met.what))
		}
	}
	return errors.Join(faults...)
}

// write prints the proof, and under it the summary, for scripts.
func (r *result) write(out io.Writer) error {
	var b bytes.Buffer
	b.WriteString("\nThe proof, in SQL over the service's tables, what clients were told, and the provider's books:\n\n")
	for _, c := range r.checks {
		switch {
		case c.Violations == 0:
			fmt.Fprintf(&b, "  ok      %s\n", c.Name)
		case r.isOpen(c):
			fmt.Fprintf(&b, "  open    %s: %s to go\n", c.Name, narrate.Grouped(c.Violations))
		default:
			fmt.Fprintf(&b, "  FAILED  %s: %s %s\n", c.Name, narrate.Grouped(c.Violations), c.Violation)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.summary())
	if _, err := out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// summary is the last line of the output.
func (r *result) summary() string {
	word := verdict.Of(r.verdict())
	return fmt.Sprintf("refunds: keys=%d requests=%d replayed=%d in_progress=%d mismatches=%d crashes=%d charges=%d refunds=%d entries=%d events=%d"+
		" provider_calls=%d provider_effects=%d balance_cents=%d lost=%d ghosts=%d double_effects=%d wrong=%d verdict=%s",
		r.keys, r.requests, r.replayed, r.inProgress, r.mismatches, r.crashes, r.Charges, r.Refunds, r.Entries, r.Events,
		r.Calls, r.Effects, r.Cents, r.violations("lost"), r.violations("ghost"), r.violations("double"), r.violations("wrong"), word)
}
