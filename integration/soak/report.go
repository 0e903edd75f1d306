//go:build linux || darwin

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom/integration/soak/internal/figures"
)

const aboutReport = `# Soak

This page shows what Postroom does over minutes, while servers and relays are killed and stopped.
The command below wrote it: do not edit it. In the tables, ` + "`3.47 ms (most 25.95 ms, of 597)`" + ` means:
the mean of 597 measurements is 3.47 ms, and the largest is 25.95 ms.

`

// report has the results of all scenarios.
type report struct {
	machine machine
	options options
	results []*figures.Result
}

// markdown returns the report as a document.
func (r *report) markdown() string {
	var text strings.Builder
	text.WriteString("# Soak\n\n")
	text.WriteString(aboutReport)
	if r.options.short {
		text.WriteString("**A short run: bounds on time and size were not judged.**\n\n")
	}
	fmt.Fprintf(&text, "    %s\n\n", r.options.commandLine())
	text.WriteString(r.machine.markdown())
	text.WriteString("\n| scenario | took | verdict |\n| --- | --- | --- |\n")
	for _, s := range r.results {
		text.WriteString(s.Line())
	}
	for _, s := range r.results {
		text.WriteString(s.Section())
	}
	return text.String()
}

// commandLine returns the command that repeats the run.
func (o options) commandLine() string {
	var args []string
	if len(o.only) > 0 {
		args = append(args, "--only "+strings.Join(o.only, ","))
	}
	if o.short {
		args = append(args, "--short")
	}
	if o.openFor != 5*time.Minute {
		args = append(args, "--open-for "+o.openFor.String())
	}
	if o.bytes != 0 {
		args = append(args, fmt.Sprint("--retained-bytes ", o.bytes))
	}
	if o.report != "" {
		args = append(args, "--report "+o.report)
	}
	if len(args) == 0 {
		return "make soak"
	}
	return fmt.Sprintf("make soak ARGS=%q", strings.Join(args, " "))
}
