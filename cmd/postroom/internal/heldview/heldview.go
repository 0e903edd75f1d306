// Package heldview prints held events, and what an operator did with them, for a person or a
// script.
package heldview

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/held"
	"github.com/postroom/postroom/inspect"
	"github.com/postroom/postroom/internal/terminal"
)

// List prints a page of held events.
func List(out io.Writer, asJSON bool, page *inspect.HeldPage) error {
	if asJSON {
		return output.JSON(out, page)
	}
	if len(page.Events) == 0 && page.Next == "" {
		return output.Line(out, "no such event is held")
	}
	rows := [][]string{{"ID", "HANDLER", "STATE", "DUE", "TYPE", "KEY", "EVENT", "ATTEMPTS", "LAST FAILURE"}}
	for _, h := range page.Events {
		due, failure := "-", "-"
		if !h.NextAt.IsZero() {
			due = output.Stamp(h.NextAt)
		}
		if h.Class != "" {
			failure = output.Cell(h.Class+": "+h.Error, 80)
		}
		rows = append(rows, []string{
			fmt.Sprint(h.ID), output.Cell(h.Handler, 40), string(h.State), due, output.Cell(h.Type, 40), output.OrDash(output.Cell(h.Key, 30)), output.Cell(h.EventID, 40), fmt.Sprint(h.Attempts), failure,
		})
	}
	if err := output.Table(out, rows); err != nil {
		return err
	}
	if page.Next != "" {
		return output.Line(out, "\nthere may be more: --after %s", page.Next)
	}
	return nil
}

// Set prints which events an action would be about.
func Set(out io.Writer, asJSON bool, set held.Set) error {
	if asJSON {
		return output.JSON(out, set)
	}
	return output.Line(out, "%s: %s", output.Plural(len(set.IDs), "event"), States(set.States))
}

// Result prints what an action did. verb is the action.
func Result(out io.Writer, asJSON bool, verb string, r held.Result) error {
	if asJSON {
		return output.JSON(out, r)
	}
	if err := output.Line(out, "%s: %s", verb, output.Plural(int(r.Events), "event")); err != nil || len(r.Unchanged) == 0 || r.Events == 0 {
		return err
	}
	return output.Line(out, "unchanged: %s", States(r.Unchanged))
}

// States says how many events are in which state.
func States(states map[held.State]int64) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, terminal.Grouped(states[state])+" "+string(state))
	}
	return strings.Join(parts, ", ")
}

// Advice says how many events an action left as they were, in which state they are, and what
// to do about it.
func Advice(states map[held.State]int64) string {
	advice := States(states)
	if states[held.Running] > 0 {
		advice += "; an event that runs, or is being published, cannot be stopped: look again when it has ended"
	}
	if states[held.Waiting] > 0 {
		advice += "; a waiting event follows when the earlier event of its key has ended: 'postroom keys' shows that one"
	}
	if states[held.Dead] > 0 {
		advice += "; use 'postroom dead replay' or 'postroom dead discard' for dead events"
	}
	return advice
}
