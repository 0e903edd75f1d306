// Package heldview prints held events, and the results of operators' actions on them, for a person
// or a script.
package heldview

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/terminal"
)

// List prints a page of held events.
func List(out io.Writer, asJSON bool, page *inspect.HeldPage) error {
	if asJSON {
		return output.JSON(out, page)
	}
	if len(page.Events) == 0 && page.Next == "" {
		return output.Line(out, "no held event matches")
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
		return output.Line(out, "\nthere may be more events: --after %s", page.Next)
	}
	return nil
}

// Set prints how many events an action would change, by state.
func Set(out io.Writer, asJSON bool, set held.Set) error {
	if asJSON {
		return output.JSON(out, set)
	}
	return output.Line(out, "%s: %s", output.Plural(len(set.IDs), "event"), States(set.States))
}

// Filter describes a filter in words.
func Filter(f held.Filter) string {
	states := make([]string, len(f.States))
	for i, state := range f.States {
		states[i] = string(state)
	}
	var c output.Conditions
	c.AddIDs(f.IDs)
	c.Add("handler", f.Handler)
	c.Add("state", strings.Join(states, " or "))
	c.Add("type", f.Type)
	c.Add("key", f.Key)
	c.Add("class", f.Class)
	c.AddTime("due since", f.DueSince)
	c.AddTime("due until", f.DueUntil)
	return c.Or("all held events")
}

// Result prints the result of an action. The parameter verb names the action.
func Result(out io.Writer, asJSON bool, verb string, r held.Result) error {
	if asJSON {
		return output.JSON(out, r)
	}
	if err := output.Line(out, "%s: %s", verb, output.Plural(int(r.Events), "event")); err != nil || len(r.Unchanged) == 0 || r.Events == 0 {
		return err
	}
	return output.Line(out, "unchanged: %s", States(r.Unchanged))
}

// States says how many events are in each state.
func States(states map[held.State]int64) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, terminal.Grouped(states[state])+" "+string(state))
	}
	return strings.Join(parts, ", ")
}

// Advice says how many events an action did not change, in which states they are, and what an
// operator can do about them.
func Advice(states map[held.State]int64) string {
	advice := States(states)
	if states[held.Running] > 0 {
		advice += "; an event that runs, or is being published, cannot be stopped: look again when it is done"
	}
	if states[held.Waiting] > 0 {
		advice += "; a waiting event continues when the earlier event of its key is done: 'postroom keys' shows that earlier event"
	}
	if states[held.Dead] > 0 {
		advice += "; for dead events, use 'postroom dead replay' or 'postroom dead discard'"
	}
	return advice
}
