//go:build linux || darwin

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/integration/soak/internal/figures"
)

const aboutReport = `# Soak

This page shows what Postroom does over minutes, while servers and relays are killed and stopped.
The command below wrote it: do not edit it. If a run is of some scenarios only, the others stay as
they were, and the column *run* says from which run they are. In the tables,
` + "`3.47 ms (most 25.95 ms, of 597)`" + ` means: the mean of 597 measurements is 3.47 ms, and the largest
is 25.95 ms.

`

// report has the results of the scenarios of a run.
type report struct {
	machine machine
	options options
	results []*figures.Result
}

// markdown returns the report as a document. If the run was not of all scenarios, the document has
// the other scenarios as they are in the earlier report, which may be empty.
func (r *report) markdown(earlier string) string {
	var text, lines, sections strings.Builder
	for _, name := range names() {
		i := slices.IndexFunc(r.results, func(s *figures.Result) bool { return s.Name == name })
		if i < 0 {
			lines.WriteString(lineOf(earlier, name))
			sections.WriteString(sectionOf(earlier, name))
			continue
		}
		lines.WriteString(r.results[i].Line(r.machine.run()))
		sections.WriteString(r.results[i].Section())
	}
	text.WriteString(aboutReport)
	if r.options.short {
		text.WriteString("**A short run: bounds on time and size were not judged.**\n\n")
	}
	fmt.Fprintf(&text, "    %s\n\n", r.options.commandLine())
	text.WriteString(r.machine.markdown())
	text.WriteString("\n| scenario | run | took | verdict |\n| --- | --- | --- | --- |\n" + lines.String() + sections.String())
	return text.String()
}

// lineOf returns the line of a scenario in the table of an earlier report, or "".
func lineOf(earlier, name string) string {
	for line := range strings.Lines(earlier) {
		if strings.HasPrefix(line, "| ["+name+"](#") {
			return line
		}
	}
	return ""
}

// sectionOf returns the section of a scenario in an earlier report, or "".
func sectionOf(earlier, name string) string {
	_, section, found := strings.Cut(earlier, "\n## "+name+"\n")
	if !found {
		return ""
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return "\n## " + name + "\n" + strings.TrimRight(section, "\n") + "\n"
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
