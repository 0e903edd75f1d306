package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/postroom/postroom/examples/internal/narrate"
	"github.com/postroom/postroom/internal/verdict"
)

// result is what the program prints.
type result struct {
	findings
	checks        []check
	scenes        []scene
	running       error // with which the run ended
	interrupted   bool  // before all orders were placed
	killed, kills int   // services, and how many were to be
	repeated      int64 // deliveries beyond the first of each event to each handler
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

// verdict returns nil where the proof holds. A run in which no order ended in one of
// the ways, or no service died, proves nothing of it, and is no success.
func (r *result) verdict() error {
	faults := []error{r.running}
	for _, c := range r.checks {
		if c.Violations > 0 && !r.isOpen(c) {
			faults = append(faults, fmt.Errorf("the proof FAILED: %s: %d %s", c.Name, c.Violations, c.Violation))
		}
	}
	if r.interrupted || r.running != nil {
		return errors.Join(faults...)
	}
	for _, met := range []struct {
		n    int64
		what string
	}{
		{r.Confirmed, "orders confirmed"},
		{r.Declined, "payments declined"},
		{r.Short, "orders short of stock"},
		{r.Expired, "orders out of time"},
	} {
		if met.n == 0 {
			faults = append(faults, verdict.NewUndecided("there were no %s, so nothing is proved of them", met.what))
		}
	}
	if r.killed < r.kills {
		faults = append(faults, verdict.NewUndecided("%d services were killed, and not %d", r.killed, r.kills))
	}
	return errors.Join(faults...)
}

// write prints the story of an order, the proof, and under it the summary, for
// scripts.
func (r *result) write(out io.Writer) error {
	var b bytes.Buffer
	r.story(&b)
	b.WriteString("\nThe proof, in SQL over the tables of all services and the messages of their streams:\n\n")
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

func (r *result) story(b *bytes.Buffer) {
	b.WriteString("\nThe story of one order, from the tables of each service:\n\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, s := range r.scenes {
		fmt.Fprintf(w, "  %8.1f ms\t%s\t%s\t%s\n", s.Seconds*1000, s.Service, s.Table, s.What)
	}
	_ = w.Flush() // a bytes.Buffer takes all
}

// summary is the last line of the output.
func (r *result) summary() string {
	word := verdict.Of(r.verdict())
	return fmt.Sprintf("saga: orders=%d confirmed=%d cancelled=%d declined=%d out_of_stock=%d out_of_time=%d killed=%d events=%d redelivered=%d"+
		" charged_cents=%d refunded_cents=%d lost=%d ghosts=%d double_effects=%d wrong=%d verdict=%s",
		r.Orders, r.Confirmed, r.Cancelled, r.Declined, r.Short, r.Expired, r.killed, r.Events, r.repeated,
		r.Charged, r.Refunded, r.violations("lost"), r.violations("ghost"), r.violations("double"), r.violations("wrong"), word)
}
