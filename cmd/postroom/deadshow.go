package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/deadletter"
)

func newDeadShow(d *dead) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one held event, whole: body, headers, every failure, what was done",
		Long: `Show one held or discarded event, whole: its body and headers, every attempt that is
remembered with its error, the calls of an external handler, what it was before it
was edited, and what operators did with it.

It shows the body, which may be confidential.`,
		Example: `  postroom dead show 4711
  postroom dead show 4711 --json | jq -r .data | base64 -d`,
		Args:              oneID("an event, as 'postroom dead list' shows it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				id, _ := eventID(args[0]) // Args has seen it
				w, err := store.Get(cmd.Context(), id)
				if err != nil {
					return err
				}
				if d.asJSON {
					return printJSON(cmd.OutOrStdout(), w)
				}
				return printDetails(cmd.OutOrStdout(), w)
			})
		},
	}
	d.db.addURLFlag(cmd)
	addJSON(cmd, &d.asJSON)
	return cmd
}

// printDetails prints an event for a person.
func printDetails(out io.Writer, w deadletter.Details) error {
	var b strings.Builder
	rows := [][]string{}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("id", fmt.Sprint(w.ID))
	add("state", stateText(w))
	add("handler", cell(w.Handler, 128))
	add("event", cell(w.EventID, 255)+" of "+cell(w.Source, 255))
	add("type", cell(w.Type, 255))
	if w.Subject != w.Type {
		add("subject", cell(w.Subject, 255))
	}
	add("key", cell(w.Key, 255))
	add("holds up", cell(w.BlockedKey, 300))
	add("correlation", cell(w.CorrelationID, 255))
	add("caused by", cell(w.CausationID, 255))
	add("logged", since(w.LoggedAt))
	add("held", since(w.HeldAt))
	add("attempts", plain(w.Attempts))
	add("class", cell(w.Class, 64))
	add("cause", w.Cause)
	if w.Revision > 0 {
		add("revision", plain(w.Revision))
	}
	if w.ReplayID != 0 {
		add("replay", fmt.Sprint(w.ReplayID))
	}
	add("trace", cell(w.TraceParent, 128))
	add("content type", cell(w.ContentType, 255))
	for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
		add("header "+cell(name, 128), cell(w.Headers[name], 200))
	}
	if err := printFacts(&b, rows); err != nil {
		return err
	}
	for i, f := range w.Failures {
		fmt.Fprintf(&b, "\nfailure %d of %d, %s, %s\n  %s\n", i+1, len(w.Failures), since(f.At), cell(f.Class, 64), lines(f.Text))
		if f.Stack != "" {
			fmt.Fprintf(&b, "  %s\n", lines(f.Stack))
		}
	}
	writeSteps(&b, w.Steps)
	for _, r := range w.Revisions {
		fmt.Fprintf(&b, "\nrevision %d, until %s edited it %s%s\n%s\n", r.Revision, cell(r.Actor, 60), since(r.ReplacedAt), because(r.Reason), body(r.Data))
	}
	if len(w.History) > 0 {
		b.WriteString("\nwhat was done\n")
		for _, e := range w.History {
			fmt.Fprintf(&b, "  %s  %s by %s%s%s\n", stamp(e.At), e.Action, cell(e.Actor, 60), outcomeText(e), because(e.Reason))
		}
	}
	if w.RawHeaders != nil {
		fmt.Fprintf(&b, "\nheaders as they came\n%s\n", body(w.RawHeaders))
	}
	fmt.Fprintf(&b, "\nbody, %d bytes\n%s\n", w.Size, body(w.Data))
	return printText(out, b.String())
}

func writeSteps(b *strings.Builder, steps []deadletter.Step) {
	if len(steps) == 0 {
		return
	}
	b.WriteString("\nsteps\n")
	for _, s := range steps {
		what := fmt.Sprintf("OPEN since %s: its outcome is unknown; ask the vendor by the key", stamp(s.StartedAt))
		if s.DoneAt != nil {
			what = "done " + stamp(*s.DoneAt)
		}
		fmt.Fprintf(b, "  %s  key %s  revision %d  %s\n", cell(s.Name, 128), s.Key, s.Revision, what)
	}
}

func stateText(w deadletter.Details) string {
	switch {
	case w.DiscardedAt != nil:
		return "discarded " + since(*w.DiscardedAt)
	case w.DeadAt != nil:
		return "dead since " + since(*w.DeadAt)
	case w.State == deadletter.Running:
		return "running at " + cell(w.ClaimedBy, 100)
	case w.NextAt != nil:
		return fmt.Sprintf("%s, due %s", w.State, stamp(*w.NextAt))
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
	return ": " + cell(reason, 200)
}

// body is a body as a person reads it: indented JSON, text, or a dump of bytes.
func body(data []byte) string {
	var pretty bytes.Buffer
	switch {
	case len(data) == 0:
		return "  (empty)"
	case json.Indent(&pretty, data, "  ", "  ") == nil:
		return "  " + printable(pretty.String())
	case utf8.Valid(data):
		return "  " + lines(string(data))
	default:
		const most = 1024
		return strings.TrimRight(hex.Dump(data[:min(len(data), most)]), "\n")
	}
}

// lines are the lines of a text, indented.
func lines(s string) string {
	return strings.ReplaceAll(printable(strings.TrimRight(s, "\n")), "\n", "\n  ")
}

// since is a time, and how long ago it was.
func since(t time.Time) string { return stamp(t) + " (" + ago(t) + ")" }
