package eventview

import (
	"fmt"
	"io"
	"strings"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/terminal"
)

// List prints a page of events. If the parameter wanted is not empty, the caller found the events
// by this value, and the text below the page names the command that lists the next page.
func List(out io.Writer, asJSON bool, page *inspect.EventPage, wanted string) error {
	if asJSON {
		return output.JSON(out, page)
	}
	if len(page.Events) > 0 {
		rows := [][]string{{"WRITTEN", "TYPE", "EVENT", "KEY", "SOURCE", "STATE"}}
		for n := range page.Events {
			e := &page.Events[n]
			rows = append(rows, []string{
				output.Stamp(e.LoggedAt), output.Cell(e.Type, 40), output.Cell(e.EventID, 40), output.OrDash(output.Cell(e.Key, 30)), output.Cell(e.Source, 30), State(e),
			})
		}
		if err := output.Table(out, rows); err != nil {
			return err
		}
	}
	next := "--after " + output.Flat(page.Next)
	if wanted != "" {
		next = "postroom events list --any " + output.Quoted(wanted) + " " + next
	}
	switch {
	case page.Stopped:
		return output.Line(out, "%s\ncontinue with %s\nor limit the search with --since and --until", stopped(page), next)
	case page.Next != "":
		return output.Line(out, "\nthere may be more: %s", next)
	case len(page.Events) == 0:
		return output.Line(out, "no event matches: none in this log, held or discarded (%s)", rows(page.Looked))
	}
	return nil
}

// stopped returns a text for a search that reached its limit in the midst of the log.
func stopped(page *inspect.EventPage) string {
	text := "no event matches so far"
	if len(page.Events) > 0 {
		text = "\nthere may be more"
	}
	text += fmt.Sprintf("; the search stopped: %s", rows(page.Looked))
	if !page.Reached.IsZero() {
		text += ", back to " + output.Stamp(page.Reached)
	}
	return text
}

func rows(n int) string {
	if n == 1 {
		return "1 row of the log was examined"
	}
	return terminal.Grouped(int64(n)) + " rows of the log were examined"
}

// State says whether an event is published, and in which state it is at each handler of the
// databases that the command read.
func State(e *inspect.EventSummary) string {
	var parts []string
	byState := make(map[held.State][]string)
	var states []held.State
	for _, h := range e.Handlers {
		if h.Handler == inspect.Outgoing {
			parts = append(parts, string(h.State)+" on its way to the broker")
			continue
		}
		if byState[h.State] == nil {
			states = append(states, h.State)
		}
		byState[h.State] = append(byState[h.State], output.Cell(h.Handler, 60))
	}
	if e.Published != "" && len(parts) == 0 {
		parts = append(parts, string(e.Published))
	}
	for _, state := range states {
		names := strings.Join(byState[state], ", ")
		switch state {
		case inspect.Done:
			parts = append(parts, "done by "+names)
		case held.Dead, held.Discarded:
			parts = append(parts, string(state)+" at "+names)
		default:
			parts = append(parts, fmt.Sprintf("held for %s (%s)", names, state))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, "; ")
}
