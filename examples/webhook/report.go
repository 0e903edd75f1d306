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
	running     error // with which the run ended
	interrupted bool  // before all was sent
	checks      []check

	requests, duplicates, refused, unavailable, again int64
}

func (d *demo) result(running error, checks []check, found findings) *result {
	return &result{
		findings: found, running: running, checks: checks,
		interrupted: d.provider.finished.Load() < int64(len(d.provider.deliveries)),
		requests:    d.provider.requests.Load(), again: d.provider.again.Load(),
		duplicates: d.endpoint.duplicates.Load(), refused: d.endpoint.unverified.Load(), unavailable: d.endpoint.unavailable.Load(),
	}
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

// verdict returns nil where the proof holds. A run that met nothing of what it is
// to survive proves nothing of it, and is no success.
func (r *result) verdict() error {
	faults := []error{r.running}
	for _, c := range r.checks {
		if c.Violations > 0 && !r.isOpen(c) {
			faults = append(faults, fmt.Errorf("the proof FAILED: %s: %d %s", c.Name, c.Violations, c.Violation))
		}
	}
	for _, met := range []struct {
		n    int64
		what string
	}{
		{r.Applied, "webhooks that took effect"},
		{r.duplicates, "duplicates"},
		{r.Conflicts, "changed bodies"},
		{r.refused, "forged or stale webhooks"},
		{r.unavailable, "answers of 503"},
		{r.OutOfOrder, "webhooks out of order"},
	} {
		if met.n == 0 && !r.interrupted && r.running == nil {
			faults = append(faults, verdict.NewUndecided("there were no %s, so nothing is proved of them", met.what))
		}
	}
	return errors.Join(faults...)
}

// write prints the proof, and under it the summary, for scripts.
func (r *result) write(out io.Writer) error {
	var b bytes.Buffer
	b.WriteString("\nThe proof, in SQL over the service's tables and the provider's books:\n\n")
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
	return fmt.Sprintf("webhook: payments=%d webhooks=%d requests=%d applied=%d duplicates=%d conflicts=%d refused=%d answered_503=%d sent_again=%d"+
		" out_of_order=%d kept_cents=%d lost=%d ghosts=%d double_effects=%d wrong=%d verdict=%s",
		r.Payments, r.Webhooks, r.requests, r.Applied, r.duplicates, r.Conflicts, r.refused, r.unavailable, r.again,
		r.OutOfOrder, r.Kept, r.violations("lost"), r.violations("ghost"), r.violations("double"), r.violations("wrong"), word)
}
