package eventview

import (
	"io"
	"strings"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/inspect"
)

// Tree prints the events of a business process, each event below its cause.
func Tree(out io.Writer, asJSON bool, tree *inspect.EventTree) error {
	if asJSON {
		return output.JSON(out, tree)
	}
	lines := [][]string{{"TYPE", "EVENT", "KEY", "SOURCE", "WRITTEN", "STATE"}}
	asked := false
	var add func(events []*inspect.TreeEvent, indent string)
	add = func(events []*inspect.TreeEvent, indent string) {
		for _, e := range events {
			mark := ""
			if e.Asked {
				asked, mark = true, " *"
			}
			line := []string{indent + output.Cell(e.Type, 40) + mark, output.Cell(e.EventID, 40), output.OrDash(output.Cell(e.Key, 30)), output.Cell(e.Source, 30)}
			if e.Missing {
				line = []string{indent + "?" + mark, output.Cell(e.EventID, 40), "-", "-", "-", "not found: its service's database was not searched, or retention removed it"}
			} else {
				line = append(line, e.LoggedAt.Format("2006-01-02T15:04:05.000Z"), State(&e.EventSummary))
			}
			lines = append(lines, line)
			add(e.Effects, indent+"  ")
		}
	}
	add(tree.Roots, "")
	if err := output.Table(out, lines); err != nil {
		return err
	}
	var notes []string
	if asked {
		notes = append(notes, "* marks what you asked for")
	}
	for _, note := range tree.Notes {
		notes = append(notes, "note: "+output.Flat(note))
	}
	if len(notes) == 0 {
		return nil
	}
	return output.Text(out, "\n"+strings.Join(notes, "\n")+"\n")
}
