package republishcmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/operator"
)

// print prints a republish. It also says if some of the events were gone from the log.
func (w *order) print(cmd *cobra.Command, r operator.Republish) error {
	switch {
	case w.together != nil:
		*w.together = append(*w.together, r)
		return nil
	case w.JSON:
		return output.JSON(cmd.OutOrStdout(), r)
	}
	if err := output.Table(cmd.OutOrStdout(), rowsOf([]operator.Republish{r})); err != nil {
		return err
	}
	if left := r.Left(); r.State == operator.RepublishDone && left > 0 {
		if err := output.Line(cmd.OutOrStdout(), "%s could not be published: retention removed them from the log before their turn", output.Plural(int(left), "event")); err != nil {
			return err
		}
	}
	if r.Log != nil && r.Log.Gone {
		return output.Line(cmd.OutOrStdout(), "%s", goneLine(*r.Log))
	}
	return nil
}

func goneLine(reach operator.LogExtent) string {
	if reach.FirstSeq == 0 {
		return "the log is empty: earlier events were removed"
	}
	return fmt.Sprintf("the log begins at %s, seq %d: earlier events were removed", output.Stamp(reach.BeginsAt), reach.FirstSeq)
}

func (w *order) printPreview(cmd *cobra.Command, p operator.RepublishPreview) error {
	if w.JSON {
		return output.JSON(cmd.OutOrStdout(), p)
	}
	return output.Line(cmd.OutOrStdout(), "%s", strings.Join(w.previewLines(p), "\n"))
}

func (w *order) previewLines(p operator.RepublishPreview) []string {
	lines := []string{"no event matches"}
	if p.Events > 0 {
		lines[0] = fmt.Sprintf("%s, written from %s to %s, seq %d to %d; at %g a second in about %s",
			output.Plural(int(p.Events), "event"), output.Stamp(p.Earliest), output.Stamp(p.Latest), p.First, p.Last, w.request.Rate,
			output.Span(time.Duration(float64(p.Events)/w.request.Rate*float64(time.Second))+time.Second))
	}
	if p.Log.Gone {
		lines = append(lines, goneLine(p.Log))
	}
	if p.Running != nil {
		lines = append(lines, fmt.Sprintf("republish %d of the same request is running, with seq %d to %d: the command would not start another", p.Running.ID, p.Running.First, p.Running.Last))
	}
	return lines
}

func rowsOf(all []operator.Republish) [][]string {
	rows := [][]string{{"REPUBLISH", "STATE", "EVENTS", "PUBLISHED", "LEFT OUT", "HELD", "OPEN", "RATE", "MADE", "BY", "WHAT", "REASON"}}
	for _, r := range all {
		rows = append(rows, []string{
			fmt.Sprint(r.ID), string(r.State), fmt.Sprint(r.Events), fmt.Sprint(r.Published), fmt.Sprint(r.Skipped), fmt.Sprint(r.Held), fmt.Sprint(r.Left()),
			fmt.Sprintf("%g/s", r.Rate), output.Ago(r.CreatedAt), output.Cell(r.Actor, 30), output.Cell(description(r), 80), output.OrDash(output.Cell(r.Reason, 60)),
		})
	}
	return rows
}

// description describes the events of a republish.
func description(r operator.Republish) string {
	var parts []string
	if r.Kind != "range" {
		parts = append(parts, r.Kind)
	}
	if !r.Since.IsZero() {
		parts = append(parts, "since "+output.Stamp(r.Since))
	}
	if !r.Until.IsZero() {
		parts = append(parts, "until "+output.Stamp(r.Until))
	}
	if len(r.Types) > 0 {
		parts = append(parts, "type "+strings.Join(r.Types, " or "))
	}
	if len(r.Keys) > 0 {
		parts = append(parts, "key "+strings.Join(r.Keys, " or "))
	}
	if len(parts) == 0 {
		return "the whole log"
	}
	return strings.Join(parts, ", ")
}
