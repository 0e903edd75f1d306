package sagacmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/saga"
)

// printPage prints a page of instances.
func printPage(out io.Writer, asJSON bool, instances []saga.Instance, next string) error {
	if asJSON {
		return output.JSON(out, struct {
			Instances []saga.Instance `json:"instances"`
			Next      string          `json:"next,omitempty"`
		}{output.List(instances), next})
	}
	switch {
	case len(instances) == 0 && next != "":
		return output.Line(out, "no instance matches so far: continue with --after %s", next)
	case len(instances) == 0:
		return output.Line(out, "no instance matches")
	}
	rows := [][]string{{"SAGA", "KEY", "STATE", "STEP", "WAITS", "DEADLINE", "REVISION", "STARTED"}}
	for _, i := range instances {
		step, waits, deadline := output.Cell(i.Step, 60), output.Span(time.Since(i.WaitsSince)), "-"
		if i.State.Ended() {
			step, waits = "-", "ended "+output.Ago(i.EndedAt)
		}
		if !i.Deadline.IsZero() {
			deadline = output.Ago(i.Deadline)
		}
		rows = append(rows, []string{
			output.Cell(i.Saga, 60), output.Cell(i.Key, 60), stateOf(i), step, waits, deadline, fmt.Sprint(i.Revision), output.Stamp(i.StartedAt),
		})
	}
	return output.Page(out, rows, next)
}

// stateOf returns the state of an instance, and whether the instance is stuck.
func stateOf(i saga.Instance) string {
	if i.Stuck {
		return string(i.State) + ", stuck"
	}
	return string(i.State)
}

// printStory prints one instance.
func printStory(out io.Writer, asJSON bool, s saga.Story) error {
	if asJSON {
		return output.JSON(out, s)
	}
	if err := output.Facts(out, facts(s)); err != nil {
		return err
	}
	steps := [][]string{{"STEP", "STATE"}}
	for _, step := range s.Steps {
		steps = append(steps, []string{output.Cell(step.Name, 60), string(step.State)})
	}
	if err := output.Block(out, steps); err != nil {
		return err
	}
	if err := output.Block(out, historyRows(s.History)); err != nil {
		return err
	}
	text := fmt.Sprintf("\nstate, %d bytes\n%s\n", len(s.Data), output.Document(s.Data))
	if !s.State.Ended() {
		text += fmt.Sprintf("\nto decide: postroom saga retry|skip|done|compensate %s --revision %d\n", named(s.Saga, s.Key), s.Revision)
	}
	return output.Text(out, text)
}

// facts returns names and values that describe an instance.
func facts(s saga.Story) [][]string {
	rows := [][]string{
		{"SAGA", fmt.Sprintf("%s, version %d", output.Cell(s.Saga, 128), s.Version)},
		{"KEY", output.Cell(s.Key, 255)},
		{"STATE", stateOf(s.Instance)},
		{"REVISION", fmt.Sprint(s.Revision)},
		{"STARTED", since(s.StartedAt)},
	}
	add := func(name, value string) { rows = append(rows, []string{name, value}) }
	if s.State.Ended() {
		add("ENDED", since(s.EndedAt))
	} else {
		add("WAITS FOR", waiting(s))
		if command, ok := pending(s); ok {
			add("COMMAND", fmt.Sprintf("%s %s; 'postroom events show %s' shows what happened to it", output.Cell(command.Type, 255), output.Cell(command.EventID, 255), output.Quoted(command.EventID)))
		}
		deadline := "none: it waits until the reply comes"
		if !s.Deadline.IsZero() {
			deadline = since(s.Deadline) + ": then it begins to undo"
		}
		add("DEADLINE", deadline)
	}
	if s.Note != "" {
		add("NOTE", output.Cell(s.Note, 1000))
	}
	add("CORRELATION", output.Cell(s.CorrelationID, 255))
	if s.CausationID != "" {
		add("BEGUN BY", output.Cell(s.CausationID, 255))
	}
	return rows
}

// waiting says for which step and for which replies an instance waits.
func waiting(s saga.Story) string {
	what := "step " + output.Cell(s.Step, 128)
	if len(s.WaitsFor) > 0 {
		what += ": " + output.Cell(strings.Join(s.WaitsFor, " or "), 500)
	}
	return what + ", since " + since(s.WaitsSince)
}

// pending returns the last command of the step for which an instance waits.
func pending(s saga.Story) (command saga.Entry, ok bool) {
	direction := "do"
	if s.State == saga.Compensating {
		direction = "undo"
	}
	for _, e := range s.History {
		if e.What == "sent" && e.Step == s.Step && e.Direction == direction {
			command, ok = e, true
		}
	}
	return command, ok
}

func historyRows(history []saga.Entry) [][]string {
	rows := [][]string{{"TIME", "REVISION", "STEP", "DIRECTION", "WHAT", "TYPE", "EVENT"}}
	for _, e := range history {
		rows = append(rows, []string{
			e.At.UTC().Format("2006-01-02T15:04:05.000Z"), fmt.Sprint(e.Revision), output.Cell(e.Step, 60), e.Direction, e.What,
			output.OrDash(output.Cell(e.Type, 60)), output.OrDash(output.Cell(e.EventID, 60)),
		})
	}
	return rows
}

// since returns a text with the time t, and how long ago t was.
func since(t time.Time) string { return output.Stamp(t) + " (" + output.Ago(t) + ")" }
