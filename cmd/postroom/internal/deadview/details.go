// Package deadview prints dead events, and groups of them, for a person or a script.
package deadview

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
)

// Details prints everything about one event for a person.
func Details(out io.Writer, w deadletter.Details) error {
	var b strings.Builder
	rows := [][]string{}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("id", fmt.Sprint(w.ID))
	add("state", stateText(w))
	add("handler", output.Cell(w.Handler, 128))
	add("event", output.Cell(w.EventID, 255)+" of "+output.Cell(w.Source, 255))
	add("type", output.Cell(w.Type, 255))
	if w.Subject != w.Type {
		add("subject", output.Cell(w.Subject, 255))
	}
	add("key", output.Cell(w.Key, 255))
	add("holds up", output.Cell(w.BlockedKey, 300))
	add("correlation", output.Cell(w.CorrelationID, 255))
	add("caused by", output.Cell(w.CausationID, 255))
	add("logged", since(w.LoggedAt))
	add("held", since(w.HeldAt))
	add("attempts", strconv.Itoa(w.Attempts))
	add("class", output.Cell(w.Class, 64))
	add("cause", w.Cause)
	if w.Revision > 0 {
		add("revision", strconv.Itoa(w.Revision))
	}
	if w.ReplayID != 0 {
		add("replay", fmt.Sprint(w.ReplayID))
	}
	add("trace", output.Cell(w.TraceParent, 128))
	add("content type", output.Cell(w.ContentType, 255))
	for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
		add("header "+output.Cell(name, 128), output.Cell(w.Headers[name], 200))
	}
	if err := output.Facts(&b, rows); err != nil {
		return err
	}
	writeFailures(&b, w.Failures)
	writeSteps(&b, w.Steps)
	for _, r := range w.Revisions {
		fmt.Fprintf(&b, "\nrevision %d, replaced by %s %s%s\n%s\n", r.Revision, output.Cell(r.Actor, 60), since(r.ReplacedAt), because(r.Reason), output.Document(r.Data))
	}
	if len(w.History) > 0 {
		b.WriteString("\nwhat was done\n")
		for _, e := range w.History {
			fmt.Fprintf(&b, "  %s  %s by %s%s%s\n", output.Stamp(e.At), e.Action, output.Cell(e.Actor, 60), outcomeText(e), because(e.Reason))
		}
	}
	if w.RawHeaders != nil {
		fmt.Fprintf(&b, "\nheaders as received\n%s\n", output.Document(w.RawHeaders))
	}
	fmt.Fprintf(&b, "\nbody, %d bytes\n%s\n", w.Size, output.Document(w.Data))
	return output.Text(out, b.String())
}

func writeFailures(b *strings.Builder, failures []deadletter.Failure) {
	for i, f := range failures {
		fmt.Fprintf(b, "\nfailure %d of %d, %s, %s\n  %s\n", i+1, len(failures), since(f.At), output.Cell(f.Class, 64), output.Lines(f.Text))
		if f.Stack != "" {
			fmt.Fprintf(b, "  %s\n", output.Lines(f.Stack))
		}
	}
}

func writeSteps(b *strings.Builder, steps []deadletter.Step) {
	if len(steps) == 0 {
		return
	}
	b.WriteString("\nsteps\n")
	for _, s := range steps {
		what := fmt.Sprintf("OPEN since %s: the outcome is unknown; ask the vendor, with the key", output.Stamp(s.StartedAt))
		if !s.DoneAt.IsZero() {
			what = "done " + output.Stamp(s.DoneAt)
		}
		fmt.Fprintf(b, "  %s  key %s  revision %d  %s\n", output.Cell(s.Name, 128), s.Key, s.Revision, what)
	}
}

func stateText(w deadletter.Details) string {
	switch {
	case !w.DiscardedAt.IsZero() && w.DeadAt.IsZero():
		return "cancelled " + since(w.DiscardedAt)
	case !w.DiscardedAt.IsZero():
		return "discarded " + since(w.DiscardedAt)
	case !w.DeadAt.IsZero():
		return "dead since " + since(w.DeadAt)
	case w.State == deadletter.Running:
		return "running at " + output.Cell(w.ClaimedBy, 100)
	case !w.NextAt.IsZero():
		return fmt.Sprintf("%s, due %s", w.State, output.Stamp(w.NextAt))
	}
	return string(w.State)
}

func outcomeText(e deadletter.AuditEntry) string {
	if e.Outcome == "" {
		return ""
	}
	return fmt.Sprintf(" in replay %d: %s", e.ReplayID, e.Outcome)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + output.Cell(reason, 200)
}

// since returns a text with the time t, and how long ago t was.
func since(t time.Time) string { return output.Stamp(t) + " (" + output.Ago(t) + ")" }
