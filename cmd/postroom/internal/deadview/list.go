package deadview

import (
	"fmt"
	"io"
	"strconv"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/terminal"
)

// Groups prints dead events, grouped by cause.
func Groups(out io.Writer, found deadletter.GroupList, asJSON bool) error {
	if asJSON {
		if found.Groups == nil {
			found.Groups = []deadletter.Group{} // not null
		}
		return output.JSON(out, found)
	}
	if len(found.Groups) == 0 {
		return output.Line(out, "no dead events%s", among(found.More))
	}
	rows := [][]string{{"EVENTS", "HANDLER", "CLASS", "LAST", "FIRST", "CAUSE", "EXAMPLE", "ERROR"}}
	for _, g := range found.Groups {
		events := terminal.Grouped(g.Events)
		if g.More {
			events += "+"
		}
		rows = append(rows, []string{
			events, output.Cell(g.Handler, 40), output.Cell(g.Class, 20), output.Ago(g.LastDeadAt), output.Ago(g.FirstDeadAt), g.Cause, fmt.Sprint(g.ExampleID), output.Cell(g.Error, 80),
		})
	}
	if err := output.Table(out, rows); err != nil {
		return err
	}
	if rest := found.All - len(found.Groups); rest > 0 {
		if err := output.Line(out, "and %s more groups, which are smaller", terminal.Grouped(int64(rest))); err != nil {
			return err
		}
	}
	if found.More {
		return output.Line(out, "not all dead events were counted: select fewer events, for instance with --handler or --since")
	}
	return nil
}

// among returns the text after "no dead events". If the parameter more is true, the text says that
// the command has not examined all dead events.
func among(more bool) string {
	if more {
		return " among those that died last: select fewer events, for instance with --handler or --since"
	}
	return ""
}

// Letters prints a page of dead or discarded events.
func Letters(out io.Writer, letters []deadletter.Letter, next string, asJSON bool) error {
	if asJSON {
		if letters == nil {
			letters = []deadletter.Letter{} // not null
		}
		return output.JSON(out, struct {
			Events []deadletter.Letter `json:"events"`
			Next   string              `json:"next,omitempty"`
		}{letters, next})
	}
	switch {
	case len(letters) == 0 && next != "":
		return output.Line(out, "no event matches so far; continue with --after %s", next)
	case len(letters) == 0:
		return output.Line(out, "no event matches")
	}
	rows := [][]string{{"ID", "DIED", "HANDLER", "TYPE", "KEY", "CLASS", "ATTEMPTS", "ERROR"}}
	for _, l := range letters {
		died := l.DeadAt
		if !l.DiscardedAt.IsZero() {
			died, rows[0][1] = l.DiscardedAt, "DISCARDED"
		}
		rows = append(rows, []string{
			fmt.Sprint(l.ID), output.Ago(died), output.Cell(l.Handler, 40), output.Cell(l.Type, 40), output.Cell(l.Key, 30), output.Cell(l.Class, 20), strconv.Itoa(l.Attempts), output.Cell(l.Error, 80),
		})
	}
	return output.Page(out, rows, next)
}
